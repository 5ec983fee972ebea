package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

const (
	metadataFresh   = 5 * time.Minute  // how long the metadata of a server counts
	metadataPause   = 10 * time.Second // how long a failure to read it counts
	metadataTimeout = 10 * time.Second // for reading it
)

// A Protection tells where agents get tokens for an MCP server to which their own tokens are forwarded. It is safe
// for concurrent use.
type Protection struct {
	client *Client
	log    *slog.Logger

	challenge atomic.Pointer[challenge] // the last one, or nil

	mu     sync.Mutex // held while the metadata is read
	after  *challenge // the last challenge then
	known  Metadata
	failed error
	until  time.Time // then the metadata is read again
}

// A challenge is that of a server that wants another token.
type challenge struct{ metadata string } // where the server says that its metadata is; may be empty

// Metadata is what an MCP server says about tokens for it.
type Metadata struct {
	Issuers []string // of the tokens
	Scopes  []string // that the server supports
}

// NewProtection returns the protection of the server that is the resource of c.
func NewProtection(c *Client, log *slog.Logger) *Protection { return &Protection{client: c, log: log} }

// Challenged takes note of the WWW-Authenticate headers of the server.
func (p *Protection) Challenged(headers []string) {
	if asked := challengeIn(headers); asked != nil && len(asked["resource_metadata"]) <= maxURL {
		p.challenge.Store(&challenge{asked["resource_metadata"]})
	}
}

// Metadata returns the metadata of the server. The error is [ErrNoOAuth] if it has none. It goes on if ctx is done,
// because others may wait for the answer.
func (p *Protection) Metadata(ctx context.Context) (Metadata, error) {
	after := p.challenge.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	//mutate:swap "p.after == after || " "true || " TestProtectionIsReadAfterChallenge agents are sent to an authorization server that the upstream has left
	counts := p.after == after || p.failed != nil && p.after != nil && after != nil && *p.after == *after
	if counts && p.client.Now().Before(p.until) {
		return p.known, p.failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), metadataTimeout)
	defer cancel()
	p.after, p.until = after, p.client.Now().Add(metadataPause)
	if p.known, p.failed = p.client.metadata(ctx, after); p.failed == nil {
		p.until = p.client.Now().Add(metadataFresh)
	} else if !errors.Is(p.failed, ErrNoOAuth) {
		p.log.WarnContext(ctx, "agents cannot sign in: the metadata of the upstream cannot be read", "err", p.failed)
	}
	return p.known, p.failed
}

// metadata reads the metadata of the MCP server after a challenge, which may be nil.
func (c *Client) metadata(ctx context.Context, after *challenge) (Metadata, error) {
	named := ""
	if after != nil {
		named = after.metadata
	}
	about, err := c.resourceMetadata(ctx, named)
	if err != nil {
		return Metadata{}, err
	}
	if about.assumed && after == nil { // a server of 2025-03-26 that wants a token need not have any metadata
		server, err := auth.GetAuthServerMetadata(ctx, about.AuthorizationServers[0], c.HTTP)
		if err != nil {
			return Metadata{}, fmt.Errorf("read the metadata of %s: %w", about.AuthorizationServers[0], withoutURL(err))
		}
		if server == nil {
			return Metadata{}, ErrNoOAuth
		}
	}
	for _, issuer := range about.AuthorizationServers {
		//mutate:false TestProtectionRefuses an upstream makes agents open any kind of URL
		if !isSafe(issuer) {
			return Metadata{}, fmt.Errorf("%s names an authorization server that is no https URL: %s", c.place(), safetext.Line(issuer, 200))
		}
	}
	return Metadata{Issuers: about.AuthorizationServers, Scopes: about.ScopesSupported}, nil
}
