package mcptask

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Era is a generation of MCP tasks.
type Era uint8

// The eras.
const (
	V2025 Era = iota // tasks of MCP 2025-11-25
	V2026            // the tasks extension of MCP 2026-07-28
)

// A Dialect says how tasks are shown to a client. The zero Dialect is that of
// clients of 2025-11-25.
type Dialect struct {
	Era Era

	// PendingStatus is the status of a task that waits for its approvers. In
	// MCP, input_required asks the client itself to act, so anything but
	// InputRequired means Working. It never shows in the answer that creates a
	// task.
	PendingStatus Status

	// Proxy says that a server behind this program does the work. Its words are
	// quoted, because the program does not answer for them. A server that does the
	// work itself speaks in its own words.
	Proxy bool

	// Drafts adds to _meta what SEP-2643 and SEP-2848 propose, for clients of
	// 2026-07-28.
	Drafts bool

	// Errors answers a call of 2025-11-25 that was not allowed to run with a JSON-RPC
	// error. Otherwise the answer is a tool result, because many hosts do not show
	// errors to their models.
	Errors bool

	// Correlation is the name of the request in logs, if it has one. Results and
	// errors of the gate's own carry it.
	Correlation string

	// Page returns where people decide about a task. It may be nil.
	Page func(task.ID) string

	// MinPoll is the shortest interval at which clients are asked to poll a new task.
	MinPoll time.Duration

	// Now is the time at which tasks are shown. If it is zero, nothing is said of
	// the time that is left.
	Now time.Time
}

// MetaError is the name in _meta of the code that tells a program why a call was
// not allowed to run.
const MetaError = "thoughtgate/error"

// Names of variables that have a meaning; see [task.Variables].
const (
	VariableApproval = "server.approval" // how far the approval has come
	VariableReason   = "client.reason"   // why the client makes the call, in its own words
)

// Status returns the status of t.
func (d Dialect) Status(t task.Task) Status {
	switch t.State {
	case task.Completed:
		if d.Era == V2025 && t.Result != nil && t.Result.Kind == task.ResultToolError {
			return Failed
		}
		return Completed
	case task.Cancelled:
		return Cancelled
	case task.Failed, task.Rejected, task.Expired:
		if d.Era == V2026 && refused(t) {
			return Completed
		}
		return Failed
	default:
		return d.pendingStatus(t)
	}
}

func (d Dialect) pendingStatus(t task.Task) Status {
	literal := d.PendingStatus == InputRequired && t.State == task.InputRequired
	switch {
	case literal || t.Asks():
		return InputRequired
	case d.Era == V2026 || t.State != task.Executing || t.Execution == nil:
		return Working
	case t.Execution.Upstream == task.UpstreamReady:
		return Completed // and the result is fetched when the client asks for it
	case t.Execution.Upstream == task.UpstreamFailed:
		return Failed
	default:
		return Working
	}
}

// inputRequests returns what the upstream of a running task asks of the client,
// or nil if it asks for nothing.
func inputRequests(t task.Task) json.RawMessage {
	if t.State != task.Executing || t.Execution == nil || isEmpty(jsonrpc.Value{Bytes: t.Execution.InputRequests}) {
		return nil
	}
	return t.Execution.InputRequests
}

// CreateResult returns the answer to a request that became t. Its status is
// always [Working], which is what the protocol wants of a new task.
func (d Dialect) CreateResult(t task.Task) (json.RawMessage, error) {
	meta := metaOf(t)
	if d.Era == V2026 {
		return encode(CreateResult2026{ResultType: TaskResult, Task2026: d.modernTask(t, Working), Meta: meta})
	}
	meta = WithImmediateResponse(meta, immediateText(t))
	return encode(CreateResult2025{Task: d.legacyTask(t, Working), Meta: meta})
}

// GetResult returns the answer to tasks/get. That to a client of 2025-11-25 has no
// place for an upstream's answer, which it asks for with tasks/result.
func (d Dialect) GetResult(t task.Task) (Text, error) {
	meta := metaOf(t)
	if d.Era == V2025 {
		return encodeText(TaskResult2025{Task2025: d.legacyTask(t, d.Status(t)), Meta: meta})
	}
	meta = d.disposed(meta, t)
	detailed, payload, err := d.detailed(t)
	if err != nil {
		return Text{}, err
	}
	if !payload.text.Present() {
		return encodeText(GetResult2026{ResultType: Complete, DetailedTask: detailed, Meta: meta})
	}
	text, err := encode(GetResult2026{ResultType: Complete, DetailedTask: detailed})
	after := "}"
	if meta != nil {
		after = `,"_meta":` + string(meta.text()) + after
	}
	return payload.in(text, "}", after), err
}

// CancelResult returns the answer to tasks/cancel: for 2025-11-25 the task, for
// 2026-07-28 an acknowledgement.
func (d Dialect) CancelResult(t task.Task) (json.RawMessage, error) {
	if d.Era == V2026 {
		return encode(Ack2026{ResultType: Complete})
	}
	return encode(TaskResult2025{Task2025: d.legacyTask(t, d.Status(t)), Meta: metaOf(t)})
}

// ListResult returns the answer to tasks/list, which only 2025-11-25 has.
func (d Dialect) ListResult(page task.Page) (json.RawMessage, error) {
	list := ListResult2025{Tasks: make([]Task2025, len(page.Tasks)), NextCursor: page.Next}
	for i, t := range page.Tasks {
		list.Tasks[i] = d.legacyTask(t, d.Status(t))
	}
	return encode(list)
}

