package upstream

import (
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Line is a line that a server wrote to its client.
type Line struct {
	Text   []byte         // without the line end
	Packet jsonrpc.Packet // the parsed messages; empty if Err is set
	Err    error          // why Text is not valid
}

// ReadLine parses a line of a server. An array may have any number of responses.
func ReadLine(text []byte, depth int) Line {
	packet, err := jsonrpc.Parse(text, jsonrpc.Limits{Depth: depth, Batch: MaxWhole})
	return Line{Text: text, Packet: packet, Err: err}
}

// A Forwarded is a message of a client at a pipe, on its way to the server.
type Forwarded struct {
	Packet      jsonrpc.Packet
	Body        []byte
	Credentials Credentials

	// Expect is called before the first byte is sent and notes that an answer is pending.
	// It returns false if the message must not be sent. It may be nil.
	Expect func() bool
	// Forget undoes Expect if nothing was sent. It returns false if the client has been
	// answered meanwhile. It may be nil.
	Forget func() bool
}

// A Receiver gets the messages that a server sends to a client at a pipe. Only one goroutine at a
// time calls its methods.
type Receiver interface {
	// Received gets a line.
	Received(Line)
	// Unanswered reports that the server will not answer the requests with these ids, or
	// any pending request if ids is nil.
	Unanswered(ids [][]byte, problem *mcp.Problem)
}

// ProblemOf returns the problem that err is for a client at a pipe.
func ProblemOf(err error) *mcp.Problem {
	if known, ok := errors.AsType[*mcp.Problem](err); ok {
		return known
	}
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Cause: err}
}

// TooLarge returns the problem of a request whose answer is too large for a client at a pipe.
func TooLarge() *mcp.Problem {
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server's answer is larger than the gate passes on (a sixteenth of limits.max_result)"}
}
