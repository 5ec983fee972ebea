package connection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Tokens returns the tokens of an upstream, or nil if it has no OAuth settings.
func (c *Connections) Tokens(upstream string) httpclient.Tokens {
	for i := range c.cfg.Servers {
		switch s := &c.cfg.Servers[i]; {
		case s.Name != upstream:
		case s.connects():
			return connected{of: c, server: s}
		default:
			return unattended{of: c, server: s}
		}
	}
	return nil
}

const (
	// renewTime limits the renewal of a token. Another replica may try again after it.
	renewTime = 30 * time.Second
	// renewPoll is how often a replica looks whether another one has renewed a token.
	renewPoll = 200 * time.Millisecond
	// patience is how long a tool call waits for the person who was just told to connect.
	patience     = 25 * time.Second
	patiencePoll = time.Second
	// The limits of the calls that wait: for one connection, and of the connections for which calls wait.
	maxWaits, maxWaitedFor = 4, 250
	maxChallenge           = 4 << 10
)

// connected gives the tokens of people who have connected a server.
type connected struct {
	of     *Connections
	server *Server
}

// Token implements [httpclient.Tokens].
func (t connected) Token(ctx context.Context, by httpclient.Peer, _ http.Header) (string, error) {
	id, err := t.connectionOf(by)
	if err != nil {
		return "", err
	}
	token, err := t.current(ctx, id, "")
	//mutate:swap "isInvitation(err)" "false" internal/app.TestCallWaitsForConnection a call fails while its person signs in
	if by.Use == httpclient.Call && isInvitation(err) && t.wasInvited(id) && t.of.beginWait(id) {
		defer t.of.endWait(id)
		return t.await(ctx, id)
	}
	return token, err
}

// connectionOf returns the id of the connection that a client uses.
func (t connected) connectionOf(by httpclient.Peer) (string, error) {
	if t.server.Mode == Shared {
		return idOf(t.server.Name, ""), nil
	}
	principal := catalog.PrincipalID(by.Principal)
	//mutate:false internal/app.TestSharedConnectionIsOfNobody agents without identity use a connection
	if principal == "" {
		return "", &mcp.Problem{Type: mcp.NotConnected, Detail: "this server is used in the name of a person, and the gate does not know whose agent this is; give the agent an identity"}
	}
	return idOf(t.server.Name, t.of.cfg.Person(principal)), nil
}

// current returns a token that is valid for a while and is not the refused one.
func (t connected) current(ctx context.Context, id, refused string) (string, error) {
	found, err := t.of.load(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return "", t.invitation("not connected to " + t.server.Name + " yet")
	}
	if err != nil {
		return "", mcp.StoreProblem(mcp.Legacy, err)
	}
	if token, err := t.tokenOf(&found, refused); token != "" || err != nil {
		return token, err
	}
	if err := t.of.failure(id); err != nil {
		return found.lastMoment(t.of.cfg.Now(), refused, err)
	}
	// All requests of this replica share one renewal, which goes on when one of them ends.
	done := t.of.renewing.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
		defer cancel()
		return t.renew(ctx, id, refused)
	})
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case result := <-done:
		if result.Err != nil {
			return "", result.Err
		}
		return result.Val.(string), nil
	}
}

// tokenOf returns the token of r if it is valid for a while and is not the refused one, or why there is none. It
// returns nothing if the token must be renewed.
func (t connected) tokenOf(r *record, refused string) (string, error) {
	now := t.of.cfg.Now()
	switch {
	case !t.of.accepts(r):
		return "", t.invitation("the connection to " + t.server.Name + " was for another address")
	case !r.About.Ended.IsZero():
		return "", t.invitation("the connection to " + t.server.Name + " has ended")
	case r.grant.Access != refused && r.grant.Fresh(now):
		return r.grant.Access, nil
	//mutate:false internal/app.TestCallsCauseNoStormOfTokens each call of an agent makes the gate renew a token
	case r.grant.Access == refused && now.Before(r.Refused.Add(refusalPause)):
		return "", t.notAccepted()
	default:
		return "", nil
	}
}

// notAccepted returns the invitation if the server refuses tokens that are new.
func (t connected) notAccepted() error {
	return t.invitation(t.server.Name + " does not accept the token of the connection")
}