// StatusNotification returns the message that notifies a client of a change of t.
// Subscription is the JSON-RPC id of the subscriptions/listen request to which
// the message belongs, as it is written; clients of 2025-11-25 have none.
func (d Dialect) StatusNotification(t task.Task, subscription json.RawMessage) (Text, error) {
	meta := metaOf(t)
	if d.Era == V2025 {
		params := TaskResult2025{Task2025: d.legacyTask(t, d.Status(t)), Meta: meta}
		return encodeText(notification(MethodStatus2025, params))
	}
	detailed, payload, err := d.detailed(t)
	if err != nil {
		return Text{}, err
	}
	params := StatusParams2026{Meta: WithSubscriptionID(d.disposed(meta, t), subscription), DetailedTask: detailed}
	if !payload.text.Present() {
		return encodeText(notification(MethodStatus2026, params))
	}
	text, err := encode(notification(MethodStatus2026, params))
	return payload.in(text, "}}", "}}"), err
}

func encodeText(v any) (Text, error) {
	text, err := encode(v)
	return textOf(text), err
}

func (d Dialect) legacyTask(t task.Task, status Status) Task2025 {
	return Task2025{
		TaskID: string(t.ID), Status: status, StatusMessage: d.StatusMessage(t),
		CreatedAt: At(t.CreatedAt), LastUpdatedAt: At(t.UpdatedAt),
		TTL: new(MillisOf(t.TTL())), PollInterval: d.pollInterval(t),
	}
}

func (d Dialect) modernTask(t task.Task, status Status) Task2026 {
	return Task2026{
		TaskID: string(t.ID), Status: status, StatusMessage: d.StatusMessage(t),
		CreatedAt: At(t.CreatedAt), LastUpdatedAt: At(t.UpdatedAt),
		TTL: new(MillisOf(t.TTL())), PollInterval: d.pollInterval(t),
	}
}

// How often to ask for a task at first. People often decide at once, and a client
// that asks every half minute would tell of it half a minute late.
const (
	firstMinute  = 2 * time.Second
	secondMinute = 5 * time.Second
)

// pollInterval returns how often to ask for t, or nil when there is nothing
// left to ask for.
func (d Dialect) pollInterval(t task.Task) *Millis {
	if t.State.Terminal() || t.PollInterval <= 0 || t.State == task.Executing && t.Execution != nil && t.Execution.Upstream.Ended() {
		return nil
	}
	interval := t.PollInterval
	switch age := d.Now.Sub(t.CreatedAt); {
	case d.Now.IsZero():
	case age < time.Minute:
		interval = min(interval, max(firstMinute, d.MinPoll))
	case age < 2*time.Minute:
		interval = min(interval, max(secondMinute, d.MinPoll))
	}
	return new(MillisOf(interval))
}

// A payload is an upstream's answer as the last member of a task.
type payload struct {
	name string
	text Text // absent if the task has no answer of an upstream's
}

// in returns an encoded task, which ends with tail, with the payload in it and
// after behind.
func (p payload) in(encoded json.RawMessage, tail, after string) Text {
	return p.text.Around(string(bytes.TrimSuffix(encoded, []byte(tail)))+`,"`+p.name+`":`, after)
}

// detailed returns t with what its status calls for, but for the answer of an
// upstream, which has yet to get its place.
func (d Dialect) detailed(t task.Task) (DetailedTask, payload, error) {
	status := d.Status(t)
	detailed := DetailedTask{Task2026: d.modernTask(t, status)}
	switch status {
	case InputRequired:
		// A task that waits for people elsewhere asks nothing of the client.
		detailed.InputRequests = Object{}
		if asked := inputRequests(t); asked != nil {
			return detailed, payload{}, jsonv2.Unmarshal(asked, &detailed.InputRequests)
		}
		return detailed, payload{}, nil
	case Completed, Failed:
		answer, err := d.Answer(t)
		switch {
		case t.Result == nil:
			detailed.Result, detailed.Error = answer.Result.before, answer.Error.before
			return detailed, payload{}, err
		case answer.Error.Present():
			return detailed, payload{"error", answer.Error}, err
		default:
			// A note of the task it belongs to would be the upstream's, and a
			// modern client is not to see one.
			answer.Result.edit = &jsonrpc.MemberEdit{Outer: "_meta", Inner: MetaRelatedTask}
			return detailed, payload{"result", answer.Result}, err
		}
	default:
		return detailed, payload{}, nil
	}
}

// metaOf returns the variables of t and how far its approval has come.
func metaOf(t task.Task) Object {
	var meta Object
	for _, name := range slices.Sorted(maps.Keys(t.Variables)) {
		meta = append(meta, Member{name, t.Variables[name]})
	}
	if t.Approval == nil {
		return meta
	}
	return meta.With(VariableApproval, approvalOf(t).text())
}

// approvalOf returns the value of the variable server.approval. It does not say
// who the approvers are.
func approvalOf(t task.Task) Object {
	state, decided := "pending", t.Approval.DecidedAt()
	switch {
	case t.Approval.Rejection != nil:
		state = "rejected"
	case !decided.IsZero():
		state = "approved"
	case t.State.Terminal():
		state = string(t.State) // ended before anybody decided
	}
	approval := Object{{"state", quote(state)}}
	if t.Workflow != "" {
		approval = append(approval, Member{"workflow", quote(t.Workflow)})
	}
	approval = append(approval, Member{"expiresAt", quoteTime(t.Approval.Deadline)})
	if !decided.IsZero() {
		approval = append(approval, Member{"decidedAt", quoteTime(decided)})
	}
	return approval
}

func quoteTime(t time.Time) json.RawMessage { return quote(string(At(t))) }
