package upstream

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// interim returns the function that passes messages which the upstream sends before
// its answer on to the client: about t, or about a call without an upstream task. It
// is nil if the client cannot be sent any.
func (c *Caller) interim(ctx context.Context, t task.Task) func([]byte) {
	if c.send == nil {
		return nil
	}
	return func(text []byte) {
		m, err := parsed(text)
		if err != nil || !forClient(m) {
			return
		}
		if t.Execution != nil {
			m = RenameTask(m, t.Execution.UpstreamTask, string(t.ID))
		}
		if TellsOfOwnTask(m, t.ID) {
			c.upstream.cfg.Metrics.Refused(string(wire.UpstreamUnasked))
			c.upstream.cfg.Log.DebugContext(ctx, "the upstream spoke of a task of the gate's before its answer; it was dropped")
			return
		}
		c.send(m.Raw)
	}
}

// TellsOfOwnTask reports whether a request or notification of the upstream's speaks of a
// task of the gate's own: the gate alone knows how that stands, and the upstream knows
// the task by another id. Some clients read the id under another name as well. The message
// may relate to the task with the id except: it is the gate that has put that id there.
func TellsOfOwnTask(m *jsonrpc.Message, except task.ID) bool {
	reports := m.Method == mcptask.MethodStatus2025 || m.Method == mcptask.MethodStatus2026
	return reports && namesOwnTask(m.Params.Value, "") || namesOwnTask(m.Params.Meta.Member(mcptask.MetaRelatedTask), except)
}

// namesOwnTask reports whether a member of v is the id of a task of the gate's own, another
// than except.
func namesOwnTask(v jsonrpc.Value, except task.ID) bool {
	for _, member := range v.Members() {
		if id, _ := member.Text(); task.ID(id).Own() && task.ID(id) != except {
			return true
		}
	}
	return false
}

// forClient reports whether a message that comes before an answer is for the
// client. The gate itself notifies clients of progress and of the state of tasks.
func forClient(m *jsonrpc.Message) bool {
	switch m.Method {
	case mcptask.MethodStatus2025, mcptask.MethodStatus2026, "notifications/progress":
		return false
	default:
		return m.Kind != jsonrpc.Response
	}
}

// RenameTask returns m with the task that it belongs to under another name. The
// places in m may count from anywhere: it may be a part of a batch.
func RenameTask(m *jsonrpc.Message, from, to string) *jsonrpc.Message {
	own, err := parsed(m.Raw) // whose places count from its own start
	if err != nil {
		return m
	}
	meta := own.Params.Meta
	if own.Kind == jsonrpc.Response {
		meta = own.Result.Member("_meta")
	}
	related := meta.Member(mcptask.MetaRelatedTask).Member("taskId")
	if id, ok := related.Text(); !ok || id != from {
		return m
	}
	var patch jsonrpc.Patch
	patch.Replace(related, jsonrpc.AppendString(nil, to))
	changed, err := parsed(patch.Apply(own.Raw))
	if err != nil {
		return m
	}
	return changed
}
