package upstream

import (
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// interim returns the function that passes messages which the upstream sends before
// its answer on to the client: about t, or about a call without an upstream task. It
// is nil if the client cannot be sent any.
func (c *Caller) interim(t task.Task) func([]byte) {
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
		c.send(m.Raw)
	}
}

// forClient reports whether a message that comes before an answer is for the
// client. The gate itself notifies clients of progress and of the state of tasks.
func forClient(m *jsonrpc.Message) bool {
	switch m.Method {
	case mcptask.MethodStatus2025, "notifications/progress":
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
