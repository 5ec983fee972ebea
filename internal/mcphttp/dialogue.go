package mcphttp

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
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
		c.hears = func(message []byte) {
			relay.insert(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message}))
		}
	}
	return c
}

// aside returns what takes messages that the upstream sends before its answer
// about t, or about a call that has no task of the upstream's. It is nil if
// there is nobody to tell.
func (c *caller) aside(t task.Task) func([]byte) {
	if c.hears == nil {
		return nil
	}
	return func(text []byte) {
		m, err := parsed(text)
		if err != nil || !forClient(m) {
			return
		}
		if t.Execution != nil {
			m = renamed(m, t.Execution.UpstreamTask, string(t.ID))
		}
		c.hears(m.Raw)
	}
}

// forClient reports whether a message that comes before an answer is for the
// client. Of the progress of calls, and of the state of tasks, the gate tells
// in its own way.
func forClient(m *jsonrpc.Message) bool {
	switch m.Method {
	case mcptask.MethodLegacyStatus, "notifications/progress":
		return false
	default:
		return m.Kind != jsonrpc.Response
	}
}

// renamed returns m with the task that it belongs to under another name.
func renamed(m *jsonrpc.Message, from, to string) *jsonrpc.Message {
	meta := m.Params.Meta
	if m.Kind == jsonrpc.Response {
		meta = m.Result.Member("_meta")
	}
	related := meta.Member(mcptask.MetaRelatedTask).Member("taskId")
	if id, ok := related.Text(); !ok || id != from {
		return m
	}
	var patch jsonrpc.Patch
	patch.Replace(related, jsonrpc.AppendString(nil, to))
	changed, err := parsed(patch.Apply(m.Raw))
	if err != nil {
		return m
	}
	return changed
}

// toUpstreamTask prepares a message that belongs to one of the client's tasks
// for the upstream, which knows that by another name, if at all.
func (x *exchange) toUpstreamTask(ctx context.Context, received *jsonrpc.Message) {
	meta := received.Params.Meta
	if received.Kind == jsonrpc.Response {
		meta = received.Result.Member("_meta")
	}
	id, _ := meta.Member(mcptask.MetaRelatedTask).Member("taskId").Text()
	if x.era != wire.Legacy || !task.ID(id).Own() {
		return
	}
	owner, _ := x.owner()
	t, err := x.h.cfg.Desk.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id)))
	if err != nil || t.Execution == nil || t.Execution.UpstreamTask == "" {
		return
	}
	if m, err := x.readMessage(received.Raw); err == nil {
		x.body = renamed(m, id, t.Execution.UpstreamTask).Raw
	}
}
