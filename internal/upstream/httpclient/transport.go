package httpclient

import (
	"context"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A Peer is the client for which a request is made, and the use of the request.
type Peer struct {
	Use       Use
	Principal string           // empty for an anonymous client
	Owner     string           // the owner of the connections that the request may use; see [catalog.OwnerIn]
	Share     admission.Client // the client whose limits the request counts to; zero for requests of the gate
}

// A Transport reaches a server that is not reached over a network.
type Transport interface {
	// RoundTrip sends a request of by, as [http.RoundTripper] does. Before the first byte,
	// it calls GotConn of the trace in r's context.
	RoundTrip(r *http.Request, by Peer) (*http.Response, error)
	// Reach returns an error if the server certainly cannot be reached.
	Reach(ctx context.Context) error
}

// An endingBody cancels the context of its request when it is closed.
type endingBody struct {
	io.ReadCloser

	end context.CancelFunc
}

// Close implements [io.Closer].
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// A Use is the purpose of a request. It selects the connection and the timeouts.
type Use uint8

// The uses.
const (
	Plain  Use = iota
	Call       // a tool call
	Stream     // an open-ended event stream
	Held       // a held call, on a new connection and limited by its context only
)