// lastMoment returns the token of r if that is still valid for a moment and was not refused, or err.
func (r *record) lastMoment(now time.Time, refused string, err error) (string, error) {
	if refused == "" && now.Before(r.grant.Expires) {
		return r.grant.Access, nil
	}
	return "", err
}

// renew renews a token, or waits for the replica that does so. Only the replica that has claimed the record by
// compare-and-set asks the authorization server: it may take a second use of a refresh token for a theft.
func (t connected) renew(ctx context.Context, id, refused string) (string, error) {
	for {
		r, err := t.of.read(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
			t.of.forget(id)
			return "", t.invitation("not connected to " + t.server.Name + " any more")
		case err != nil:
			return "", mcp.StoreProblem(mcp.Legacy, err)
		}
		if token, err := t.tokenOf(&r, refused); token != "" || err != nil {
			t.of.remember(r)
			return token, err
		}
		//mutate:swap "t.of.cfg.Now().Before(r.Renewing)" "false" TestReplicasRenewOnce two replicas use one refresh token
		if t.of.cfg.Now().Before(r.Renewing) {
			if !pause.For(ctx, renewPoll) {
				return "", context.Cause(ctx)
			}
			continue
		}
		if token, err := t.claimAndRenew(ctx, r, refused); !errors.Is(err, errChanged) {
			return token, err
		}
	}
}

// claimAndRenew claims a record and renews its token. The error is [errChanged] if the record has changed.
func (t connected) claimAndRenew(ctx context.Context, r record, refused string) (string, error) {
	r.Renewing = t.of.cfg.Now().Add(renewTime)
	if refused != "" {
		r.Refused = t.of.cfg.Now()
	}
	err := t.of.write(ctx, &r)
	if errors.Is(err, task.ErrConcurrentModification) {
		return "", errChanged
	}
	if err != nil {
		return "", mcp.StoreProblem(mcp.Legacy, err)
	}
	return t.renewClaimed(ctx, r, refused)
}

// errChanged means that others have removed, replaced or claimed a connection.
var errChanged = errors.New("the connection has changed")

// renewClaimed renews the token of a record that this replica has claimed. The error is [errChanged] if the
// connection was removed or replaced meanwhile.
func (t connected) renewClaimed(ctx context.Context, r record, refused string) (string, error) {
	next, failed := t.server.Client.Renew(ctx, &r.grant)
	if failed == nil {
		t.of.useAWhile(next)
		renewed := record{About: r.About, Challenge: r.Challenge, grant: *next}
		if _, err := t.of.encode(ctx, &renewed); errors.Is(err, errTooLarge) {
			t.of.revoke(ctx, t.server, &renewed)
			failed = fmt.Errorf("%w: %w", oauth.ErrSignInAgain, err)
		}
	}
	r, err := t.storeRenewal(ctx, r, next, failed)
	switch {
	case errors.Is(err, ErrNotFound):
		if failed == nil {
			r.grant = *next
			t.of.revoke(ctx, t.server, &r)
		}
		return "", errChanged
	case errors.Is(err, errChanged):
		return "", err
	case err != nil:
		t.of.forget(r.About.ID)
		t.of.cfg.Log.ErrorContext(ctx, "a renewed token was not stored", "upstream", r.About.Upstream, "person", r.About.Person, "err", err)
	}
	switch {
	case failed == nil:
		return next.Access, nil
	case !r.About.Ended.IsZero():
		t.of.cfg.Log.WarnContext(ctx, "a connection has ended", "upstream", r.About.Upstream, "person", r.About.Person, "err", failed)
		return "", t.invitation("the connection to " + t.server.Name + " has ended")
	default:
		failed = noToken(failed)
		t.of.noteFailure(r.About.ID, failed)
		return r.lastMoment(t.of.cfg.Now(), refused, failed)
	}
}

