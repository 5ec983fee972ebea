package mcptask

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Answer is what a request is answered with: a result or a JSON-RPC error
// object, never both.
type Answer struct {
	Result Text
	Error  Text
}

// Err returns a's error as a value, or nil if a is a result. Payload is what an
// upstream answered, if a has a place for it.
func (a Answer) Err(payload []byte) *jsonrpc.Error {
	if !a.Error.Present() {
		return nil
	}
	text, _ := a.Error.Whole(payload) // without a payload there is no code in it either
	object := jsonrpc.Value{Bytes: text}
	code, ok := object.Member("code").Int()
	message, _ := object.Member("message").Text()
	if !ok {
		code = jsonrpc.CodeInternal
	}
	return &jsonrpc.Error{Code: int(code), Message: message, Data: object.Member("data").Bytes}
}

// Answer returns what the request that became t is answered with, as if it had
// been answered at once: what the upstream said, or why there is no such thing.
// It returns [task.ErrNotReady] if t is not terminal.
//
// A client learns of a call that was not allowed to run, or that was cancelled, by
// a tool result that its model can read, and that says whether the tool ran. See
// also [Dialect.Errors].
func (d Dialect) Answer(t task.Task) (Answer, error) {
	switch {
	case !t.State.Terminal():
		return Answer{}, &task.Error{Kind: task.KindNotReady, ID: t.ID, State: t.State, Action: task.ActionReadChunk}
	case t.State == task.Completed && t.Result != nil:
		result := answerOf(t)
		if t.Execution != nil && t.Execution.UpstreamTask != "" {
			// A note of the task it belongs to would be the upstream's.
			result.edit = &jsonrpc.MemberEdit{Outer: "_meta", Inner: MetaRelatedTask}
		}
		return Answer{Result: result}, nil
	case t.State == task.Failed && t.Result != nil:
		return Answer{Error: answerOf(t)}, nil
	case d.answersModel(t):
		return Answer{Result: textOf(d.refusal(t, nil))}, nil
	default:
		return Answer{Error: textOf(d.endError(t))}, nil
	}
}

// ResultAnswer returns the answer to tasks/result, which only 2025-11-25
// has: that of [Dialect.Answer], with a note that it belongs to t.
func (d Dialect) ResultAnswer(t task.Task) (Answer, error) {
	answer, err := d.Answer(t)
	switch {
	case err == nil && t.Result == nil && d.answersModel(t):
		answer.Result = textOf(d.refusal(t, WithRelatedTask(nil, string(t.ID))))
	case answer.Result.Present():
		answer.Result.edit = &jsonrpc.MemberEdit{Outer: "_meta", Inner: MetaRelatedTask, JSON: relatedTask(string(t.ID))}
	}
	return answer, err
}

// An ending is how the end of a task without an answer from the upstream is
// told.
type ending struct {
	code    int    // for 2025-11-25; for 2026-07-28 it is always an internal error
	name    string // error_type
	refusal bool   // somebody did not let it run, as opposed to something going wrong
	text    string
}

// endings has an ending for every stage at which a task can end.
var endings = map[task.Stage]ending{
	task.StageInspection:          {codeDenied, "inspection_failed", true, "Refused before approval was requested."},
	task.StageApprovalRejected:    {codeRejected, "approval_rejected", true, "Rejected by an approver."},
	task.StageApprovalTimeout:     {codeExpired, "approval_expired", true, "Nobody decided in time."},
	task.StageUncollected:         {codeExpired, "approval_expired", true, "Approved, but its owner did not come back in time."},
	task.StagePolicyDrift:         {codeDrift, "policy_drift", true, "Approved, but the policy has changed and no longer allows it."},
	task.StageToolDrift:           {codeDrift, "tool_drift", true, "Approved, but the tool has changed since then: the call needs a new approval."},
	task.StageArgumentDrift:       {codeDrift, "argument_drift", true, "The call is not the one that was approved."},
	task.StageUpstreamError:       {codeUpstreamInvalid, "upstream_error", false, "The server answered with an error."},
	task.StageUpstreamUnreachable: {codeUpstreamDown, "upstream_unreachable", false, "The server cannot be reached."},
	task.StageUpstreamTimeout:     {codeUpstreamTimeout, "upstream_timeout", false, "The server did not answer in time."},
	task.StageUpstreamInvalid:     {codeUpstreamInvalid, "upstream_invalid_response", false, "The server sent an invalid answer."},
	task.StageUpstreamGone:        {codeUpstreamInvalid, "upstream_task_not_found", false, "The server no longer knows the task that it created for the call."},
	task.StageUnfetched:           {codeExpired, "result_expired", false, "It ran, but its result was not fetched in time."},
	task.StageResultTooLarge:      {codeUpstreamInvalid, "result_too_large", false, "The tool ran, but its result is too large to be kept."},
	task.StageExecutionTimeout:    {codeUpstreamTimeout, "execution_timeout", false, "Still running when its time ended."},
	task.StageExecutorLost:        {jsonrpc.CodeInternal, "outcome_unknown", false, "Interrupted while it ran."},
	task.StageShutdown:            {codeUnavailable, "shutting_down", false, "Stopped before it could run."},
	task.StageCancelled:           {jsonrpc.CodeInvalidParams, "task_cancelled", false, "Cancelled by the requestor."},
}

