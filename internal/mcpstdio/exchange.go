package mcpstdio

import (
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// An exchange is one message or batch of the client, and its answer.
type exchange struct {
	a      *Agent
	packet jsonrpc.Packet
	wait   silenceLimit // for the server's answer
	reply  *reply
}

func (a *Agent) newExchange(ctx context.Context) *exchange {
	return &exchange{a: a, reply: a.newReply(ctx)}
}

// read parses a message, and reports whether it must be served.
func (x *exchange) read(text []byte) bool {
	packet, err := jsonrpc.Parse(text, x.a.cfg.Limits.Parse)
	if err != nil {
		x.safely(func() error { return x.refuseUnread(err) })
		return false
	}
	x.packet, x.reply.batch = packet, packet.Batch
	account := &x.reply.account
	account.Describe(packet)
	account.Received(x.a.client.from.Upstream)
	account.Context.Context = account.StartSpan(account.Context.Context, packet, tracing.Parent{})
	account.Era, err = mcp.ClassifyBare(packet, x.a.client.agreed())
	x.reply.request = x.a.cfg.Gateway.Begin(&x.a.client, x.reply, conversation.Message{Packet: packet, Body: text, Era: account.Era})
	if err != nil {
		x.safely(func() error { return x.reply.Fail(err) })
		return false
	}
	return true
}

// isResponse reports whether the message answers a request of the server.
func (x *exchange) isResponse() bool {
	return !x.packet.Batch && x.packet.Messages[0].Kind == jsonrpc.Response
}

// refuseUnread refuses a line that is not a valid message.
func (x *exchange) refuseUnread(err error) error {
	unread, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		return x.reply.Fail(err)
	}
	return x.reply.refuseID(mcp.FromParse(unread), unread.ID.Bytes)
}

// serve plans the message, and answers or forwards it.
func (x *exchange) serve() error {
	if target := x.cancels(); target != nil {
		x.a.running.Go(func() { x.safely(func() error { return x.cancelOwn(target) }) })
		return errLater
	}
	x.reply.limit()
	plan := x.reply.request.Plan(x.reply.account.Context)
	if plan.Answer == nil {
		f := forwarding{a: x.a, x: x, packet: x.packet, reply: x.reply, plan: plan}
		return f.run()
	}
	id := x.reply.request.ID()
	if id != nil && !x.a.own.add(id, x.reply, x.a.cfg.Limits.Requests) {
		return x.reply.Refuse(tooMany())
	}
	x.a.running.Go(func() {
		defer x.a.own.drop(id, x.reply)
		x.safely(func() error { return plan.Answer(x.reply.account.Context) })
	})
	return errLater
}

// errLater means that the exchange continues after the function returns.
var errLater = errors.New("the exchange goes on")

// cancels returns the request that the message cancels, if the gate is answering it.
func (x *exchange) cancels() *reply {
	if id := cancelledBy(x.packet); id != nil {
		return x.a.own.get(id)
	}
	return nil
}

// cancelledBy returns the ID of the request that a message cancels, or nil.
func cancelledBy(p jsonrpc.Packet) []byte {
	if p.Batch || p.Messages[0].Method != mcpname.NotifyCancelled {
		return nil
	}
	return p.Messages[0].Params.Member("requestId").Bytes
}

// cancelOwn cancels a request that the gate answers and the server has not seen. The
// conversation withdraws a held call; any other request just ends.
func (x *exchange) cancelOwn(target *reply) error {
	select {
	case <-target.settled:
	case <-x.reply.account.Context.Done():
		return nil
	}
	if plan := x.reply.request.Plan(x.reply.account.Context); plan.Answer != nil {
		return plan.Answer(x.reply.account.Context)
	}
	target.cancel()
	return nil
}

func tooMany() *mcp.Problem { return &mcp.Problem{Type: mcp.ClientLimit, RetryAfter: 1} }

// safely runs do and answers a panic with an error. It ends the exchange unless the result is
// errLater.
func (x *exchange) safely(do func() error) {
	err := x.reply.safely(do)
	if errors.Is(err, errLater) {
		return
	}
	x.end(err)
}

// end ends the exchange, counts it and logs it.
func (x *exchange) end(err error) {
	x.wait.end()
	x.reply.end(err)
}
