package mcptask

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An Era is a version of MCP tasks: their messages and their meaning.
type Era uint8

// The eras.
const (
	V2025 Era = iota // tasks of MCP 2025-11-25
	V2026            // the tasks extension of MCP 2026-07-28
)

// A Dialect determines how tasks are shown to a client. The zero Dialect is for clients
// of 2025-11-25.
type Dialect struct {
	Era Era

	// Gate has what only gateways need. Servers leave it out.
	Gate gatedialect.Options

	// Now is the time for which messages are written. If it is zero, messages omit the
	// remaining time.
	Now time.Time
}

// variableApproval is the variable with the state of an approval.
const variableApproval = "server.approval"

// Status returns the status of t.
func (d Dialect) Status(t task.Task) schema.Status {
	switch t.State {
	case task.Completed:
		if d.Era == V2025 && t.Result != nil && t.Result.Kind == task.ResultToolError {
			return schema.Failed
		}
		return schema.Completed
	case task.Cancelled:
		return schema.Cancelled
	case task.Failed, task.Rejected, task.Expired:
		if d.Era == V2026 && refused(t) {
			return schema.Completed
		}
		return schema.Failed
	default:
		return d.pendingStatus(t)
	}
}

func (d Dialect) pendingStatus(t task.Task) schema.Status {
	literal := d.Gate.PendingStatus == schema.InputRequired && t.State == task.InputRequired
	switch {
	case literal || t.AwaitsInput():
		return schema.InputRequired
	case d.Era == V2026 || t.State != task.Executing || t.Execution == nil:
		return schema.Working
	case t.Execution.Upstream == gatetask.UpstreamReady:
		return schema.Completed // and the result is fetched when the client asks for it
	case t.Execution.Upstream == gatetask.UpstreamFailed:
		return schema.Failed
	default:
		return schema.Working
	}
}

// inputRequests returns the questions of a running task to the client, or nil.
func inputRequests(t task.Task) json.RawMessage {
	if t.State != task.Executing || t.Execution == nil || (jsonrpc.Value{Bytes: t.Execution.InputRequests}).IsEmptyObject() {
		return nil
	}
	return t.Execution.InputRequests
}

// CreateResult returns the answer to a request that became t. Its status is
// always [schema.Working], as the protocol requires for a new task.
func (d Dialect) CreateResult(t task.Task) (json.RawMessage, error) {
	meta := metaOf(t)
	if d.Era == V2026 {
		return encode(schema.CreateResult2026{ResultType: schema.TaskResult, Task2026: d.modernTask(t, schema.Working), Meta: meta})
	}
	meta = schema.WithImmediateResponse(meta, immediateText(t))
	return encode(schema.CreateResult2025{Task: d.legacyTask(t, schema.Working), Meta: meta})
}

// GetResult returns the answer to tasks/get. A client of 2025-11-25 fetches the
// answer of the upstream with tasks/result instead.
func (d Dialect) GetResult(t task.Task) (Text, error) {
	meta := metaOf(t)
	if d.Era == V2025 {
		return encodeText(schema.TaskResult2025{Task2025: d.legacyTask(t, d.Status(t)), Meta: meta})
	}
	meta = d.disposed(meta, t)
	detailed, payload, err := d.detailed(t)
	if err != nil {
		return Text{}, err
	}
	if !payload.text.Present() {
		return encodeText(schema.GetResult2026{ResultType: schema.Complete, DetailedTask: detailed, Meta: meta})
	}
	text, err := encode(schema.GetResult2026{ResultType: schema.Complete, DetailedTask: detailed})
	after := "}"
	if meta != nil {
		after = `,"_meta":` + string(meta.Text()) + after
	}
	return payload.in(text, "}", after), err
}

// CancelResult returns the answer to tasks/cancel: for 2025-11-25 the task, for
// 2026-07-28 an acknowledgement.
func (d Dialect) CancelResult(t task.Task) (json.RawMessage, error) {
	if d.Era == V2026 {
		return encode(schema.Ack2026{ResultType: schema.Complete})
	}
	return encode(schema.TaskResult2025{Task2025: d.legacyTask(t, d.Status(t)), Meta: metaOf(t)})
}

// ListResult returns the answer to tasks/list, which only 2025-11-25 has.
func (d Dialect) ListResult(page task.Page) (json.RawMessage, error) {
	list := schema.ListResult2025{Tasks: make([]schema.Task2025, len(page.Tasks)), NextCursor: page.Next}
	for i, t := range page.Tasks {
		list.Tasks[i] = d.legacyTask(t, d.Status(t))
		if d.Gate.Vendor != "" && t.Call.Method == mcpname.ToolsCall {
			list.Tasks[i].Extra = schema.Object{{Name: "_meta", Value: schema.Object{{Name: d.Gate.Vendor + "tool", Value: quote(t.Call.Name)}}.Text()}}
		}
	}
	return encode(list)
}