func endingOf(t task.Task) ending {
	if t.Failure != nil {
		if e, ok := endings[t.Failure.Stage]; ok {
			return e
		}
	}
	return ending{jsonrpc.CodeInternal, "internal_error", false, "Failed."}
}

// refused reports whether t is a tool call that somebody did not let run. Only
// such a call can be answered with a tool result that says so.
func refused(t task.Task) bool {
	return t.Call.Method == methodCall && endingOf(t).refusal && ran(t) == task.RanNo
}

const methodCall = "tools/call"

// answersModel reports whether a tool result tells how t ended without an answer of
// the upstream's. A failure of the upstream is an error, as it would be without a
// task.
func (d Dialect) answersModel(t task.Task) bool {
	if d.Era == V2025 && d.Errors {
		return false
	}
	return refused(t) || t.State == task.Cancelled && t.Call.Method == methodCall
}

// ran returns whether the call of a task that ended reached the tool.
func ran(t task.Task) task.Ran {
	if t.Failure == nil {
		return task.RanUnknown
	}
	return t.Failure.Ran
}

func (d Dialect) endError(t task.Task) json.RawMessage {
	e := endingOf(t)
	code := e.code
	if d.Era == V2026 {
		code = jsonrpc.CodeInternal
	}
	return errorObject(&jsonrpc.Error{
		Code: code, Message: d.endText(t), Data: errorData(e.name, Member{"tool", quote(t.Call.Name)}),
	})
}

// immediateText is what a model may be told while t runs.
func immediateText(t task.Task) string {
	if t.Approval != nil && t.Approval.DecidedAt().IsZero() {
		return "The call is waiting for human approval."
	}
	return "The call is being worked on."
}

// StatusMessage says how t stands. It is read by people and by models, so it
// consists of fixed sentences; what others wrote is quoted and made harmless.
func (d Dialect) StatusMessage(t task.Task) string {
	switch t.State {
	case task.Working:
		return "Accepted"
	case task.InputRequired:
		return d.pendingText(t)
	case task.Approved:
		return "Approved, about to run"
	case task.Executing:
		return d.runningText(t)
	case task.Completed:
		if t.Result != nil && t.Result.Kind == task.ResultToolError {
			return withQuote("The tool reported an error", toolErrorText(t.Result.Inline))
		}
		return ""
	default:
		return d.endText(t)
	}
}

// pendingText says who is to approve t, how long there is for that, and where.
func (d Dialect) pendingText(t task.Task) string {
	text := "Waiting for approval by " + harmless(cmp.Or(t.Workflow, "an approver")) + " · " + string(t.ID.Short())
	if left := d.timeLeft(t); left != "" {
		text += " · " + left + " left"
	}
	if d.Page != nil {
		text += " · " + d.Page(t.ID)
	}
	return text
}

// Facts returns who is to approve t, its short id and the time left, such as
// "ops (tg_1m7h71t6x6pn4, 9m59s left)".
func (d Dialect) Facts(t task.Task) string {
	text := harmless(cmp.Or(t.Workflow, "an approver")) + " (" + string(t.ID.Short())
	if left := d.timeLeft(t); left != "" {
		text += ", " + left + " left"
	}
	return text + ")"
}

// timeLeft returns how long there is for the approval of t, such as 9m59s. It is
// empty if that is not known.
func (d Dialect) timeLeft(t task.Task) string {
	if d.Now.IsZero() || t.Approval == nil || t.Approval.Deadline.IsZero() {
		return ""
	}
	left := max(0, t.Approval.Deadline.Sub(d.Now))
	if left < time.Hour {
		return left.Truncate(time.Second).String()
	}
	return strings.TrimSuffix(left.Truncate(time.Minute).String(), "0s")
}

