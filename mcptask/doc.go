// Package mcptask is the protocol of MCP tasks, in both of its generations: the wire
// types, and a server that answers the task methods and runs tasks.
//
// # Two generations
//
// MCP 2025-11-25 has tasks in its core: the client asks for a task, polls
// tasks/get, and fetches the outcome with tasks/result. MCP 2026-07-28 has them
// as the extension io.modelcontextprotocol/tasks: the server alone decides, and
// the outcome comes with tasks/get. The two are not compatible. Their messages
// differ in shape (a create result is nested in the one and flat in the
// other), in names (ttl, ttlMs) and in meaning: a tool that reports an error
// makes a task failed in the one and completed in the other. Names here end in
// 2025 and 2026.
//
// # Parts
//
// The wire types ([Task2025], [Task2026] and what is made of them) are the
// messages as the official schemas have them. They can be read and written
// without losing a member that this package does not know, or the literal of a
// number in one.
//
// A [Dialect] turns a [task.Task] into these messages, for a client of one
// generation: which status it shows, what its request is answered with in the
// end ([Dialect.Answer]), and which error it gets ([Dialect.Error]). No other place
// decides about any of that.
//
// [DetectServer] and [DetectClient] read what a peer can do, in all the ways
// that peers were seen to say it; the capability types write it in the one way
// that is right.
//
// A [Server] answers the task methods from a store and runs tasks, for programs
// with tools of their own. A [Call] is a task as its tool sees it.
//
// The package knows no transport and authenticates nobody.
package mcptask
