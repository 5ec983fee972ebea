package mcphttp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A client is the sender of an HTTP request. It implements [conversation.Client].
type client struct {
	h        *Handler
	r        *http.Request
	ctx      *conversation.RequestContext // of r
	out      *response
	path     string             // of the endpoint
	upstream *httpclient.Client // nil for an endpoint with several servers, before one is chosen
	down     *mcp.Problem       // why the upstream is not asked; may be nil
	reached  bool               // the upstream has answered

	// shown is the request as the client sent it, which identifies the client. At an endpoint with several
	// servers, r is the part of it that one of them gets. Otherwise it is r.
	shown *http.Request

	agent         identity.Agent // see recognise
	epoch         *identityEpoch // when the agent was recognised
	authorization []string       // the original Authorization header, which may have been removed from r

	// Known once the body has been read.
	era  mcp.Era
	meta jsonrpc.Value  // _meta of the message
	from catalog.Client // see Identity
}

// checksAnswers reports whether the gate drops answers of the upstream to requests that it did not get. Without
// policy it may answer what it likes, unless the client's other requests are for other servers.
func (c *client) checksAnswers() bool { return c.h.cfg.Gateway.Governs() || c.shown != c.r }

// anonymous is the principal of a client without an identity.
const anonymous = "anonymous"

// recognise identifies the agent. It removes credentials that were meant for the gate only.
func (c *client) recognise() *mcp.Problem {
	c.agent, c.ctx.Principal = identity.Agent{}, anonymous
	c.agent.Principal.Anonymous = true
	c.epoch = c.h.current.Load()
	recogniser := c.epoch.Identity
	if recogniser == nil {
		return nil
	}
	agent, err := recogniser.Authenticate(c.ctx, c.shown, c.h.resource(c.epoch, c.path))
	if err != nil {
		return c.unrecognised(err)
	}
	c.agent = agent
	c.authorization = c.shown.Header["Authorization"]
	if !agent.Principal.Anonymous {
		c.ctx.Principal = agent.Principal.ID
	}
	if agent.UsedToken && c.upstream != nil && !c.upstream.ForwardsCredential() {
		c.r.Header.Del("Authorization")
	}
	return nil
}

// recogniseAgain repeats recognise if the identity settings have changed: the credential may
// have been revoked.
func (c *client) recogniseAgain() *mcp.Problem {
	if c.h.current.Load().done == c.epoch.done {
		return nil
	}
	if c.authorization != nil {
		c.shown.Header["Authorization"] = c.authorization
	}
	return c.recognise()
}

func (c *client) unrecognised(err error) *mcp.Problem {
	why, ok := errors.AsType[*identity.Error](err)
	if !ok || why.Unavailable {
		c.out.header().Set("Retry-After", "10")
		return &mcp.Problem{Type: mcp.IdentityDown, RetryAfter: 10, Cause: err}
	}
	if c.r.TLS != nil && len(c.r.TLS.PeerCertificates) > 0 {
		c.out.header().Set("Connection", "close") // so that the client can present a new certificate on a new connection
	}
	c.out.header().Set("WWW-Authenticate", c.challenge(why))
	if why.InsufficientScope {
		return &mcp.Problem{Type: mcp.InsufficientScope, Detail: why.Reason}
	}
	return &mcp.Problem{Type: mcp.Unauthenticated, Detail: why.Reason}
}

// admissionClient returns the client for limits: the principal or, without an identity, the
// network address. Sessions are ignored, because a client can create any number of them.
func (c *client) admissionClient() admission.Client {
	if p := c.agent.Principal; !p.Anonymous {
		return admission.Principal(p.ID)
	}
	return admission.Address(c.r.RemoteAddr)
}

// Identity implements [conversation.Client].
func (c *client) Identity() catalog.Client {
	if c.from.Upstream == "" {
		c.from = c.inSession(c.r.Header.Get("Mcp-Session-Id"))
	}
	return c.from
}

// JoiningIdentity implements [conversation.Client].
func (c *client) JoiningIdentity() catalog.Client {
	return c.inSession(c.out.header().Get("Mcp-Session-Id"))
}

