package httpclient

import (
	"context"
	"io"
	"net/http"

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

// A Use is what a request is for. It decides which connection the request takes,
// and how long the server may be silent.
type Use uint8

// The uses.
const (
	Plain  Use = iota
	Call       // a call of a tool
	Stream     // a stream without an end of its own
	held       // a held call: limited by its context alone, on a connection of its own
)