// runningText says how a call stands that runs, with the words of the one that
// does the work.
func (d Dialect) runningText(t task.Task) string {
	switch {
	case t.Execution == nil:
		return "Running"
	case !d.Proxy && harmless(t.Execution.Message) != "":
		return harmless(t.Execution.Message)
	case t.Asks():
		return quoteAfter("Waiting for input from the client", t.Execution.Message)
	case t.Execution.Upstream == task.UpstreamFailed:
		return quoteAfter("The server's task failed", t.Execution.Message)
	case t.Execution.Upstream == task.UpstreamReady:
		return quoteAfter("Done", t.Execution.Message)
	default:
		return quoteAfter("Running", t.Execution.Message)
	}
}

// quoteAfter is withQuote without a full stop where there is nothing to quote.
func quoteAfter(text, foreign string) string {
	if harmless(foreign) == "" {
		return text
	}
	return withQuote(text, foreign)
}

// endText says why t ended without a result, and whether the tool ran.
func (d Dialect) endText(t task.Task) string {
	if t.Result != nil && t.Result.Kind == task.ResultRPCError {
		message, _ := jsonrpc.Value{Bytes: t.Result.Inline}.Member("message").Text()
		if !d.Proxy {
			return cmp.Or(harmless(message), "Failed.")
		}
		return withQuote("The server answered with an error", message)
	}
	text := endSentence(t)
	switch ran(t) {
	case task.RanNo:
		return text + " The tool did not run."
	case task.RanYes:
		return text
	default:
		return text + " Outcome unknown: it may have run."
	}
}

// endSentence says why t ended without a result.
func endSentence(t task.Task) string {
	nested := t.Execution != nil && t.Execution.UpstreamTask != ""
	switch {
	case t.State == task.Rejected && t.Approval != nil && t.Approval.Rejection != nil:
		return withQuote("Rejected by an approver", t.Approval.Rejection.Reason)
	case t.Failure != nil && t.Failure.Stage == task.StageShutdown && t.Failure.Ran != task.RanNo:
		return "Interrupted because the server was stopped."
	case nested && t.Failure != nil && t.Failure.Stage == task.StageUpstreamError:
		return withQuote("The server's task failed", t.Execution.Message)
	default:
		return endingOf(t).text
	}
}

// toolErrorText returns the first text of a tool result.
func toolErrorText(result []byte) string {
	for block := range (jsonrpc.Value{Bytes: result}).Member("content").Elements() {
		if text, ok := block.Member("text").Text(); ok {
			return text
		}
	}
	return ""
}

// withQuote returns a sentence that quotes foreign, as far as there is
// something to quote.
func withQuote(sentence, foreign string) string {
	if foreign = harmless(foreign); foreign == "" {
		return sentence + "."
	}
	return sentence + `: "` + foreign + `".`
}

// maxQuote is how many characters of a foreign text are quoted.
const maxQuote = 200

// harmless returns foreign text as one short line of visible characters that
// cannot end its own quotation. Its meaning is not checked.
func harmless(foreign string) string {
	return plain.Line(strings.ReplaceAll(foreign, `"`, "'"), maxQuote)
}

// A ToolText is a tool result that consists of a text for the model of a client.
type ToolText struct {
	Text  string
	Error bool   // isError
	Meta  Object // none if it is empty
}

// ToolResult returns t as the result of a call.
func (d Dialect) ToolResult(t ToolText) json.RawMessage {
	block := Object{{"type", quote("text")}, {"text", quote(t.Text)}}.text()
	var result Object
	if d.Era == V2026 {
		result = Object{{"resultType", quote(string(Complete))}}
	}
	result = append(result, Member{"content", slices.Concat(json.RawMessage("["), block, json.RawMessage("]"))})
	if t.Error {
		result = append(result, Member{"isError", json.RawMessage("true")})
	}
	if len(t.Meta) > 0 {
		result = append(result, Member{"_meta", t.Meta.text()})
	}
	return result.text()
}

// ToolError returns a tool result that says what went wrong: to the model of the client
// by a text, and to its program by a code. Its metadata has meta as well.
func (d Dialect) ToolError(text string, code int, errorType string, meta Object) json.RawMessage {
	return d.toolError(text, d.code(code, errorType), meta)
}

func (d Dialect) toolError(text string, code Object, meta Object) json.RawMessage {
	return d.ToolResult(ToolText{Text: text, Error: true, Meta: meta.With(MetaError, code.text())})
}

// code returns what tells a program of an outcome.
func (d Dialect) code(code int, name string) Object {
	object := Object{{"code", integer(int64(code))}, {"error_type", quote(name)}}
	if d.Correlation != "" {
		object = append(object, Member{"correlation_id", quote(d.Correlation)})
	}
	return object
}