// inSession returns the client as policy and tasks see it. Legacy clients are distinguished by
// their session, others by their credentials or, on the user's own machine, by the name of
// their host program.
func (c *client) inSession(session string) catalog.Client {
	credentials := ""
	if c.era != mcp.Legacy || session == "" {
		session, credentials = "", cmp.Or(c.credentials(), c.localHost())
	}
	return catalog.Client{
		Upstream: c.upstream.Name(), Server: c.upstream.Server(), Key: catalog.ClientKey(c.agent.Principal, session, credentials), Principal: c.agent.Principal,
	}
}

// credentials returns a digest of the credentials that the upstream sees, or "" if there are
// none.
func (c *client) credentials() string {
	hash, given := sha256.New(), false
	for _, name := range c.identifying() {
		if name == "Authorization" && c.agent.UsedToken {
			continue // a token may change while its owner stays the same
		}
		for _, value := range c.shown.Header[name] {
			given = true
			_, _ = fmt.Fprintf(hash, "%s %d %s\n", name, len(value), value)
		}
	}
	if !given {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// identifying returns the headers that distinguish clients: the usual credential headers and
// the configured ones.
func (c *client) identifying() []string {
	names := httpclient.DefaultCredentials()
	for _, name := range c.upstream.Credentials() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Caller implements [conversation.Client].
func (c *client) Caller() *upstream.Caller {
	caller := c.upstream.Upstream().Caller(c.h.cfg.Catalog, c.Identity(), c.upstream.CredentialsOf(c.r.Header))
	caller.OwnedBy(c.Network())
	return caller
}

// Network implements [conversation.Origin].
func (c *client) Network() string { return c.ctx.Network() }

// Transport implements [conversation.Client].
func (c *client) Transport() conversation.Transport {
	return conversation.Transport{Header: c.r.Header, Version: c.version()}
}

// version returns the protocol version header, or "".
func (c *client) version() string { return strings.Join(c.r.Header["Mcp-Protocol-Version"], " ") }

// takesEvents reports whether the client accepts an event stream.
func (c *client) takesEvents() bool {
	return strings.Contains(strings.Join(c.r.Header["Accept"], ","), "text/event-stream")
}

// proxyHeaders are added by proxies. A proxy on this machine forwards for clients elsewhere.
var proxyHeaders = [...]string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"}

// Local implements [conversation.Origin].
func (c *client) Local() bool {
	guard := c.h.settings().Guard
	user, known := c.r.Context().Value(localUserKey{}).(*localUser)
	proxied := func(name string) bool { return c.shown.Header[name] != nil }
	return known && c.agent.Principal.Anonymous && guard.Loopback && len(guard.Hosts) == 0 &&
		//mutate:swap "proxyHeaders[:]" "proxyHeaders[:0]" TestLocalHostAttachesInAnotherSession a host behind a proxy counts as one on this machine
		!slices.ContainsFunc(proxyHeaders[:], proxied) && c.credentials() == "" && user.isOwn()
}

// localHost returns the key of a modern client that the user of the gate runs on this machine,
// or "" for other clients.
func (c *client) localHost() string {
	if c.era != mcp.Modern || !c.Local() {
		return ""
	}
	name, _ := c.meta.Member(mcpname.MetaClientInfo).Member("name").Text()
	if name == "" {
		return ""
	}
	return catalog.LocalHost(name)
}

const sessionHeader = "Mcp-Session-Id"

// principal returns the identity of the client without its session, or "" if it is anonymous.
func (c *client) principal() string {
	return catalog.PrincipalIn(catalog.ClientKey(c.agent.Principal, "", ""))
}

// checkSession refuses a session that belongs to another principal or is unknown; the client
// must then initialize again. An anonymous client may use any session that no named principal
// owns.
func (c *client) checkSession() *mcp.Problem {
	return c.sessionProblem(c.upstream.Sessions().Owned)
}

// confirmSession is checkSession with the store instead of the cache. It runs before a call is
// held, so that nothing is held in an ended session.
func (c *client) confirmSession() *mcp.Problem {
	if c.upstream.Sessions().AnyRefused() && c.Caller().SessionGone() {
		return &mcp.Problem{Type: mcp.SessionGone}
	}
	return c.sessionProblem(c.upstream.Sessions().Confirmed)
}

func (c *client) sessionProblem(isOwned func(context.Context, upstream.Session) (bool, error)) *mcp.Problem {
	if c.upstream.Sessions().AnyRefused() { // creating a Caller is expensive
		if r := c.Caller().Refusal(); r != nil {
			return conversation.Refused(r)
		}
	}
	id := c.r.Header.Get(sessionHeader)
	if id == "" || !c.epoch.Identity.HasNamedAgents() {
		return nil
	}
	var owned bool
	var err error
	if c.agent.Principal.Anonymous {
		owned, err = c.upstream.Sessions().Unclaimed(c.ctx, c.upstream.Name(), id)
	} else {
		owned, err = isOwned(c.ctx, c.upstream.Session(c.principal(), id))
	}
	//mutate:false internal/app.TestSessionBelongsToItsPrincipal a session is open to other principals
	if err == nil && !owned {
		return &mcp.Problem{Type: mcp.SessionGone}
	}
	problem, _ := errors.AsType[*mcp.Problem](err)
	return problem
}

// maxSessionID is the longest session ID in bytes. Some servers put a token there.
const maxSessionID = 4 << 10

// joinSession records the owner of the session that the upstream creates in its answer to
// initialize. given is the Mcp-Session-Id header.
func (c *client) joinSession(given []string) *mcp.Problem {
	if len(given) > 1 || !validSession(given[0]) {
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream's session has an id that is not 1 to 4096 visible ASCII characters"}
	}
	if c.upstream.Sessions().AnyRefused() {
		c.Caller().NoteSession(given[0])
	}
	if c.epoch.Identity.HasNamedAgents() {
		c.upstream.BeginSession(c.ctx, c.principal(), given[0])
	}
	return nil
}

// validSession reports whether MCP allows id as a session ID.
func validSession(id string) bool {
	return id != "" && len(id) <= maxSessionID && strings.IndexFunc(id, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// noteAccepted records whether the upstream accepts the session and credentials of the client.
func (c *client) noteAccepted(resp *http.Response) {
	switch {
	case resp.StatusCode == http.StatusNotFound && c.r.Method == http.MethodPost && c.era == mcp.Legacy && c.r.Header.Get(sessionHeader) != "":
		c.Caller().NoteSessionGone(c.ctx)
	case c.upstream.Sessions().AnyRefused():
		c.Caller().NoteAccepted()
	}
}

// endSession forgets a session that the upstream has ended at the client's request.
func (c *client) endSession(resp *http.Response) {
	id := c.r.Header.Get(sessionHeader)
	if c.r.Method == http.MethodDelete && id != "" && resp.StatusCode < http.StatusMultipleChoices {
		c.upstream.Sessions().End(c.ctx, c.upstream.Session(c.principal(), id))
	}
}

// A recognition can check again whether a client is still the same agent.
type recognition struct {
	h       *Handler
	epoch   atomic.Pointer[identityEpoch] // when the agent was last recognised
	agent   identity.Agent
	path    string          // of the endpoint
	request *http.Request   // without its body
	ctx     context.Context // outlives the request
}

// Authentication implements [conversation.Client].
func (c *client) Authentication() conversation.Authentication {
	shown := c.shown.WithContext(context.WithoutCancel(c.r.Context()))
	shown.Body, shown.Header = nil, c.shown.Header.Clone()
	if c.authorization != nil {
		shown.Header["Authorization"] = c.authorization
	}
	r := &recognition{h: c.h, agent: c.agent, path: c.path, request: shown, ctx: context.WithoutCancel(c.ctx)}
	r.epoch.Store(c.epoch)
	return r
}

// Changed implements [conversation.Authentication].
func (r *recognition) Changed() <-chan struct{} { return r.epoch.Load().done.Done() }

// Valid implements [conversation.Authentication].
func (r *recognition) Valid() bool {
	now := r.h.current.Load()
	if now.done == r.epoch.Load().done {
		return true
	}
	if !r.recognised(now) {
		return false
	}
	r.epoch.Store(now)
	return true
}

// recognised reports whether the client is still identified as the same agent.
func (r *recognition) recognised(now *identityEpoch) bool {
	if now.Identity == nil {
		return r.agent.Principal.Anonymous
	}
	again, err := now.Identity.Authenticate(r.ctx, r.request, r.h.resource(now, r.path))
	return err == nil && again.Principal.ID == r.agent.Principal.ID && again.Principal.Anonymous == r.agent.Principal.Anonymous
}
