package upstream

import (
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Line is what a server said to the client of a pipe.
type Line struct {
	Text   []byte         // as it came, without the end of the line
	Packet jsonrpc.Packet // what Text says; empty if the gate cannot read it
	Err    error          // why the gate cannot read it
}

// ReadLine reads what a server said. A server may put as many responses into an
// array as it likes.
func ReadLine(text []byte, depth int) Line {
	packet, err := jsonrpc.Parse(text, jsonrpc.Limits{Depth: depth, Batch: MaxWhole})
	return Line{Text: text, Packet: packet, Err: err}
}

// A Forwarded is what the client of a pipe says to the server.
type Forwarded struct {
	Packet jsonrpc.Packet
	Body   []byte
	As     Credentials

	// Expect notes, before the first byte is sent, that the server is to answer. It
	// reports false if the message must not be sent.
	Expect func() bool
	// Forget takes that back after nothing was sent. It reports false if the client
	// has been answered meanwhile.
	Forget func() bool
}

// A Receiver takes what a server says to the client of a pipe. Its methods are
// called by one goroutine at a time.
type Receiver interface {
	// Received takes a line.
	Received(Line)
	// Unanswered says that the server answers none of the requests with these ids,
	// or none of all that it was sent if ids is nil.
	Unanswered(ids [][]byte, problem *wire.Problem)
}