// StatusNotification returns the message that notifies a client of a change of t.
// Subscription is the JSON-RPC id of the subscriptions/listen request to which
// the message belongs, as it is written; clients of 2025-11-25 have none.
func (d Dialect) StatusNotification(t task.Task, subscription json.RawMessage) (Text, error) {
	meta := metaOf(t)
	if d.Era == V2025 {
		params := schema.TaskResult2025{Task2025: d.legacyTask(t, d.Status(t)), Meta: meta}
		return encodeText(notification(mcpname.NotifyTasksStatus, params))
	}
	detailed, payload, err := d.detailed(t)
	if err != nil {
		return Text{}, err
	}
	params := schema.StatusParams2026{Meta: schema.WithSubscriptionID(d.disposed(meta, t), subscription), DetailedTask: detailed}
	if !payload.text.Present() {
		return encodeText(notification(mcpname.NotifyTasks, params))
	}
	text, err := encode(notification(mcpname.NotifyTasks, params))
	return payload.in(text, "}}", "}}"), err
}

func encodeText(v any) (Text, error) {
	text, err := encode(v)
	return textOf(text), err
}

func (d Dialect) legacyTask(t task.Task, status schema.Status) schema.Task2025 {
	return schema.Task2025{
		TaskID: string(t.ID), Status: status, StatusMessage: d.StatusMessage(t),
		CreatedAt: schema.At(t.CreatedAt), LastUpdatedAt: schema.At(t.UpdatedAt),
		TTL: new(schema.MillisOf(t.TTL())), PollInterval: d.pollInterval(t),
	}
}

// modernTask differs from legacyTask in the names of members only.
func (d Dialect) modernTask(t task.Task, status schema.Status) schema.Task2026 {
	return schema.Task2026(d.legacyTask(t, status))
}

// Poll intervals of a new task. People often decide at once, and a client with a long
// interval would learn of it late.
const (
	firstMinute  = 2 * time.Second
	secondMinute = 5 * time.Second
)

// pollInterval returns the poll interval of t, or nil if there is no reason to poll.
func (d Dialect) pollInterval(t task.Task) *schema.Millis {
	if t.State.Terminal() || t.PollInterval <= 0 || t.State == task.Executing && t.Execution != nil && t.Execution.Upstream.Ended() {
		return nil
	}
	interval := t.PollInterval
	switch age := d.Now.Sub(t.CreatedAt); {
	case d.Now.IsZero():
	case age < time.Minute:
		interval = min(interval, max(firstMinute, d.Gate.MinPoll))
	case age < 2*time.Minute:
		interval = min(interval, max(secondMinute, d.Gate.MinPoll))
	}
	return new(schema.MillisOf(interval))
}

// A payload is an upstream's answer as the last member of a task.
type payload struct {
	name string
	text Text // absent if the task has no answer of an upstream's
}

// in inserts the payload before tail, the end of the encoded task, and replaces tail by
// after.
func (p payload) in(encoded json.RawMessage, tail, after string) Text {
	return p.text.Wrap(string(bytes.TrimSuffix(encoded, []byte(tail)))+`,"`+p.name+`":`, after)
}

// detailed returns t with the members that its status requires. The answer of an upstream
// is returned as a payload, which the caller inserts.
func (d Dialect) detailed(t task.Task) (schema.DetailedTask, payload, error) {
	status := d.Status(t)
	detailed := schema.DetailedTask{Task2026: d.modernTask(t, status)}
	switch status {
	case schema.InputRequired:
		// A task that waits for approvers has no questions to the client.
		detailed.InputRequests = schema.Object{}
		if asked := inputRequests(t); asked != nil {
			return detailed, payload{}, jsonv2.Unmarshal(asked, &detailed.InputRequests)
		}
		return detailed, payload{}, nil
	case schema.Completed, schema.Failed:
		answer, err := d.Outcome(t)
		switch {
		case t.Result == nil:
			detailed.Result, detailed.Error = answer.Result.before, answer.Error.before
			return detailed, payload{}, err
		case answer.Error.Present():
			return detailed, payload{"error", answer.Error}, err
		default:
			// The related task would be the upstream's, and messages of
			// 2026-07-28 must not have one.
			answer.Result.edit = &jsonrpc.MemberEdit{Outer: "_meta", Inner: mcpname.MetaRelatedTask}
			return detailed, payload{"result", answer.Result}, err
		}
	default:
		return detailed, payload{}, nil
	}
}

// metaOf returns the variables of t and the state of its approval.
func metaOf(t task.Task) schema.Object {
	var meta schema.Object
	for _, name := range slices.Sorted(maps.Keys(t.Variables)) {
		meta = append(meta, schema.Member{Name: name, Value: t.Variables[name]})
	}
	if t.Approval == nil {
		return meta
	}
	return meta.With(variableApproval, approvalOf(t).Text())
}

// approvalOf returns the value of the variable server.approval. It does not
// name the approvers.
func approvalOf(t task.Task) schema.Object {
	state, decided := "pending", t.Approval.DecidedAt()
	switch {
	case t.Approval.Rejection != nil:
		state = "rejected"
	case !decided.IsZero():
		state = "approved"
	case t.State.Terminal():
		state = string(t.State) // ended before a decision
	}
	approval := schema.Object{{Name: "state", Value: quote(state)}}
	if t.Workflow != "" {
		approval = append(approval, schema.Member{Name: "workflow", Value: quote(t.Workflow)})
	}
	approval = append(approval, schema.Member{Name: "expiresAt", Value: quoteTime(t.Approval.Deadline)})
	if !decided.IsZero() {
		approval = append(approval, schema.Member{Name: "decidedAt", Value: quoteTime(decided)})
	}
	return approval
}

func quoteTime(t time.Time) json.RawMessage { return quote(string(schema.At(t))) }
