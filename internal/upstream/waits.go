package upstream

import (
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// AsksClient reports whether the server sends the client a request such as elicitation/create or
// sampling/createMessage. Until the client answers, the server may be silent. A ping does not
// count: clients answer it at once.
func AsksClient(p jsonrpc.Packet) bool {
	for i := range p.Messages {
		if m := &p.Messages[i]; m.Kind == jsonrpc.Request && m.Method != mcpname.Ping {
			return true
		}
	}
	return false
}

// WaitsForTask reports whether a client requests the result of a task (tasks/result), which MCP
// 2025-11-25 answers when the task has ended, however long that takes.
func WaitsForTask(p jsonrpc.Packet) bool {
	for i := range p.Messages {
		if p.Messages[i].Method == mcpname.TasksResult {
			return true
		}
	}
	return false
}
