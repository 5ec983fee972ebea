package mcptask

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// An Outcome is the answer to a request: a result or a JSON-RPC error object.
type Outcome struct {
	Result Text
	Error  Text
}

// Err returns o's error as a value, or nil if o is a result. Payload is the
// answer of the upstream, if o needs it.
func (o Outcome) Err(payload []byte) *jsonrpc.Error {
	if !o.Error.Present() {
		return nil
	}
	text, _ := o.Error.ComposeBytes(payload) // without a payload there is no code in it either
	object := jsonrpc.Value{Bytes: text}
	code, ok := object.Member("code").Int()
	message, _ := object.Member("message").Text()
	if !ok {
		code = jsonrpc.CodeInternal
	}
	return &jsonrpc.Error{Code: int(code), Message: message, Data: object.Member("data").Bytes}
}

// Outcome returns the answer to the request that became t, as if it had not become a task:
// the answer of the upstream, or the reason for which there is none.
// It returns [task.ErrNotReady] if t is not terminal.
//
// A client learns of a call that was not allowed to run, or that was cancelled, by
// a tool result that its model can read, and that says whether the tool ran. See
// also [gatedialect.Options].
func (d Dialect) Outcome(t task.Task) (Outcome, error) {
	switch {
	case !t.State.Terminal():
		return Outcome{}, &task.Error{Kind: task.ErrNotReady, ID: t.ID, State: t.State, Action: action.ReadChunk}
	case t.State == task.Completed && t.Result != nil:
		result := answerOf(t)
		if t.Execution != nil && t.Execution.UpstreamTask != "" {
			// The related task would be the upstream's.
			result.edit = &jsonrpc.MemberEdit{Outer: "_meta", Inner: mcpname.MetaRelatedTask}
		}
		return Outcome{Result: result}, nil
	case t.State == task.Failed && t.Result != nil:
		return Outcome{Error: answerOf(t)}, nil
	case d.answersModel(t):
		return Outcome{Result: textOf(d.refusal(t, nil))}, nil
	default:
		return Outcome{Error: textOf(d.endError(t))}, nil
	}
}

// ResultOutcome returns the answer to tasks/result, which only 2025-11-25
// has: that of [Dialect.Outcome], with a note that it belongs to t.
func (d Dialect) ResultOutcome(t task.Task) (Outcome, error) {
	answer, err := d.Outcome(t)
	switch {
	case err == nil && t.Result == nil && d.answersModel(t):
		answer.Result = textOf(d.refusal(t, schema.WithRelatedTask(nil, string(t.ID))))
	case answer.Result.Present():
		answer.Result.edit = &jsonrpc.MemberEdit{Outer: "_meta", Inner: mcpname.MetaRelatedTask, JSON: schema.RelatedTaskValue(string(t.ID))}
	}
	return answer, err
}

// An ending is how clients see the end of a task without an answer from the upstream.
type ending struct {
	code    int    // for 2025-11-25; for 2026-07-28 it is always an internal error
	name    string // error_type
	refusal bool   // the call was not allowed to run, rather than failed
}

// endings has an ending for every stage at which a task can end.
var endings = map[task.Stage]ending{
	lifecycle.StageInspection:          {codeDenied, "inspection_failed", true},
	lifecycle.StageApprovalRejected:    {codeRejected, "approval_rejected", true},
	lifecycle.StageApprovalTimeout:     {codeExpired, "approval_expired", true},
	lifecycle.StageUncollected:         {codeExpired, "approval_expired", true},
	lifecycle.StagePolicyDrift:         {codeDrift, "policy_drift", true},
	lifecycle.StageToolDrift:           {codeDrift, "tool_drift", true},
	lifecycle.StageArgumentDrift:       {codeDrift, "argument_drift", true},
	lifecycle.StageUpstreamError:       {codeUpstreamInvalid, "upstream_error", false},
	lifecycle.StageUpstreamUnreachable: {codeUpstreamDown, "upstream_unreachable", false},
	lifecycle.StageUpstreamTimeout:     {codeUpstreamTimeout, "upstream_timeout", false},
	lifecycle.StageUpstreamInvalid:     {codeUpstreamInvalid, "upstream_invalid_response", false},
	lifecycle.StageUpstreamGone:        {codeUpstreamInvalid, "upstream_task_not_found", false},
	lifecycle.StageSessionGone:         {codeUpstreamInvalid, "session_gone", true},
	lifecycle.StageUnfetched:           {codeExpired, "result_expired", false},
	lifecycle.StageResultTooLarge:      {codeUpstreamInvalid, "result_too_large", false},
	lifecycle.StageExecutionTimeout:    {codeUpstreamTimeout, "execution_timeout", false},
	lifecycle.StageExecutorLost:        {jsonrpc.CodeInternal, "outcome_unknown", false},
	lifecycle.StageShutdown:            {codeUnavailable, "shutting_down", false},
	lifecycle.StageCancelled:           {jsonrpc.CodeInvalidParams, "task_cancelled", false},
}

