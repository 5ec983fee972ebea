// Package mcptask implements the protocol of MCP tasks, in both eras: the message types,
// and a server that answers the task methods and runs tasks.
//
// # Two eras
//
// MCP 2025-11-25 has tasks in its core: the client asks for a task, polls tasks/get, and
// fetches the outcome with tasks/result. MCP 2026-07-28 has the extension
// io.modelcontextprotocol/tasks: the server decides whether a call becomes a task, and
// tasks/get returns the outcome. The eras are not compatible. Their messages differ in
// shape (a create result is nested in 2025-11-25 and flat in 2026-07-28), in names (ttl, ttlMs)
// and in meaning: after a tool error the status is failed in 2025-11-25, and completed in
// 2026-07-28. The names of types end in 2025 or 2026.
//
// # Parts
//
// The message types, such as [schema.Task2025] and [schema.Task2026], follow the official
// schemas. They keep members that this package does not know, and the text of numbers in these
// members.
//
// A [Dialect] turns a [task.Task] into these messages, for a client of one era:
// the status, the final answer to the request ([Dialect.Outcome]), and errors
// ([Dialect.Error]).
//
// [schema.DetectServer] and [schema.DetectClient] read the capabilities of a peer, in all
// forms that peers are known to send; the capability types write the correct form.
//
// A [Server] answers the task methods from a store and runs tasks, for programs
// with tools of their own. A [Run] gives a tool access to its task.
//
// The package has no transport and does not authenticate clients.
package mcptask
