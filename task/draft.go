package task

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Draft describes a new task.
type Draft struct {
	ID           ID // see [NewID]
	Owner        string
	Call         Call
	TTL          time.Duration // see [TTLRules]
	PollInterval time.Duration // see [Polling]

	// Variables are written together with the task. If one is refused, no task is made.
	Variables []VariableChange

	// The rest is for gateways; see [gatetask.HeldCall]. Calls with the same SharedDigest
	// count as identical; zero means the digest of Call. OwnerWaits reports whether the
	// owner waits in the request that makes the call.
	Group        string
	SharedDigest Digest
	Workflow     string
	Verdict      gatetask.Verdict
	OwnerWaits   bool
}

// New returns a task that is made at time now, in state [Working]. It returns
// [ErrInvalid] if a field of d is missing or cannot be stored, and
// the error of [VariableChange.To] if the variables are refused.
func New(d Draft, now time.Time) (Task, error) {
	now = precise(now)
	digest, err := d.Call.Digest()
	if err != nil {
		return Task{}, &Error{Kind: ErrInvalid, ID: d.ID, Action: action.Create, Err: err}
	}
	if wrong := d.check(); wrong != "" {
		return Task{}, &Error{Kind: ErrInvalid, ID: d.ID, Action: action.Create, Detail: wrong}
	}
	t := Task{
		ID: d.ID, Version: 1, State: Working,
		Owner: d.Owner, Call: d.Call, Digest: digest,
		CreatedAt: now, UpdatedAt: now,
		ExpiresAt: precise(now.Add(d.TTL)), PollInterval: d.PollInterval.Truncate(time.Microsecond),
		HeldCall: gatetask.HeldCall{Group: d.Group, Workflow: d.Workflow, Verdict: d.Verdict, ContactAt: now},
	}
	if (d.SharedDigest != Digest{}) && d.SharedDigest != digest {
		//mutate:swap "digest" "d.SharedDigest" internal/mcphttp.TestAttachedCallRunsAsShown what runs is not compared with all of what was shown
		t.Digest, t.FullDigest = d.SharedDigest, &digest
	}
	if d.OwnerWaits {
		t.WaitsUntil = now.Add(2 * t.PollInterval)
	}
	for _, set := range d.Variables {
		changed, refused := set.To(t.Variables)
		if refused != nil {
			return Task{}, (&Task{ID: d.ID}).Refuse(refused, action.Create)
		}
		t.Variables = changed
	}
	return t, nil
}

func (d Draft) check() string {
	switch {
	case d.ID == "":
		return "no id"
	case d.Owner == "":
		return "no owner"
	case d.TTL < time.Microsecond:
		return "no time to live"
	case d.PollInterval < 0:
		return "negative poll interval"
	}
	for _, text := range []string{
		string(d.ID), d.Owner, d.Group, d.Workflow, d.Call.Upstream, d.Call.Method, d.Call.Name, d.Call.Message, d.Call.Also,
		d.Verdict.Reason, d.Verdict.Snapshot, d.Verdict.ToolDigest, d.Verdict.Facts,
	} {
		if !utf8.ValidString(text) {
			return "invalid UTF-8"
		}
	}
	return ""
}

// Check returns [ErrInvalid] if [New] and [lifecycle.Apply] cannot have made t in a
// gateway. It is for tasks that are imported into a store.
func (t Task) Check() error {
	if wrong := t.problem(); wrong != "" {
		return &Error{Kind: ErrInvalid, ID: t.ID, State: t.State, Action: action.Create, Detail: wrong}
	}
	return nil
}

// problem returns what is wrong with t, or an empty text.
func (t *Task) problem() string {
	switch {
	case !t.ID.wellFormed():
		return "malformed id"
	case t.Owner == "" || strings.ContainsRune(t.Owner+t.Group, 0):
		return "malformed owner"
	case t.Version < 1:
		return "no version"
	case t.PollInterval < 0 || t.CreatedAt.IsZero() || t.ExpiresAt.Before(t.CreatedAt):
		return "no time to live"
	case t.missesParts():
		return "parts are missing"
	case t.Result != nil && !t.Result.wellFormed():
		return "malformed result"
	default:
		return ""
	}
}

// wellFormed reports whether a gateway can have made the ID.
func (id ID) wellFormed() bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return id.Own() && len(id) <= MaxID && strings.Trim(string(id), letters) == ""
}

// missesParts reports whether a field that t's state needs is nil.
func (t *Task) missesParts() bool {
	switch t.State {
	case InputRequired:
		return t.Approval == nil
	case Executing:
		return t.Execution == nil
	case Completed:
		return t.Result == nil
	default:
		return t.State.Terminal() && t.Failure == nil
	}
}

// wellFormed reports whether a gateway can have kept r.
func (r *Result) wellFormed() bool {
	return r.Sound() && r.Chunks <= MaxChunks && int64(r.Chunks) <= r.Size
}

// Refuse adds t and the action a to e, the error for which a cannot happen to t.
func (t *Task) Refuse(e *Error, a action.Name) *Error {
	e.ID, e.State, e.Action = t.ID, t.State, a
	if e.Suggest == "" {
		e.Suggest = suggestions[e.Kind]
	}
	return e
}
