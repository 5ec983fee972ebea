package httpclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
)

// Reach connects to the server and asks it nothing. The error says why the
// server cannot be reached.
func (c *Client) Reach(ctx context.Context) error {
	if c.cfg.Transport != nil {
		return c.cfg.Transport.Reach(ctx)
	}
	target := c.cfg.URL
	port := cmp.Or(target.Port(), map[string]string{"https": "443"}[target.Scheme], "80")
	conn, err := c.transport.DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if target.Scheme != "https" {
		return nil
	}
	return tls.Client(conn, secured(c.cfg.TLS, target.Hostname())).HandshakeContext(ctx)
}