func endingOf(t task.Task) ending {
	if t.Failure != nil {
		if e, ok := endings[t.Failure.Stage]; ok {
			return e
		}
	}
	return ending{jsonrpc.CodeInternal, "internal_error", false}
}

// refused reports whether t is a tool call that was not allowed to run. The answer to such
// a call is a tool result.
func refused(t task.Task) bool {
	return t.Call.Method == mcpname.ToolsCall && endingOf(t).refusal && ran(t) == task.RanNo
}

// answersModel reports whether a tool result tells how t ended, if the upstream sent no answer.
// A failure of the upstream is an error, as it would be without a task.
func (d Dialect) answersModel(t task.Task) bool {
	if d.Era == V2025 && d.Gate.Errors {
		return false
	}
	return refused(t) || t.State == task.Cancelled && t.Call.Method == mcpname.ToolsCall
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
	var about []schema.Member
	if t.Call.Method == mcpname.ToolsCall {
		about = []schema.Member{{Name: "tool", Value: quote(t.Call.Name)}}
	}
	about = append(append(about, expiredAt(t)...), corrected(t)...)
	return errorObject(&jsonrpc.Error{Code: code, Message: d.endText(t) + correctionText(t), Data: errorData(e.name, about...)})
}

// expiredAt returns the member with the time at which t expired, if it has.
func expiredAt(t task.Task) []schema.Member {
	at := t.ExpiresAt
	switch {
	case endingOf(t).code != codeExpired:
		return nil
	case t.Failure.Stage == lifecycle.StageApprovalTimeout && t.Approval != nil:
		at = t.Approval.Deadline
	}
	return []schema.Member{{Name: "expired_at", Value: quote(string(schema.At(at)))}}
}

// immediateText returns a text for the model while t runs.
func immediateText(t task.Task) string {
	if t.Approval != nil && t.Approval.DecidedAt().IsZero() {
		return "The call is waiting for human approval."
	}
	return "The call is being worked on."
}

