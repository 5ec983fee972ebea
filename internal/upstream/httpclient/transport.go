package httpclient

import (
	"context"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A Peer is the client in whose name a request is made, and what it is for.
type Peer struct {
	Use       Use
	Principal string           // who it is; empty for an anonymous client
	Room      admission.Client // whose share the request counts to; the zero value if it is the gate's own
}

// A Transport reaches a server that is not at the other end of a network.
type Transport interface {
	// RoundTrip is that of [http.RoundTripper] for the client by. Before it sends
	// the first byte, it calls GotConn of the trace in r's context.
	RoundTrip(r *http.Request, by Peer) (*http.Response, error)
	// Reach returns why the server cannot be reached, if that is known.
	Reach(ctx context.Context) error
}

// roundTrip sends a request, and waits for the headers of the answer.
func (c *Client) roundTrip(r *http.Request, by Peer) (*http.Response, error) {
	if c.cfg.Transport == nil {
		return c.transportFor(by.Use).RoundTrip(r)
	}
	if by.Use == held || by.Use == Stream {
		return c.cfg.Transport.RoundTrip(r, by)
	}
	ctx, cancel := context.WithCancel(r.Context())
	slow := time.AfterFunc(c.Silence(by.Use), cancel)
	resp, err := c.cfg.Transport.RoundTrip(r.WithContext(ctx), by)
	inTime := slow.Stop()
	if err == nil && inTime {
		resp.Body = &endingBody{ReadCloser: resp.Body, end: cancel}
		return resp, nil
	}
	cancel()
	if err == nil {
		_ = resp.Body.Close()
	}
	if !inTime {
		return nil, os.ErrDeadlineExceeded
	}
	return nil, err
}

// An endingBody ends the context of its request when it is closed.
type endingBody struct {
	io.ReadCloser

	end context.CancelFunc
}

// Close implements [io.Closer].
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