// storeRenewal stores the outcome of a renewal of claimed, and returns the new record. New tokens must not be lost:
// the old ones may count no more. So it keeps what others have changed meanwhile, and tries again if the store fails.
func (t connected) storeRenewal(ctx context.Context, claimed record, next *oauth.Grant, failed error) (record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
	defer cancel()
	for r := claimed; ; {
		r.Renewing = time.Time{}
		switch {
		case failed == nil:
			r.grant, r.About.Ended = *next, time.Time{}
		case errors.Is(failed, oauth.ErrSignInAgain):
			r.About.Ended = t.of.cfg.Now().UTC()
			if errors.Is(failed, oauth.ErrUnknownClient) {
				r.grant.Registration.ID = "" // the next sign-in registers again
			}
		}
		err := t.of.write(ctx, &r)
		if errors.Is(err, task.ErrConcurrentModification) {
			if r, err = t.changed(ctx, claimed); err == nil {
				continue
			}
		}
		if !errors.Is(err, task.ErrUnavailable) || !pause.For(ctx, renewPoll) {
			return r, err
		}
	}
}

// changed returns the record of claimed after others have changed it, or claimed with the reason if that cannot be
// read, or has another grant.
func (t connected) changed(ctx context.Context, claimed record) (record, error) {
	r, err := t.of.read(ctx, claimed.About.ID)
	//mutate:swap "r.grant.Access != claimed.grant.Access" "false" TestRenewalLeavesNextConnection the renewal of a removed connection replaces the next one
	if err == nil && r.grant.Access != claimed.grant.Access {
		err = errChanged
	}
	if err != nil {
		return claimed, err
	}
	return r, nil
}

// Renew implements [httpclient.Tokens].
func (t connected) Renew(ctx context.Context, by httpclient.Peer, _ http.Header, refused httpclient.RefusedToken) (string, error) {
	id, err := t.connectionOf(by)
	if err != nil {
		return "", err
	}
	if refused.Status == http.StatusForbidden {
		if !oauth.NeedsSignIn(refused.Status, refused.Challenge) {
			return "", nil // it concerns the call and not the token
		}
		return "", t.askForMore(ctx, id, refused)
	}
	if refused.Last {
		return "", t.notAccepted()
	}
	return t.current(ctx, id, refused.Token)
}

// askForMore stores the scopes that a server asks for, and returns the invitation to connect once more.
func (t connected) askForMore(ctx context.Context, id string, refused httpclient.RefusedToken) error {
	r, err := t.of.read(ctx, id)
	if err == nil && r.grant.Access == refused.Token && !slices.Equal(r.Challenge, refused.Challenge) {
		if r.Challenge = refused.Challenge; len(strings.Join(r.Challenge, "")) > maxChallenge {
			r.Challenge = nil // then the metadata of the server says how to connect
		}
		err = t.of.write(ctx, &r)
	}
	if err != nil && !errors.Is(err, task.ErrConcurrentModification) && !errors.Is(err, ErrNotFound) {
		return mcp.StoreProblem(mcp.Legacy, err)
	}
	return t.invitation("this needs more rights at " + t.server.Name)
}

// invitation returns the problem of an agent whose person must connect.
func (t connected) invitation(why string) error {
	p := &mcp.Problem{Type: mcp.NotConnected, Connect: t.of.page}
	if t.server.Mode == Shared {
		p.Detail = why + ": an administrator must connect it at " + p.Connect
	} else {
		p.Detail = why + ": open " + p.Connect + " and connect, then call again"
	}
	return p
}

// isInvitation reports whether err asks a person to connect.
func isInvitation(err error) bool {
	p, ok := errors.AsType[*mcp.Problem](err)
	return ok && p.Type == mcp.NotConnected
}

// wasInvited reports whether the agents of a connection were told to connect a short time ago, and notes that
// they are told now.
func (t connected) wasInvited(id string) bool {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	now := t.of.cfg.Now()
	last, ok := t.of.invited[id]
	evictOne(t.of.invited)
	t.of.invited[id] = now
	return ok && now.Sub(last) < inviteTime
}

// beginWait reports whether another call may wait for a connection, and counts it.
func (c *Connections) beginWait(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	//mutate:false internal/app.TestFewCallsWaitForConnection calls that wait for a person take all slots of the gate
	if c.waits[id] == maxWaits || c.waits[id] == 0 && len(c.waits) == maxWaitedFor {
		return false
	}
	c.waits[id]++
	return true
}

// endWait ends a wait.
func (c *Connections) endWait(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits[id]--; c.waits[id] == 0 {
		delete(c.waits, id)
	}
}

// await waits for a connection.
func (t connected) await(ctx context.Context, id string) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		more := pause.For(waiting, patiencePoll)
		token, err := t.current(ctx, id, "")
		if !more || !isInvitation(err) {
			return token, err
		}
	}
}

