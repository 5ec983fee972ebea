package httpclient

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// Sessions returns the registry of the server's sessions.
func (c *Client) Sessions() *upstream.Sessions { return c.cfg.Sessions }

// BeginSession remembers that the server has begun a session for a principal, unless the transport
// begins the sessions itself.
func (c *Client) BeginSession(ctx context.Context, principal, id string) {
	if c.cfg.Transport == nil {
		c.cfg.Sessions.Begin(ctx, c.Session(principal, id), []byte("begun"))
	}
}

// Session returns the session of a principal with an id.
func (c *Client) Session(principal, id string) upstream.Session {
	return upstream.Session{Upstream: c.cfg.Name, Principal: principal, ID: id}
}
