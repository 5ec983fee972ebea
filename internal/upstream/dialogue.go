package upstream

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// interim returns the function that passes on to the client the messages that precede the answer.
// They concern the task t, or a call without an upstream task. It is nil if the client cannot be
// sent messages.
func (c *Caller) interim(ctx context.Context, t task.Task) func([]byte) {
	if c.sendInterim == nil {
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
		//mutate:false internal/mcphttp.TestQuestionDuring.* an upstream reports on any task of the gate while it runs a held call
		if MentionsGateTask(m, t.ID) {
			c.upstream.cfg.Metrics.Refused(string(mcp.UpstreamUnasked))
			c.upstream.cfg.Log.DebugContext(ctx, "dropped a message of the upstream about a task of the gate")
			return
		}
		c.sendInterim(m.Raw)
	}
}

// MentionsGateTask reports whether an upstream's request or notification concerns a task of the
// gate. Only the gate knows the state of its tasks, and the upstream knows them by other ids. The
// check covers all members of params, because some clients read the id under another name. The
// message may relate to the task except: the gate has inserted that id itself.
func MentionsGateTask(m *jsonrpc.Message, except task.ID) bool {
	reports := m.Method == mcpname.NotifyTasksStatus || m.Method == mcpname.NotifyTasks
	//mutate:swap "&&" "&& m.Params.TaskID.Present() &&" internal/mcphttp.TestForgedFramingIsRefused a report passes that names a task of the gate under another name
	return reports && hasGateTaskID(m.Params.Value, "") || hasGateTaskID(m.Params.Meta.Member(mcpname.MetaRelatedTask), except)
}

// hasGateTaskID reports whether a member of v is the id of a gate task other than except.
func hasGateTaskID(v jsonrpc.Value, except task.ID) bool {
	for _, member := range v.Members() {
		//mutate:swap " && task.ID(id) != except" "" internal/mcphttp.TestQuestionDuringNestedTask an upstream that is a gate cannot ask because of its task
		if id, _ := member.Text(); task.ID(id).Own() && task.ID(id) != except {
			return true
		}
	}
	return false
}

// forClient reports whether a message before an answer is passed on to the client. The gate itself
// sends progress and task notifications.
func forClient(m *jsonrpc.Message) bool {
	switch m.Method {
	case mcpname.NotifyTasksStatus, mcpname.NotifyTasks, mcpname.NotifyProgress:
		return false
	default:
		return m.Kind != jsonrpc.Response
	}
}

// RenameTask returns m with the id of its related task changed. The message may be a part of a
// batch.
func RenameTask(m *jsonrpc.Message, from, to string) *jsonrpc.Message {
	meta := m.Params.Meta
	if m.Kind == jsonrpc.Response {
		meta = m.Result.Member("_meta")
	}
	related := meta.Member(mcpname.MetaRelatedTask).Member("taskId")
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