// noToken returns the problem of a request for which the authorization server gave no token.
func noToken(cause error) error {
	return &mcp.Problem{Type: mcp.UpstreamDown, Detail: "the gate got no token for the upstream; the call did not run", Cause: cause}
}

// unattended gives tokens for which nobody signs in. They are in memory only.
type unattended struct {
	of     *Connections
	server *Server
}

// Token implements [httpclient.Tokens].
func (t unattended) Token(ctx context.Context, _ httpclient.Peer, header http.Header) (string, error) {
	return t.token(ctx, header, httpclient.RefusedToken{})
}

// Renew implements [httpclient.Tokens].
func (t unattended) Renew(ctx context.Context, _ httpclient.Peer, header http.Header, refused httpclient.RefusedToken) (string, error) {
	switch {
	case refused.Status == http.StatusForbidden && !oauth.NeedsSignIn(refused.Status, refused.Challenge):
		return "", nil
	case refused.Status == http.StatusForbidden:
		return "", &mcp.Problem{Type: mcp.UpstreamDown, Detail: "the upstream wants a token with other scopes: they must be set in auth.oauth.scopes; the call did not run"}
	case refused.Last:
		return "", t.notAccepted()
	}
	return t.token(ctx, header, refused)
}

func (t unattended) notAccepted() error {
	return &mcp.Problem{Type: mcp.UpstreamDown, Detail: "the upstream does not accept the token of the gate; the call did not run"}
}

// A directGrant is one for which nobody has signed in.
type directGrant struct {
	grant   *oauth.Grant
	refused time.Time // when the server had refused the one before
}

// token returns a token that is valid for a while and is not the refused one.
func (t unattended) token(ctx context.Context, header http.Header, refused httpclient.RefusedToken) (string, error) {
	subject, key := "", t.server.Name
	if t.server.Mode == TokenExchange {
		if subject = bearer(header); subject == "" {
			return "", &mcp.Problem{Type: mcp.Unauthenticated, Detail: "this server needs the bearer token of the agent"}
		}
		//mutate:drop internal/app.TestTokenExchange agents use the token of another
		key += "\x00" + digestOf(subject)
	}
	if token, err := t.last(key, refused.Token); token != "" || err != nil {
		return token, err
	}
	done := t.of.renewing.DoChan("direct "+key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
		defer cancel()
		token, err := t.get(ctx, key, subject, refused)
		if err != nil {
			err = noToken(err)
			t.of.noteFailure("direct "+key, err)
		}
		return token, err
	})
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case result := <-done:
		if result.Err != nil {
			return "", result.Err
		}
		return result.Val.(string), nil
	}
}

// last returns the last token, or why there is none. It returns nothing if the gate must ask for another one.
func (t unattended) last(key, refused string) (string, error) {
	t.of.mu.Lock()
	last := t.of.direct[key]
	t.of.mu.Unlock()
	now := t.of.cfg.Now()
	switch {
	case last.grant == nil:
	case last.grant.Access != refused && last.grant.Fresh(now):
		return last.grant.Access, nil
	//mutate:false internal/app.TestCallsCauseNoStormOfTokens each call of an agent makes the gate ask for a token
	case last.grant.Access == refused && now.Before(last.refused.Add(refusalPause)):
		return "", t.notAccepted()
	}
	return "", t.of.failure("direct " + key)
}

// get asks for a token.
func (t unattended) get(ctx context.Context, key, subject string, refused httpclient.RefusedToken) (string, error) {
	challenge := refused.Challenge
	if challenge == nil {
		challenge = probe(ctx, t.server)
	}
	var grant *oauth.Grant
	var err error
	if subject == "" {
		grant, err = t.server.Client.ByItself(ctx, challenge)
	} else {
		grant, err = t.server.Client.Exchange(ctx, challenge, subject)
	}
	if err != nil {
		return "", err
	}
	t.of.useAWhile(grant)
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	evictOne(t.of.direct)
	next := directGrant{grant: grant}
	if refused.Token != "" {
		next.refused = t.of.cfg.Now()
	}
	t.of.direct[key] = next
	return grant.Access, nil
}

// bearer returns the bearer token of a client, or "".
func bearer(header http.Header) string {
	scheme, token, _ := strings.Cut(header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
