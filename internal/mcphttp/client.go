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
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A client is the sender of an HTTP request. It implements [conversation.Client].
type client struct {
	h        *Handler
	r        *http.Request
	ctx      *requestContext // of r
	out      *response
	upstream *httpclient.Client

	agent         identity.Agent // see recognise
	since         *generation    // in which the agent was recognised
	authorization []string       // the header of this name, which may have been taken off

	// Known once the body has been read.
	era  wire.Era
	meta jsonrpc.Value // the metadata of its message
	from gate.Client   // see From
}

// recognise finds out who sends the request, and takes off what only the gate
// was to see.
func (c *client) recognise() *wire.Problem {
	c.agent, c.ctx.principal = identity.Agent{}, anonymous
	c.agent.Principal.Anonymous = true
	c.since = c.h.current.Load()
	recogniser := c.since.Identity
	if recogniser == nil {
		return nil
	}
	agent, err := recogniser.Recognise(c.ctx, c.r)
	if err != nil {
		return c.unrecognised(recogniser, err)
	}
	c.agent = agent
	c.authorization = c.r.Header["Authorization"]
	if !agent.Principal.Anonymous {
		c.ctx.principal = agent.Principal.ID
	}
	if agent.Spent && !c.upstream.ForwardsCredential() {
		c.r.Header.Del("Authorization")
	}
	return nil
}

// recogniseAgain recognises the sender again if the identity settings have changed
// since: its credential may have been revoked.
func (c *client) recogniseAgain() *wire.Problem {
	if c.h.current.Load().over == c.since.over {
		return nil
	}
	if c.authorization != nil {
		c.r.Header["Authorization"] = c.authorization
	}
	return c.recognise()
}

func (c *client) unrecognised(recogniser *identity.Recogniser, err error) *wire.Problem {
	why, ok := errors.AsType[*identity.Error](err)
	if !ok || why.Unavailable {
		c.out.header().Set("Retry-After", "10")
		return &wire.Problem{Type: wire.IdentityDown, RetryAfter: 10, Cause: err}
	}
	if c.r.TLS != nil && len(c.r.TLS.PeerCertificates) > 0 {
		c.out.header().Set("Connection", "close") // a client with a new certificate can show it on another connection
	}
	c.out.header().Set("WWW-Authenticate", recogniser.Challenge(c.r.URL.Path, why))
	return &wire.Problem{Type: wire.Unauthenticated, Detail: why.Reason}
}

// in returns who sent the request in a session, as far as that is known. A session
// distinguishes legacy clients; credentials distinguish others, and on the
// user's own machine by the name of their host.
func (c *client) in(session string) gate.Client {
	credentials := ""
	if c.era != wire.Legacy || session == "" {
		session, credentials = "", cmp.Or(c.credentials(), c.localHost())
	}
	return gate.Client{
		Upstream: c.upstream.Name(), Key: gate.ClientKey(c.agent.Principal, session, credentials), Principal: c.agent.Principal,
	}
}

// credentials returns a digest of the credentials that the upstream sees. It is
// empty if there are none.
func (c *client) credentials() string {
	hash, given := sha256.New(), false
	for _, name := range c.identifying() {
		if name == "Authorization" && c.agent.Spent {
			continue // it changes while its owner stays the same
		}
		for _, value := range c.r.Header[name] {
			given = true
			_, _ = fmt.Fprintf(hash, "%s %d %s\n", name, len(value), value)
		}
	}
	if !given {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// identifying returns the headers that distinguish clients: those in which
// credentials usually are, and those that are said to be credentials.
func (c *client) identifying() []string {
	names := httpclient.DefaultCredentials()
	for _, name := range c.upstream.Credentials() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// From implements [conversation.Client].
func (c *client) From() gate.Client {
	if c.from.Upstream == "" {
		c.from = c.in(c.r.Header.Get("Mcp-Session-Id"))
	}
	return c.from
}

// Joining implements [conversation.Client].
func (c *client) Joining() gate.Client { return c.in(c.out.header().Get("Mcp-Session-Id")) }

// Caller implements [conversation.Client].
func (c *client) Caller() *upstream.Caller {
	return c.upstream.Upstream().Caller(c.h.cfg.Gate, c.From(), c.upstream.CredentialsOf(c.r.Header))
}

// Network implements [conversation.Origin].
func (c *client) Network() string { return admission.Address(c.r.RemoteAddr).Network() }

// Transport implements [conversation.Client].
func (c *client) Transport() conversation.Transport {
	return conversation.Transport{Header: c.r.Header, Version: c.version()}
}

// version returns the protocol version that the request names, if it does.
func (c *client) version() string { return strings.Join(c.r.Header["Mcp-Protocol-Version"], " ") }

// A recognition is what made the gate take a client for an agent.
type recognition struct {
	h     *Handler
	seen  atomic.Pointer[generation] // in which the agent was last recognised
	agent identity.Agent
	shown *http.Request   // without its body
	ctx   context.Context //nolint:containedctx // the agent may be asked about after its request has ended
}

// Recognition implements [conversation.Client].
func (c *client) Recognition() conversation.Recognition {
	shown := c.r.WithContext(context.WithoutCancel(c.r.Context()))
	shown.Body, shown.Header = nil, c.r.Header.Clone()
	if c.authorization != nil {
		shown.Header["Authorization"] = c.authorization
	}
	r := &recognition{h: c.h, agent: c.agent, shown: shown, ctx: context.WithoutCancel(c.ctx)}
	r.seen.Store(c.since)
	return r
}

// Changed implements [conversation.Recognition].
func (r *recognition) Changed() <-chan struct{} { return r.seen.Load().over.Done() }

// Valid implements [conversation.Recognition].
func (r *recognition) Valid() bool {
	now := r.h.current.Load()
	if now.over == r.seen.Load().over {
		return true
	}
	if !r.recognised(now.Identity) {
		return false
	}
	r.seen.Store(now)
	return true
}

// recognised reports whether recogniser takes the client for the same agent.
func (r *recognition) recognised(recogniser *identity.Recogniser) bool {
	if recogniser == nil {
		return r.agent.Principal.Anonymous
	}
	again, err := recogniser.Recognise(r.ctx, r.shown)
	return err == nil && again.Principal.ID == r.agent.Principal.ID && again.Principal.Anonymous == r.agent.Principal.Anonymous
}
