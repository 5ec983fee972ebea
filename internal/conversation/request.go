// Package conversation is the gate's side of what one client says: it takes a
// message and a [Reply], and answers by the gate's own means or plans what the
// transport forwards. It knows the faces of a held call, requests about tasks,
// batches, lists and notifications, and neither HTTP nor pipes.
package conversation

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Why a request can end without an answer, or in the middle of one. Transports
// return these from every method of [Reply] and [Stream] that writes.
var (
	ErrGone      = errors.New("the client is gone")
	ErrBrokenOff = errors.New("the answer was broken off")
)

// A Client is the sender of a message, as its transport knows it.
type Client interface {
	Origin

	// From returns who the client is, in the session that its message belongs to.
	From() gate.Client
	// Joining returns who the client is in the session that the upstream gives it
	// with its answer.
	Joining() gate.Client
	// Caller returns what makes requests to the upstream in the client's name.
	Caller() *upstream.Caller
	// Recognition returns what knows whether the client is still who it was.
	Recognition() Recognition
	// Transport returns what the transport adds to the message.
	Transport() Transport
}

// A Transport is what a transport adds to a message.
type Transport struct {
	Header  http.Header // some of which may repeat arguments of the message; nil if there are no headers
	Version string      // the protocol version that the transport names, or that was agreed on; may be empty
	Pipe    bool        // all messages share one pipe: a request is cancelled by a notification, never by closing it
}

// An Origin is the place from which a message comes.
type Origin interface {
	// Network returns the network of the client. Clients without an identity share
	// what they may use with all of their network.
	Network() string
	// Local reports whether a program of the gate's own user on this machine sent
	// the message, without credentials and not in the name of somebody else.
	Local() bool
}

// A Recognition is what the gate goes by when it takes a client for an agent.
type Recognition interface {
	// Valid reports whether the gate, as it is configured now, takes the client
	// for the same agent as it did.
	Valid() bool
	// Changed returns a channel that is closed when Valid may return something
	// else than it did last.
	Changed() <-chan struct{}
}

// A Status says how an answer of the gate's own went, for transports that show
// that outside the message.
type Status uint8

// The statuses.
const (
	Answered      Status = iota
	BadRequest           // the client must ask in another way
	UnknownMethod        // there is no such method
	NotNow               // the gate cannot answer for the time being
)

// An Envelope is what a transport knows of a message besides its text and its
// sender.
type Envelope interface {
	// Context returns the context of the message. It ends when the client leaves, or a moment
	// later.
	Context() context.Context
	// Gone reports whether the client has left, as far as that can be known at once. That
	// the context has not ended says only that nobody has seen the client leave.
	Gone() bool
	// Correlation returns the name under which logs and answers speak of the
	// message.
	Correlation() string
	// Trace returns the span of the message as a traceparent; empty if it has none.
	Trace() string
	// Note notes the problem in an answer, for metrics and logs.
	Note(problem *wire.Problem)
	// Park makes room for messages that are being served, since this one is going
	// to wait.
	Park() error
}

// A Reply is how the gate answers one message. After one of Refuse, Fail, Answer
// and Compose has been called there is nothing left to say. Errors of writing are
// [ErrGone] and [ErrBrokenOff].
type Reply interface {
	Envelope

	// Refuse answers with a problem.
	Refuse(problem *wire.Problem) error
	// Fail answers with an error that has no place in the protocol.
	Fail(err error) error
	// Answer sends a message. If that is nil, the client learns that what it sent
	// needs no answer.
	Answer(status Status, message []byte) error
	// Compose answers with what write writes, of any size, and calls note before
	// the client can have read all of it. The error of write is returned if nothing
	// has been sent by then.
	Compose(write func(io.Writer) error, note func()) error

	// Wait begins an answer for which the client has to wait.
	Wait() (Stream, error)
	// Listen returns a stream of messages that has no end of its own. The client
	// sees it, and others can insert messages, from the first call of Send on.
	Listen() Stream
}

// A Stream is an answer that takes its time.
type Stream interface {
	// Early reports whether messages can be sent before the answer.
	Early() bool
	// Send sends a message that is not the answer, or nothing if it is nil.
	Send(message []byte) error
	// Mark sends the client how to come back to this stream if it loses it.
	Mark(place string) error
	// Beat shows that the gate is still there, from any goroutine, and reports
	// whether the client is.
	Beat(why string) bool
	// Insert has a message written between two others, from any goroutine, and
	// reports whether the client is still there.
	Insert(write func(io.Writer) error) bool
	// Compose ends the stream with an answer, as [Reply] does.
	Compose(write func(io.Writer) error, note func()) error
	// Close makes sure that nothing more is inserted.
	Close()
}

// A Request is what a client sent, a message or a batch, on its way through the
// gate.
type Request struct {
	responder

	packet  jsonrpc.Packet
	body    []byte
	only    [1][]byte     // the room of ids if there is one
	ids     [][]byte      // of all requests that the upstream, or the gate in its place, is to answer
	listens bool          // the answer is a stream without an end of its own
	asked   jsonrpc.Value // what a client that listens wants to hear of
	unasked bool          // the client opened a stream on which the upstream speaks unasked
	resumed bool          // that stream may have been another request's

	ends  ending
	state *ending
}

