package oauth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/publicip"
)

// Limits of requests to MCP servers and authorization servers about OAuth.
const (
	requestTimeout = 15 * time.Second
	maxAnswer      = 1 << 20
	maxRedirects   = 3
)

// HTTPClient returns a client for requests about OAuth. An MCP server can name any address in its metadata, so
// only the hosts of the trusted URLs may have private addresses; this machine is one host. Redirects stay at one
// origin, and answers are short. Roots are the trusted authorities; nil means those of the system.
func HTTPClient(roots *tls.Config, trusted ...string) *http.Client {
	known := hostsOf(trusted)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			d := net.Dialer{Timeout: requestTimeout}
			//mutate:true TestHostileMetadata an MCP server makes the gate ask private addresses
			if !known.has(host) {
				d.Control = publicip.Only
			}
			conn, err := d.DialContext(ctx, network, address)
			if errors.Is(err, publicip.ErrPrivate) {
				err = fmt.Errorf("%s has a private address; if that is right, configure it as the issuer (auth.oauth.issuer, or --issuer)", host)
			}
			return conn, err
		},
		TLSHandshakeTimeout: requestTimeout, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
	}
	if roots != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: roots.RootCAs, MinVersion: roots.MinVersion}
	}
	return &http.Client{
		Timeout: requestTimeout, Transport: limited{transport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			//mutate:swap "r.URL.Host != via[0].URL.Host" "false" TestHostileMetadata metadata redirects the gate to other hosts
			if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme || r.Method != http.MethodGet || len(via) > maxRedirects {
				return errors.New("it redirects to another place")
			}
			return nil
		},
	}
}

// hosts may have private addresses.
type hosts []string

func hostsOf(urls []string) (all hosts) {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			all = append(all, u.Hostname())
		}
	}
	return all
}

// has reports whether a host is among the others. This machine has several names.
func (h hosts) has(host string) bool {
	return slices.Contains(h, host) || localhost.Is(host) && slices.ContainsFunc(h, localhost.Is)
}

// limited limits the length of answers.
type limited struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	// oauthex checks only the addresses that it gets, not those that a server redirects to.
	if r.URL.Scheme != "https" && !localhost.Is(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s://%s must use https", r.URL.Scheme, r.URL.Host)
	}
	res, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = limitedBody{Reader: io.LimitReader(res.Body, maxAnswer), Closer: res.Body}
	return res, nil
}

// A limitedBody is a body of limited length.
type limitedBody struct {
	io.Reader
	io.Closer
}
