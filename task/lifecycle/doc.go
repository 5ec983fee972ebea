// Package lifecycle has the rules of tasks: the legal events of each state, and their effects.
//
// [Apply] is a pure function of a task, an [Event] and a time. So the rules exist once, in one
// table, rather than in every store. [Advance] reads a task, applies an event and writes the
// task back. An [Updater] also writes the journal.
//
// In a server, a task changes from working to approved and executing without an approval
// ([Admit], [Claim]), and ends with [Complete], [Fail], [Cancel] or [Expire]. In a gateway it
// first waits for [Approve] or [Reject] ([Submit]), until the deadline of its approval.
package lifecycle
