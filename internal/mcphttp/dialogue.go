package mcphttp

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// While a held call runs, a legacy upstream may ask its client something, such
// as an elicitation, on the stream on which the gate waits for the answer to the
// call, or for the outcome of the upstream's task. It is put to the client on
// the stream on which that waits. The two share a session, so the id of the
// request is good for both, and the client's answer reaches the upstream like
// any other message. Only the task that it belongs to has another name on each
// side of the gate.

// lend lets others write to the client while it waits, if it takes events.
func (w *waiting) lend() {
	if w.events && w.relay == nil {
		w.relay = &eventRelay{x: w.x}
	}
}

// sender returns what reaches the upstream in the name of a client that waits,
// and puts to it what the upstream asks meanwhile.
func (w *waiting) sender() approval.Sender {
	c := w.x.caller()
	if w.x.era == wire.Legacy && w.relay != nil {
		relay := w.relay
		c.Tell(func(message []byte) {
			relay.insert(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message}))
		})
	}
	return w.x.sendBy(c)
}

// toUpstreamTask returns body as it goes to the upstream if it is a message that
// belongs to one of the client's tasks: the upstream knows that by another name,
// if at all.
func (x *exchange) toUpstreamTask(ctx context.Context, received *jsonrpc.Message, body []byte) []byte {
	meta := received.Params.Meta
	if received.Kind == jsonrpc.Response {
		meta = received.Result.Member("_meta")
	}
	id, _ := meta.Member(mcptask.MetaRelatedTask).Member("taskId").Text()
	if x.era != wire.Legacy || !task.ID(id).Own() {
		return body
	}
	owner, _ := x.owner()
	t, err := x.h.cfg.Desk.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id)))
	if err != nil || t.Execution == nil || t.Execution.UpstreamTask == "" {
		return body
	}
	m, err := x.readMessage(received.Raw)
	if err != nil {
		return body
	}
	return upstream.RenameTask(m, id, t.Execution.UpstreamTask).Raw
}
