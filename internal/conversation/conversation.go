// Package conversation decides what happens to the messages of a client, and answers those
// that the gate answers itself. It knows neither HTTP nor pipes: a transport passes each
// message on, together with a [Client] and a [Reply].
//
//	r := gateway.Begin(client, reply, message)
//	defer r.End()
//	plan := r.Plan(ctx)
//	if plan.Answer != nil {
//		return plan.Answer(ctx)
//	}
//	// forward plan.Body; r.Expects and r.Filter decide what the client gets of the answer
//
// A [Gateway] has the state that all requests share. A [Request] has a sender (the client: its tasks,
// its host, the texts sealed for it), a responder (makes and sends answers) and registrations
// (the ids that the gate answers itself, and the calls that the client can cancel). A [Plan] is
// a closure over the part that does the work: policyCheck asks policy, hold keeps calls for
// approval, waiting keeps requests open, inviter invites users to decide, canceller withdraws
// calls, taskRequest and taskList answer requests about tasks, lists rewrites lists, batch
// plans several messages, [Subscriber] and [Watch] send notifications.
package conversation

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// The reasons why a request ends without a complete answer. The methods of [Reply] and
// [Stream] that write return them.
var (
	ErrGone      = errors.New("the client is gone")
	ErrBrokenOff = errors.New("the answer was broken off")
)

// A Client is the sender of a message, as its transport knows it.
type Client interface {
	Origin

	// Identity returns the client in the session that its message belongs to.
	Identity() catalog.Client
	// JoiningIdentity returns the client in the session that the upstream begins with its
	// answer.
	JoiningIdentity() catalog.Client
	// Caller makes requests to the upstream on behalf of the client.
	Caller() *upstream.Caller
	// Authentication tells whether the client is still authenticated.
	Authentication() Authentication
	// Transport returns the additions of the transport to the message.
	Transport() Transport
}

// A Transport has the additions of a transport to a message.
type Transport struct {
	Header  http.Header // of HTTP; some headers may repeat arguments of the message
	Version string      // the protocol version that the transport names or has negotiated; may be empty
	Pipe    bool        // all messages share one pipe, so only a notification cancels a request
}

// An Origin tells where a message comes from.
type Origin interface {
	// Network returns the network of the client. Clients without an identity share one
	// limit for their whole network.
	Network() string
	// Local reports whether a program of the gate's user on this machine sent the message,
	// without credentials and without proxying for another client.
	Local() bool
}

// An Authentication is the basis on which a client was authenticated.
type Authentication interface {
	// Valid reports whether the current configuration still authenticates the client as the
	// same agent.
	Valid() bool
	// Changed returns a channel that is closed when the result of Valid may have changed.
	Changed() <-chan struct{}
}

// A Status is the kind of an answer of the gate, for transports that show it outside of the
// message.
type Status uint8

// The statuses.
const (
	Answered      Status = iota
	BadRequest           // the client must change its request
	UnknownMethod        // the method does not exist
	Unavailable          // the gate cannot answer at the moment
)

// An Envelope has the properties of a message besides its text and its sender.
type Envelope interface {
	// Context returns the context of the message. It ends soon after the client has left.
	Context() context.Context
	// Gone reports whether the client has left. It may know that earlier than the context.
	Gone() bool
	// Correlation returns the correlation id of the message, for logs and answers.
	Correlation() string
	// Trace returns the span of the message as a traceparent, or "".
	Trace() string
	// NoteProblem records the problem in an answer for metrics and logs.
	NoteProblem(problem *mcp.Problem)
	// BeginWaiting moves the message from the limit on active messages to that on waiting
	// messages.
	BeginWaiting() error
}

// A Reply answers one message, by one call of Refuse, Fail, Answer or Compose. Errors of
// writing are [ErrGone] and [ErrBrokenOff].
type Reply interface {
	Envelope

	// Refuse answers with a problem.
	Refuse(problem *mcp.Problem) error
	// Fail answers with an error that has no form in the protocol.
	Fail(err error) error
	// Answer sends a message. If it is nil, Answer acknowledges a message that needs no
	// answer.
	Answer(status Status, message []byte) error
	// Compose sends an answer of any size, which write produces. It calls note before the
	// client can have read the whole answer. It returns the error of write if nothing was sent.
	Compose(write func(io.Writer) error, note func()) error

	// Wait returns a stream for an answer that takes time. The request can still be refused
	// until the first call of a method that sends.
	Wait() (Stream, error)
	// Listen returns a stream of messages without an end. The client sees it, and messages can
	// be inserted, after the first call of Send.
	Listen() Stream
}

// A Stream is an answer that takes time.
type Stream interface { //nolint:interfacebloat // all of it is the one way to answer slowly
	// CanSendEarly reports whether messages can be sent before the answer.
	CanSendEarly() bool
	// Started reports whether something was sent, so that the request can no longer be
	// refused. It is called after Close.
	Started() bool
	// Send sends a message before the answer, or only begins the stream if it is nil.
	Send(message []byte) error
	// SetResumePoint sends the event id with which a client can resume this stream.
	SetResumePoint(id string) error
	// Heartbeat shows that the gate is alive, and reports whether the client is still there.
	// It is safe for concurrent use.
	Heartbeat(why string) bool
	// Insert writes a message between two others, and reports whether the client is still
	// there. It is safe for concurrent use.
	Insert(write func(io.Writer) error) bool
	// Compose ends the stream with an answer; see [Reply].
	Compose(write func(io.Writer) error, note func()) error
	// Close ends inserting.
	Close()
}
