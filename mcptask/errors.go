package mcptask

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Codes for legacy clients. 2026-07-28 has retired this range.
const (
	codeUpstreamDown    = -32000
	codeUpstreamTimeout = -32001
	codeUpstreamInvalid = -32002
	codeDenied          = -32003
	codeRejected        = -32007
	codeExpired         = -32008
	codeRateLimited     = -32009
	codeDrift           = -32011
	codeUnavailable     = -32013
)

// codeMissingCapability is 2026-07-28's code for a request that needs a
// capability its sender did not declare.
const codeMissingCapability = -32021

// A problem is how clients see one kind of error.
type problem struct {
	legacy, modern int
	name           string // error_type
	text           string
	tool           bool // sent as a tool result, so that the client's model reads it
}

// problems has the kinds of errors that a client may learn about. All others
// are internal errors: their text is for the log. The comments say what docs/errors.md
// adds to the texts.
var problems = map[task.Kind]problem{
	task.ErrNotFound:             {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "task_not_found", "Task not found", false}, // It may belong to another client; the two look the same.
	task.ErrExpired:              {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "task_expired", "Task expired", false},     // Its time to live is over.
	task.ErrNotReady:             {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "task_not_ready", "Task has not ended yet", false},
	task.ErrAlreadyTerminal:      {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "task_already_terminal", "Task has already ended", false}, // It can be neither cancelled nor changed.
	task.ErrInvalidTransition:    {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "invalid_transition", "Not possible in the task's present state", false},
	task.ErrVariableSizeExceeded: {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "variable_size_exceeded", "Task variables are too many or too large", false}, // See `tasks.variables`.
	task.ErrVariableOwnership:    {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "variable_ownership", "Task variable belongs to the other side", false},
	task.ErrInvalidVariable:      {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "invalid_variable", "Malformed task variable", false},
	task.ErrInvalidTTL:           {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "invalid_ttl", "ttl must be a positive whole number of milliseconds", false},
	task.ErrInvalidCursor:        {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, "invalid_cursor", "Invalid cursor", false}, // It belongs to another list or client. Begin again without one.

	task.ErrConcurrentModification: {jsonrpc.CodeInternal, jsonrpc.CodeInternal, "concurrent_modification", "Task was changed by somebody else", false},                                              // Ask again.
	task.ErrRateLimited:            {codeRateLimited, jsonrpc.CodeInternal, "rate_limited", "Too many calls are pending. This one did not run.", true},                                               // This agent has `tasks.max_pending_per_owner` of them, or agents that cannot be distinguished have their share of `tasks.max_pending`.
	task.ErrCapacityExceeded:       {codeRateLimited, jsonrpc.CodeInternal, "capacity_exceeded", "Too many calls are pending. This one did not run.", true},                                          // All agents have `tasks.max_pending` of them, or those of one address their share.
	task.ErrOwnerFull:              {codeRateLimited, jsonrpc.CodeInternal, "storage_exceeded", "Earlier calls and their results take all the storage of this client. This call did not run.", true}, // Fetch results, or wait until their time is over.
	task.ErrDuplicate:              {codeRateLimited, jsonrpc.CodeInternal, "duplicate_call", "The same call is pending already. It did not run again.", true},
	task.ErrUnavailable:            {codeUnavailable, jsonrpc.CodeInternal, "store_unavailable", "Held calls cannot be reached at the moment, try again", false},
	task.ErrUnreadable:             {jsonrpc.CodeInternal, jsonrpc.CodeInternal, "task_unreadable", "Task cannot be read", false}, // It is damaged, or this gate has no key to it; see [storage.md](storage.md#when-something-is-wrong).
	task.ErrClosed:                 {codeUnavailable, jsonrpc.CodeInternal, "shutting_down", "Shutting down, try again", false},
}

