package httpclient

import (
	"context"
	"crypto/tls"
)

// Reach connects to the server without sending a request. The error says why the server cannot be
// reached.
func (c *Client) Reach(ctx context.Context) error {
	if c.cfg.Transport != nil {
		return c.cfg.Transport.Reach(ctx)
	}
	conn, err := c.dial(ctx, "tcp", c.address.dialed)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if c.cfg.URL.Scheme != "https" {
		return nil
	}
	return tls.Client(conn, tlsConfig(c.cfg.TLS, c.address.name)).HandshakeContext(ctx)
}
