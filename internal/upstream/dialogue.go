package upstream

import (
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// aside returns what takes messages that the upstream sends before its answer
// about t, or about a call that has no task of the upstream's. It is nil if
// there is nobody to tell.
func (c *Caller) aside(t task.Task) func([]byte) {
	if c.tell == nil {
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
		c.tell(m.Raw)
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

// RenameTask returns m with the task that it belongs to under another name.
func RenameTask(m *jsonrpc.Message, from, to string) *jsonrpc.Message {
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