// Error returns the error that a client gets for err. The task of another owner looks
// like one that does not exist. A [*jsonrpc.Error] stays as it is, and an unknown error
// becomes an internal one, without its text.
func (d Dialect) Error(err error) *jsonrpc.Error {
	if own, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return own
	}
	e, p := look(err)
	code := p.legacy
	if d.Era == V2026 {
		code = p.modern
	}
	var more []schema.Member
	if e.Suggest != "" {
		more = append(more, schema.Member{Name: "hint", Value: quote(e.Suggest)})
	}
	if e.RetryAfter > 0 {
		more = append(more, schema.Member{Name: "retry_after", Value: seconds(e.RetryAfter)})
	}
	return &jsonrpc.Error{Code: code, Message: p.text, Data: errorData(p.name, more...)}
}

// Refuse returns the answer to a tool call that could not become a task because of err: the
// error of [Dialect.Error] or, if there are too many tasks, a tool result for the client's
// model. See also [gatedialect.Options].
func (d Dialect) Refuse(err error) Outcome {
	e, p := look(err)
	if !p.tool || d.Era == V2025 && d.Gate.Errors {
		return Outcome{Error: textOf(errorObject(d.Error(err)))}
	}
	text, code := p.text, d.code(p.legacy, p.name)
	if e.RetryAfter > 0 {
		text += " Try again in " + string(seconds(e.RetryAfter)) + " s."
		code = append(code, schema.Member{Name: "retry_after", Value: seconds(e.RetryAfter)})
	}
	return Outcome{Result: textOf(d.toolError(ToolText{Text: text, Meta: d.denied(p.name, gatedialect.RemediationAvailable)}, code))}
}

// look returns the parts of err that a client may see.
func look(err error) (*task.Error, problem) {
	e, ok := errors.AsType[*task.Error](err)
	if !ok {
		e = &task.Error{}
	}
	if e.Kind == task.ErrOwnerMismatch || e.Kind == task.ErrNotFound {
		// Clients must not distinguish the two, so all details are dropped.
		e = &task.Error{Kind: task.ErrNotFound}
	}
	p, ok := problems[e.Kind]
	if !ok {
		return &task.Error{}, problem{jsonrpc.CodeInternal, jsonrpc.CodeInternal, "internal_error", "Internal error", false}
	}
	return e, p
}

// TaskRequired returns the error for a call that can only be made as a task,
// from a client that did not ask for one or, if it speaks 2026-07-28, cannot have one.
func (d Dialect) TaskRequired() *jsonrpc.Error {
	if d.Era == V2026 {
		return MissingExtension()
	}
	return &jsonrpc.Error{
		Code: jsonrpc.CodeMethodNotFound, Message: "Tool requires task augmentation", Data: errorData("task_required"),
	}
}

// TaskForbidden returns the error for a call of 2025-11-25 that must not be made as a
// task. A client of 2026-07-28 cannot ask for one.
func TaskForbidden() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeMethodNotFound, Message: "Tool does not support task augmentation", Data: errorData("task_forbidden"),
	}
}

// MissingExtension returns the error for a request of 2026-07-28 about tasks whose
// sender does not declare the extension on it. Over HTTP its status is 400.
func MissingExtension() *jsonrpc.Error {
	required := schema.Object{{Name: "extensions", Value: schema.Extensions().Text()}}.Text()
	return &jsonrpc.Error{
		Code: codeMissingCapability, Message: "Missing required client capability",
		Data: errorData("missing_client_capability", schema.Member{Name: "requiredCapabilities", Value: required}),
	}
}

// errorData returns the data member of an error. The sender may add members about
// the request.
func errorData(name string, more ...schema.Member) json.RawMessage {
	return append(schema.Object{{Name: "error_type", Value: quote(name)}}, more...).Text()
}

// errorObject writes e as the error member of a response.
func errorObject(e *jsonrpc.Error) json.RawMessage {
	object := schema.Object{{Name: "code", Value: integer(int64(e.Code))}, {Name: "message", Value: quote(e.Message)}}
	if e.Data != nil {
		object = append(object, schema.Member{Name: "data", Value: e.Data})
	}
	return object.Text()
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) json.RawMessage {
	return integer(int64((d + time.Second - 1) / time.Second))
}

func integer(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }
