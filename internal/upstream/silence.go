package upstream

import "github.com/thoughtgate/thoughtgate-go/jsonrpc"

// Asks reports whether a server asks the client something, such as elicitation/create or
// sampling/createMessage: it may say nothing until the client has answered. A client
// answers a ping at once.
func Asks(p jsonrpc.Packet) bool {
	for i := range p.Messages {
		if m := &p.Messages[i]; m.Kind == jsonrpc.Request && m.Method != "ping" {
			return true
		}
	}
	return false
}

// Blocks reports whether a client asks for the result of a task (tasks/result). MCP
// 2025-11-25 has the server answer when the task has ended, however long that takes.
func Blocks(p jsonrpc.Packet) bool {
	for i := range p.Messages {
		if p.Messages[i].Method == "tasks/result" {
			return true
		}
	}
	return false
}
