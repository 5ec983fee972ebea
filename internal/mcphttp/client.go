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
)

// recognise finds out who sends the request, and takes off what only the gate
// was to see.
func (x *exchange) recognise() *wire.Problem {
	x.agent.Principal.Anonymous = true
	x.since = x.h.current.Load()
	recogniser := x.since.Identity
	if recogniser == nil {
		return nil
	}
	agent, err := recogniser.Recognise(x.ctx, x.r)
	if err != nil {
		return x.unrecognised(recogniser, err)
	}
	x.agent = agent
	x.authorization = x.r.Header["Authorization"]
	if !agent.Principal.Anonymous {
		x.ctx.principal = agent.Principal.ID
	}
	if agent.Spent && !x.upstream.ForwardsCredential() {
		x.r.Header.Del("Authorization")
	}
	return nil
}

func (x *exchange) unrecognised(recogniser *identity.Recogniser, err error) *wire.Problem {
	why, ok := errors.AsType[*identity.Error](err)
	if !ok || why.Unavailable {
		x.w.Header().Set("Retry-After", "10")
		return &wire.Problem{Type: wire.IdentityDown, RetryAfter: 10, Cause: err}
	}
	x.w.Header().Set("WWW-Authenticate", recogniser.Challenge(x.r.URL.Path, why))
	return &wire.Problem{Type: wire.Unauthenticated, Detail: why.Reason}
}

// client returns who sent the request, as far as that is known. A session tells
// legacy clients apart; others are told apart by their credentials, and on the
// user's own machine by the name of their host.
func (x *exchange) client(session string) gate.Client {
	credentials := ""
	if x.era != wire.Legacy || session == "" {
		session, credentials = "", cmp.Or(x.credentials(), x.localHost())
	}
	return gate.Client{
		Upstream: x.upstream.Name(), Key: gate.ClientKey(x.agent.Principal, session, credentials), Principal: x.agent.Principal,
	}
}

// credentials returns a digest of the credentials that the upstream sees. It is
// empty if there are none.
func (x *exchange) credentials() string {
	hash, given := sha256.New(), false
	for _, name := range x.identifying() {
		if name == "Authorization" && x.agent.Spent {
			continue // it changes while its owner stays the same
		}
		for _, value := range x.r.Header[name] {
			given = true
			_, _ = fmt.Fprintf(hash, "%s %d %s\n", name, len(value), value)
		}
	}
	if !given {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// identifying returns the headers by which clients are told apart: those in which
// credentials usually are, and those that are said to be credentials.
func (x *exchange) identifying() []string {
	names := httpclient.DefaultCredentials()
	for _, name := range x.upstream.Credentials() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// From implements [conversation.Client].
func (x *exchange) From() gate.Client {
	if x.sender.Upstream == "" {
		x.sender = x.client(x.r.Header.Get("Mcp-Session-Id"))
	}
	return x.sender
}

// Joining implements [conversation.Client].
func (x *exchange) Joining() gate.Client { return x.client(x.w.Header().Get("Mcp-Session-Id")) }

// Caller implements [conversation.Client].
func (x *exchange) Caller() *upstream.Caller {
	return x.upstream.Upstream().Caller(x.h.cfg.Gate, x.From(), x.upstream.CredentialsOf(x.r.Header))
}

// Network implements [conversation.Origin].
func (x *exchange) Network() string { return admission.Address(x.r.RemoteAddr).Network() }

// Mirrors implements [conversation.Client].
func (x *exchange) Mirrors() http.Header { return x.r.Header }

// Version implements [conversation.Client].
func (x *exchange) Version() string { return strings.Join(x.r.Header["Mcp-Protocol-Version"], " ") }

// A recognition is what made the gate take a client for an agent.
type recognition struct {
	h     *Handler
	seen  atomic.Pointer[generation] // in which the agent was last recognised
	agent identity.Agent
	shown *http.Request   // without its body
	ctx   context.Context //nolint:containedctx // the agent may be asked about after its request has ended
}

// Recognition implements [conversation.Client].
func (x *exchange) Recognition() conversation.Recognition {
	shown := x.r.WithContext(context.WithoutCancel(x.r.Context()))
	shown.Body, shown.Header = nil, x.r.Header.Clone()
	if x.authorization != nil {
		shown.Header["Authorization"] = x.authorization
	}
	r := &recognition{h: x.h, agent: x.agent, shown: shown, ctx: context.WithoutCancel(x.ctx)}
	r.seen.Store(x.since)
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
