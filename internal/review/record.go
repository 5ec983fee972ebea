package review

import (
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// maxRecorded is how many bytes of the shown arguments the record of calls keeps.
const maxRecorded = 2 << 10

// EndOf returns the entry of the record of calls about the end of t.
func (v *Viewer) EndOf(t task.Task) callrecord.Entry {
	f, last := ReadFacts(t), t.Transitions[len(t.Transitions)-1]
	e := callrecord.Entry{
		Time: last.At, Event: callrecord.Ended, ID: string(t.ID), Upstream: t.Call.Upstream, Method: t.Call.Method, Name: t.Call.Name,
		Client: callrecord.Client{Name: f.Session.Client, Version: f.Session.Version, Protocol: f.Session.Protocol},
		Hints:  f.Annotations,
		Action: policy.Approve, Workflow: t.Workflow, Snapshot: t.Verdict.Snapshot,
		Outcome: string(t.State), Took: last.At.Sub(t.CreatedAt), Decided: t.Approval.DecidedAt(),
	}
	if !f.Principal.Anonymous {
		e.Principal, e.Groups = f.Principal.ID, f.Principal.Groups
	}
	if f.HeldBy != nil {
		e.Rule, e.Policies = f.HeldBy.Label, f.HeldBy.Policies
	}
	if t.Failure != nil {
		e.Stage, e.Ran = t.Failure.Stage, t.Failure.Ran
	}
	if t.Approval == nil {
		e.Action = policy.Forward // held only because the client wants a task
		return e
	}
	//mutate:swap "v.preview(t, maxRecorded)" "&Preview{Arguments: []byte(t.Call.Arguments)}" internal/app.TestHistoryReadsTheRecord redacted arguments are recorded
	p := v.preview(t, maxRecorded)
	e.Shown, e.Cut = p.Arguments, p.Truncated
	for _, d := range t.Approval.Approvals {
		e.By, e.Reason, e.Grant = append(e.By, d.By), d.Reason, string(d.Grant)
	}
	if r := t.Approval.Rejection; r != nil {
		e.By, e.Reason, e.Grant = append(e.By, r.By), r.Reason, ""
	}
	return e
}
