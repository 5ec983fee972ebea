package conversation

import (
	"bytes"
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A Request is one message or one batch of a client. [Request.Plan] decides what happens to it.
type Request struct {
	gateway    *Gateway
	sender     sender
	out        responder
	registered registrations

	packet  jsonrpc.Packet
	body    []byte
	only    [1][]byte     // backs ids for a single message
	ids     [][]byte      // of all requests that await an answer; for a batch, of those that are forwarded
	listens bool          // the answer is a stream without an end
	asked   jsonrpc.Value // the notifications that a modern subscriber asks for
	unasked bool          // the client opened a stream for messages of the upstream
	resumed bool          // that stream may belong to another request

	judged []callrecord.Entry // what policy judged, except held calls, which are recorded when they are held
}

// A Message is a message that a transport has received.
type Message struct {
	Packet jsonrpc.Packet
	Body   []byte // as received
	Era    mcp.Era
}

// Begin begins a request. The caller must call [Request.End] at its end.
func (g *Gateway) Begin(c Client, reply Reply, m Message) *Request {
	r := &Request{
		gateway: g,
		sender:  sender{gateway: g, client: c, envelope: reply},
		out:     responder{gateway: g, reply: reply, era: m.Era},
		packet:  m.Packet, body: m.Body,
	}
	r.registered.sender = &r.sender
	if m.Packet.Batch {
		for i := range m.Packet.Messages {
			r.registered.ids = append(r.registered.ids, requestID(&m.Packet.Messages[i])...)
		}
		return r
	}
	//mutate:swap " || m.Packet.Messages[0].Kind != jsonrpc.Request" "" internal/mcphttp.TestListenNotificationDoesNotSubscribe a notification opens a subscription
	if len(m.Packet.Messages) == 0 || m.Packet.Messages[0].Kind != jsonrpc.Request {
		return r
	}
	one := &m.Packet.Messages[0]
	r.only[0] = one.ID.Bytes
	r.out.id, r.ids, r.registered.ids = r.only[0], r.only[:], r.only[:]
	if r.listens = one.Method == mcpname.SubscriptionsListen; r.listens {
		r.asked = one.Params.Member("notifications")
	}
	return r
}

// BeginStream begins a request that opens a stream for messages of the upstream. If the client
// resumes a stream that it lost, the answer to its request may come on it.
func (g *Gateway) BeginStream(c Client, reply Reply, resumed bool) *Request {
	r := g.Begin(c, reply, Message{})
	r.listens, r.unasked, r.resumed = true, true, resumed
	return r
}

// ID returns the id of the request that awaits an answer, or nil.
func (r *Request) ID() []byte { return r.out.id }

// ExpectsAnswer reports whether the forwarded messages include a request.
func (r *Request) ExpectsAnswer() bool { return len(r.ids) > 0 }

// Listens reports whether the answer is a stream without an end.
func (r *Request) Listens() bool { return r.listens }

// Resumed reports whether the client resumes a stream that it lost.
func (r *Request) Resumed() bool { return r.resumed }

// AnswerError answers with an error.
func (r *Request) AnswerError(e *jsonrpc.Error) error { return r.out.answerError(e) }

// EnterWaiting counts the request as waiting, or returns an error if a limit is reached. The
// caller calls leave when the wait ends.
func (r *Request) EnterWaiting() (leave func(), err error) { return enterWaiting(&r.sender) }

// Detach releases the body of the request, and returns the number of bytes that the request still
// keeps.
func (r *Request) Detach() int {
	r.out.id, r.asked = bytes.Clone(r.out.id), r.asked.Clone()
	kept := len(r.out.id) + len(r.asked.Bytes)
	for i, id := range r.ids {
		r.ids[i] = bytes.Clone(id)
		kept += len(id)
	}
	r.body, r.packet = nil, jsonrpc.Packet{}
	return kept
}

// End removes the registrations of the request.
func (r *Request) End() { r.registered.end() }

// registrations are the entries of one request in the tables of the gateway: requests that the
// gate answers itself, and held calls that the client can cancel.
type registrations struct {
	sender *sender
	ids    [][]byte // of all requests in the message

	answered func()   // set by reserve
	held     []func() // set by register
}

// reserve registers that the gate itself answers the requests, so that the upstream must not. It
// is safe to repeat.
func (o *registrations) reserve() {
	if o.answered == nil {
		o.answered = o.sender.gateway.answering.add(o.sender.peer(), o.ids)
	}
}

// register lets the client cancel the call in m from now on, even before the store has it. The
// returned context ends when no request waits for the call any more.
func (o *registrations) register(ctx context.Context, m *jsonrpc.Message, ids ...[]byte) (context.Context, *heldRequest) {
	host, _ := o.sender.host(m)
	ctx, stop := context.WithCancel(ctx)
	held := &heldRequest{host: host, since: time.Now(), stop: stop, stored: make(chan struct{})}
	for _, id := range ids {
		o.held = append(o.held, o.sender.gateway.held.add(o.sender.peer(), id, held))
	}
	return ctx, held
}

// cancelGrace is how long a held request can still be cancelled after its client has
// disconnected. Some clients close their request before they cancel it.
const cancelGrace = 10 * time.Second

// end removes all entries, after a grace period if the client is gone.
func (o *registrations) end() {
	if o.answered != nil {
		o.release(o.answered)
	}
	for _, remove := range o.held {
		o.release(remove)
	}
}

func (o *registrations) release(remove func()) {
	if o.sender.gone() {
		time.AfterFunc(cancelGrace, remove)
	} else {
		remove()
	}
}
