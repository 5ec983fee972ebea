package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
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
	maxMetadataURL  = 2 << 10
)

// A Protection tells where agents get tokens for an MCP server to which their own tokens are forwarded. It is safe
// for concurrent use.
type Protection struct {
	client *Client
	log    *slog.Logger

	named atomic.Pointer[string] // where the server says that its metadata is; may be nil

	mu     sync.Mutex // held while the metadata is read
	asked  string     // the value of named then
	known  Metadata
	failed error
	until  time.Time // then the metadata is read again
}

// Metadata is what an MCP server says about tokens for it.
type Metadata struct {
	Issuers []string // of the tokens
	Scopes  []string // that the server supports
}

// NewProtection returns the protection of the server that is the resource of c.
func NewProtection(c *Client, log *slog.Logger) *Protection { return &Protection{client: c, log: log} }

// Challenged takes note of the WWW-Authenticate headers of the server.
func (p *Protection) Challenged(headers []string) {
	if at := challengeIn(headers)["resource_metadata"]; at != "" && len(at) <= maxMetadataURL {
		p.named.Store(&at)
	}
}

// Metadata returns the metadata of the server. The error is [ErrNoOAuth] if it has none. It goes on if ctx is done,
// because others may wait for the answer.
func (p *Protection) Metadata(ctx context.Context) (Metadata, error) {
	named := ""
	if at := p.named.Load(); at != nil {
		named = *at
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == named && p.client.Now().Before(p.until) {
		return p.known, p.failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), metadataTimeout)
	defer cancel()
	p.asked, p.until = named, p.client.Now().Add(metadataPause)
	if p.known, p.failed = p.client.metadata(ctx, named); p.failed == nil {
		p.until = p.client.Now().Add(metadataFresh)
	} else if !errors.Is(p.failed, ErrNoOAuth) {
		p.log.WarnContext(ctx, "agents cannot sign in: the metadata of the upstream cannot be read", "err", p.failed)
	}
	return p.known, p.failed
}

// metadata reads the metadata of the MCP server. Named is where the server says that it is; it may be empty.
func (c *Client) metadata(ctx context.Context, named string) (Metadata, error) {
	about, err := c.resourceMetadata(ctx, named)
	if err != nil {
		return Metadata{}, err
	}
	if about.assumed {
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
		if u, err := url.Parse(issuer); err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !IsLoopback(u.Hostname())) {
			return Metadata{}, fmt.Errorf("%s names an authorization server that is no https URL: %s", c.Resource, safetext.Text(issuer, 200))
		}
	}
	return Metadata{Issuers: about.AuthorizationServers, Scopes: about.ScopesSupported}, nil
}