// StatusMessage returns the status of t in words, for people and models. It consists of
// fixed sentences; foreign text is sanitised and quoted.
func (d Dialect) StatusMessage(t task.Task) string {
	switch t.State {
	case task.Working:
		return "Accepted"
	case task.InputRequired:
		return d.Gate.Waiting(t, d.Now)
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

// runningText returns the status of a running call, with the message of the tool or
// upstream.
func (d Dialect) runningText(t task.Task) string {
	switch {
	case t.Execution == nil:
		return "Running"
	case !d.Gate.Proxy && harmless(t.Execution.Message) != "":
		return harmless(t.Execution.Message)
	case t.AwaitsInput():
		return quoteAfter("Waiting for input from the client", t.Execution.Message)
	case t.Execution.Upstream == gatetask.UpstreamFailed:
		return quoteAfter("The server's task failed", t.Execution.Message)
	case t.Execution.Upstream == gatetask.UpstreamReady:
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

// endText returns the reason for which t ended without a result, and whether the tool ran.
func (d Dialect) endText(t task.Task) string {
	if t.Result != nil && t.Result.Kind == task.ResultRPCError {
		message, _ := jsonrpc.Value{Bytes: t.Result.Inline}.Member("message").Text()
		if !d.Gate.Proxy {
			return cmp.Or(harmless(message), "Failed.")
		}
		return withQuote("The server answered with an error", message)
	}
	text := endSentence(t)
	switch ran(t) {
	case task.RanNo:
		if t.Call.Method != mcpname.ToolsCall {
			return text + " It did not run."
		}
		return text + " The tool did not run."
	case task.RanYes:
		return text
	default:
		return text + " " + lifecycle.RanText(task.RanUnknown)
	}
}

// wordsFor returns the words for the stage at which t ended, if they are known.
func wordsFor(t task.Task) string {
	switch {
	case t.Failure == nil:
		return ""
	case t.Failure.Stage == lifecycle.StageSessionGone && t.Failure.Reason != "":
		return "Approved, but " + safetext.Line(t.Failure.Reason, maxReason) + ". After that, make exactly the same call: it runs then, and nobody is asked again."
	default:
		return lifecycle.WordsOf(t.Failure.Stage).Client
	}
}

// endSentence returns the reason for which t ended without a result.
func endSentence(t task.Task) string {
	nested := t.Execution != nil && t.Execution.UpstreamTask != ""
	switch {
	case t.State == task.Rejected && t.Approval != nil && t.Approval.Rejection != nil:
		return withQuote("Rejected by an approver", t.Approval.Rejection.Reason)
	case t.Failure != nil && t.Failure.Stage == lifecycle.StageShutdown && t.Failure.Ran != task.RanNo:
		return "Interrupted because the server was stopped."
	case nested && t.Failure != nil && t.Failure.Stage == lifecycle.StageUpstreamError:
		return withQuote("The server's task failed", t.Execution.Message)
	default:
		return cmp.Or(wordsFor(t), "Failed.")
	}
}

// correctionOf returns the correction of the rejected call t, or nil.
func correctionOf(t task.Task) *gatetask.Correction {
	if t.State != task.Rejected || t.Approval == nil || t.Approval.Rejection == nil || t.Approval.Rejection.NewGrant == nil {
		return nil
	}
	return t.Approval.Rejection.Correction
}

// correctionText returns the correction of t for a model, or "". The arguments are JSON in one line,
// so they cannot look like anything else, and they are the end of the text.
func correctionText(t task.Task) string {
	c := correctionOf(t)
	if c == nil {
		return ""
	}
	return " The approver approved one call with exactly these arguments instead, until " + string(schema.At(t.Approval.Rejection.NewGrant.Until)) + ":\n" + string(c.Arguments)
}

// corrected returns the members with the correction of t, if it has one.
func corrected(t task.Task) schema.Object {
	c := correctionOf(t)
	if c == nil {
		return nil
	}
	return schema.Object{
		{Name: "corrected_arguments", Value: c.Arguments},
		{Name: "approved_until", Value: quoteTime(t.Approval.Rejection.NewGrant.Until)},
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

// withQuote returns a sentence that quotes foreign, unless that is empty.
func withQuote(sentence, foreign string) string {
	if foreign = harmless(foreign); foreign == "" {
		return sentence + "."
	}
	return sentence + `: "` + foreign + `".`
}

// maxQuote is the largest number of characters in a quotation of foreign text.
const maxQuote = 200

// maxReason is the largest number of characters in a reason of the gate, which may have a link.
const maxReason = 4 << 10

// harmless returns foreign text as one short line of visible characters that
// cannot end its own quotation. Its meaning is not checked.
func harmless(foreign string) string {
	return safetext.Line(strings.ReplaceAll(foreign, `"`, "'"), maxQuote)
}

// A ToolText is a tool result that consists of a text for the model of a client.
type ToolText struct {
	Text  string
	Error bool          // isError
	Meta  schema.Object // none if it is empty

	Structured schema.Object // structuredContent; none if it is empty
}

// ToolResult returns t as the result of a call.
func (d Dialect) ToolResult(t ToolText) json.RawMessage {
	block := schema.Object{{Name: "type", Value: quote("text")}, {Name: "text", Value: quote(t.Text)}}.Text()
	var result schema.Object
	if d.Era == V2026 {
		result = schema.Object{{Name: "resultType", Value: quote(string(schema.Complete))}}
	}
	result = append(result, schema.Member{Name: "content", Value: slices.Concat(json.RawMessage("["), block, json.RawMessage("]"))})
	if len(t.Structured) > 0 {
		result = append(result, schema.Member{Name: "structuredContent", Value: t.Structured.Text()})
	}
	if t.Error {
		result = append(result, schema.Member{Name: "isError", Value: json.RawMessage("true")})
	}
	if len(t.Meta) > 0 {
		result = append(result, schema.Member{Name: "_meta", Value: t.Meta.Text()})
	}
	return result.Text()
}

// ToolError returns a tool result with an error: a text for the model, and a code for the
// client. Its metadata has meta as well.
func (d Dialect) ToolError(text string, code int, errorType string, meta schema.Object) json.RawMessage {
	return d.toolError(ToolText{Text: text, Meta: meta}, d.code(code, errorType))
}

// toolError returns t as an error with a code for the client.
func (d Dialect) toolError(t ToolText, code schema.Object) json.RawMessage {
	if d.Gate.Vendor != "" {
		t.Meta = t.Meta.With(d.Gate.Vendor+"error", code.Text())
	}
	t.Error = true
	return d.ToolResult(t)
}

// code returns the error code of an outcome as an object.
func (d Dialect) code(code int, name string) schema.Object {
	object := schema.Object{{Name: "code", Value: integer(int64(code))}, {Name: "error_type", Value: quote(name)}}
	if d.Gate.Correlation != "" {
		object = append(object, schema.Member{Name: "correlation_id", Value: quote(d.Gate.Correlation)})
	}
	return object
}
