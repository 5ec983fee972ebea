package connection

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

const (
	// signInTime is how long a sign-in may take.
	signInTime = 10 * time.Minute
	// probeTime limits the request that asks a server how to sign in.
	probeTime = 15 * time.Second
)

// Begin begins the sign-in of an operator at a server. It returns the address of the authorization server for
// the browser. People connect themselves, so that nobody uses the rights of another; an administrator connects
// what all agents share.
func (c *Connections) Begin(ctx context.Context, upstream string, who Actor) (string, error) {
	s := c.server(upstream)
	if s == nil {
		return "", ErrNotFound
	}
	if !s.mayConnect(who) {
		return "", ErrForbidden
	}
	var earlier *oauth.Grant
	var challenge []string
	id := idOf(upstream, s.Owner(who.Name))
	switch found, err := c.read(ctx, id); {
	case err == nil && c.accepts(&found):
		earlier, challenge = &found.grant, found.Challenge
	case err == nil: // of another server
	case !errors.Is(err, ErrNotFound):
		return "", err
	}
	if challenge == nil {
		challenge = probe(ctx, s)
	}
	begun, err := s.Client.Begin(ctx, challenge, earlier)
	if err != nil {
		return "", err
	}
	return begun.URL, c.putSignIn(ctx, upstream, begun, who)
}

// putSignIn stores a sign-in until it ends, sealed for the session that has begun it.
func (c *Connections) putSignIn(ctx context.Context, upstream string, begun *oauth.SignIn, who Actor) error {
	text, err := json.Marshal(begun)
	if err != nil {
		return err
	}
	sealed, err := c.sealer.Seal(ctx, string(text), sealedFor(upstream, who)...)
	if err != nil {
		return err
	}
	value, err := json.Marshal(storedSignIn{Upstream: upstream, Sealed: sealed})
	if err != nil {
		return err
	}
	return c.store.PutRecord(ctx, gatestore.Record{Name: signIns + digestOf(begun.State), Version: 1, Value: value, Expires: c.cfg.Now().Add(signInTime)})
}

// A storedSignIn is the record of a sign-in. The browser session that has begun it is part of the seal.
type storedSignIn struct {
	Upstream string `json:"upstream"`
	Sealed   string `json:"sealed"` // the oauth.SignIn
}

// sealedFor returns for what a sign-in is sealed.
func sealedFor(upstream string, who Actor) []string {
	//mutate:swap "who.Name, who.Session" `"", ""` internal/app.TestSignInBelongsToBrowser the sign-in of one person ends in the browser of another
	return []string{upstream, who.Name, who.Session}
}

// takeSignIn returns the sign-in to which an answer at a path belongs, once.
func (c *Connections) takeSignIn(ctx context.Context, path string, answer url.Values, who Actor) (*Server, *oauth.SignIn, error) {
	r, err := c.store.GetRecord(ctx, signIns+digestOf(answer.Get("state")))
	if errors.Is(err, task.ErrNotFound) || err == nil && c.cfg.Now().After(r.Expires) {
		return nil, nil, ErrSignIn
	}
	if err != nil {
		return nil, nil, err
	}
	s, begun, err := c.openSignIn(ctx, r, who)
	if err != nil {
		return nil, nil, err
	}
	if at, err := url.Parse(begun.Grant.Registration.Redirect); err != nil || at.Path != path || !begun.Grant.IsFor(&s.Client) {
		return nil, nil, ErrSignIn // the answer is from another authorization server, or the configuration has changed
	}
	if !s.mayConnect(who) { // the role or the configuration has changed
		return nil, nil, ErrForbidden
	}
	//mutate:drop internal/app.TestSignInCountsOnce an answer counts twice
	err = c.store.PutRecord(ctx, gatestore.Record{Name: r.Name, Version: r.Version + 1, Value: []byte("{}"), Expires: r.Expires})
	if errors.Is(err, task.ErrConcurrentModification) {
		err = ErrSignIn
	}
	return s, begun, err
}

// openSignIn returns the sign-in of a record, if the same person has begun it in the same browser.
func (c *Connections) openSignIn(ctx context.Context, r gatestore.Record, who Actor) (*Server, *oauth.SignIn, error) {
	var stored storedSignIn
	_ = json.Unmarshal(r.Value, &stored) // a sign-in that was used has no value
	s := c.server(stored.Upstream)
	if s == nil {
		return nil, nil, ErrSignIn
	}
	text, err := c.sealer.Open(ctx, stored.Sealed, sealedFor(stored.Upstream, who)...)
	if err != nil {
		return nil, nil, ErrSignIn
	}
	begun := new(oauth.SignIn)
	if json.Unmarshal([]byte(text), begun) != nil {
		return nil, nil, ErrSignIn
	}
	return s, begun, nil
}

// Finish ends a sign-in with the path and the parameters with which the authorization server has sent the browser
// back, and keeps the connection. The journal records it before it is used.
func (c *Connections) Finish(ctx context.Context, path string, answer url.Values, who Actor) (Connection, error) {
	s, begun, err := c.takeSignIn(ctx, path, answer, who)
	if err != nil {
		return Connection{}, err
	}
	grant, err := s.Client.Finish(ctx, begun, answer)
	if err != nil {
		return Connection{}, err
	}
	c.useAWhile(grant)
	ctx = context.WithoutCancel(ctx)
	about := Connection{Upstream: s.Name, Person: s.Owner(who.Name), By: who.Name, At: c.cfg.Now().UTC(), Scopes: grant.Scopes}
	about.ID = idOf(s.Name, about.Person)
	if _, err := c.encode(ctx, &record{About: about, grant: *grant}); err != nil {
		return Connection{}, err
	}
	if err := c.note(ctx, auditlog.Connected, about, who.Name, ""); err != nil {
		return Connection{}, err
	}
	for {
		old, err := c.store.GetRecord(ctx, connections+about.ID)
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return Connection{}, err
		}
		err = c.write(ctx, &record{About: about, grant: *grant, version: old.Version})
		if err == nil {
			c.cfg.Log.InfoContext(ctx, "connected", "upstream", s.Name, "person", about.Person, "by", who.Name)
		}
		if !errors.Is(err, task.ErrConcurrentModification) {
			return about, err
		}
	}
}

// probe asks a server without a token, and returns its challenges. A server that does not answer has none: then
// its metadata says how to sign in.
func probe(ctx context.Context, s *Server) []string {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Client.Resource, bytes.NewReader([]byte(ping)))
	if err != nil {
		return nil
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := s.Client.HTTP.Do(r)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
	return resp.Header.Values("Www-Authenticate")
}