// An ending is what the end of a request undoes, for all parts of a batch.
type ending struct {
	answered func()   // see claimAnswer
	holds    []func() // see expect
}

// A Message is what a transport received.
type Message struct {
	Packet jsonrpc.Packet
	Body   []byte // as it came
	Era    wire.Era
}

// Begin takes what a client sent. The caller calls [Request.End] in the end.
func (h *Hub) Begin(c Client, reply Reply, m Message) *Request {
	r := &Request{responder: responder{sender: sender{hub: h, client: c, reply: reply}, era: m.Era}, packet: m.Packet, body: m.Body}
	r.state = &r.ends
	if m.Packet.Batch || len(m.Packet.Messages) == 0 {
		return r
	}
	one := &m.Packet.Messages[0]
	if one.Kind != jsonrpc.Request {
		return r
	}
	r.only[0] = one.ID.Bytes
	r.id, r.ids = r.only[0], r.only[:]
	if r.listens = one.Method == methodListen; r.listens {
		r.asked = one.Params.Member("notifications")
	}
	return r
}

// BeginStream takes a client that opens a stream on which the upstream speaks
// unasked. If the client takes up one that it lost, the answer to its request may
// come on it.
func (h *Hub) BeginStream(c Client, reply Reply, resumed bool) *Request {
	r := h.Begin(c, reply, Message{})
	r.listens, r.unasked, r.resumed = true, true, resumed
	return r
}

// Resumed reports whether the client takes up a stream that it lost.
func (r *Request) Resumed() bool { return r.resumed }

// End forgets the request.
func (r *Request) End() {
	if r.state.answered != nil {
		r.release(r.state.answered)
	}
	for _, remove := range r.state.holds {
		r.release(remove)
	}
}

// ID returns the id of the request that awaits an answer, nil if none does.
func (r *Request) ID() []byte { return r.id }

// Asks reports whether any of what goes to the upstream awaits an answer.
func (r *Request) Asks() bool { return len(r.ids) > 0 }

// Listens reports whether the answer is a stream without an end of its own.
func (r *Request) Listens() bool { return r.listens }

// Keep makes the request independent of the body that it came in, and returns how
// many bytes of that it keeps.
func (r *Request) Keep() int {
	r.id, r.asked = append([]byte(nil), r.id...), r.asked.Clone()
	kept := len(r.id) + len(r.asked.Bytes)
	for i, id := range r.ids {
		r.ids[i] = append([]byte(nil), id...)
		kept += len(id)
	}
	r.body, r.packet = nil, jsonrpc.Packet{}
	return kept
}

// part returns the request as if it were the one of its batch with the given id.
func (r *Request) part(id []byte) *Request {
	one := *r
	one.id = id
	return &one
}

// said returns what m says of its client: initialize in its params, and modern requests in
// their metadata.
func (s *sender) said(m *jsonrpc.Message) policy.Session {
	info, protocol := m.Params.Meta.Member(wire.MetaClientInfo), m.Params.Meta.Member(wire.MetaVersion)
	if m.Method == "initialize" {
		info, protocol = m.Params.Member("clientInfo"), m.Params.Member("protocolVersion")
	}
	var said policy.Session
	said.Client, _ = info.Member("name").Text()
	said.Version, _ = info.Member("version").Text()
	var named bool
	if said.Protocol, named = protocol.Text(); !named {
		said.Protocol = s.client.Transport().Version
	}
	return said
}

// declaresTasks reports whether a modern request says that its sender knows
// tasks.
func declaresTasks(m *jsonrpc.Message) bool {
	return m.Params.Meta.Member(wire.MetaCapabilities).Member("extensions").Member(wire.ExtensionTasks).IsObject()
}

// join returns the texts one after the other.
func join(texts ...string) []byte { return []byte(strings.Join(texts, "")) }

// toUpstreamTask returns the body as it goes to the upstream if it is a message
// that belongs to one of the client's tasks: the upstream knows that by another
// name, or does not know it, and then the message belongs to no task.
func (r *Request) toUpstreamTask(ctx context.Context, received *jsonrpc.Message) []byte {
	id, _ := metaOf(received).Member(mcptask.MetaRelatedTask).Member("taskId").Text()
	if !task.ID(id).Own() {
		return r.body
	}
	m, err := r.read(received.Raw)
	if err != nil {
		return r.body
	}
	t, err := r.hub.cfg.Desk.Get(ctx, r.ref(task.ID(id)))
	if err == nil && t.Execution != nil && t.Execution.UpstreamTask != "" {
		return upstream.RenameTask(m, id, t.Execution.UpstreamTask).Raw
	}
	var patch jsonrpc.Patch
	patch.Replace(metaOf(m), metaOf(m).Without(mcptask.MetaRelatedTask))
	return patch.Apply(m.Raw)
}

// metaOf returns the metadata of a message.
func metaOf(m *jsonrpc.Message) jsonrpc.Value {
	if m.Kind == jsonrpc.Response {
		return m.Result.Member("_meta")
	}
	return m.Params.Meta
}
