package review

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An Approval is a held call as approvers see it. Arguments are redacted and limited in size. Only
// Name can contain hidden characters. Tool, Name, Arguments, AlsoSent, Description and
// ClientReason come from agents and upstreams: do not trust them.
type Approval struct {
	ID                 task.ID        `json:"id"`
	State              task.State     `json:"state"`
	Tool               string         `json:"tool"`          // the escaped name: see [safetext.Name]
	Name               string         `json:"name,omitzero"` // the exact name; it may contain hidden characters
	Method             string         `json:"method"`
	Upstream           string         `json:"upstream"`
	Arguments          jsontext.Value `json:"arguments,omitzero"` // a string with the first part if they are too long
	ArgumentsTruncated bool           `json:"argumentsTruncated,omitzero"`
	AlsoSent           jsontext.Value `json:"alsoSent,omitzero"`    // other members sent upstream; a string with the first part if they are too long
	UnreadBytes        int            `json:"unreadBytes,omitzero"` // number of omitted bytes, set by [Viewer.Show]
	Principal          string         `json:"principal"`
	Anonymous          bool           `json:"anonymous,omitzero"`
	Client             string         `json:"client,omitzero"` // the name of the agent's program
	Explanation
	Cautions
	Digests
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt"`           // deadline of the decision while pending, then of the task
	ValidUntil time.Time `json:"validUntil,omitzero"` // an approved call can run until then
	Decisions
	Failure          *task.Failure `json:"failure,omitzero"`
	Agent            *Agent        `json:"agent,omitzero"`            // until the call runs
	Requests         int           `json:"requests,omitzero"`         // number of identical requests that waited at the same time, if several did
	Next             string        `json:"next,omitzero"`             // what happens next to an approved call
	NoApprovalNeeded bool          `json:"noApprovalNeeded,omitzero"` // policy did not require an approval
	Result           *Result       `json:"result,omitzero"`           // set by [Viewer.Show]
}

// Decisions are the decisions of approvers and the required number of approvals.
type Decisions struct {
	Quorum    int                 `json:"quorum,omitzero"`
	Confirm   string              `json:"confirm,omitzero"` // passkey, if approvers need one
	Approvals []gatetask.Decision `json:"approvals,omitempty"`
	Rejection *gatetask.Decision  `json:"rejection,omitzero"`
}

// An Explanation is what policy, the upstream and the agent say about a call.
type Explanation struct {
	Workflow     string     `json:"workflow"`
	Reason       string     `json:"reason"` // why it is held
	HeldBy       *HeldBy    `json:"why,omitzero"`
	Description  string     `json:"description,omitzero"`
	Hints        *Hints     `json:"hints,omitzero"`
	ClientReason *Untrusted `json:"clientReason,omitzero"`
}

// Cautions are the first things that a reader should know. They are derived from the rest of an
// [Approval].
type Cautions struct {
	Risk     Risk     `json:"risk,omitzero"`      // the possible effect of the call
	Warnings []string `json:"warnings,omitempty"` // about lookalike characters
}

// Digests identify a call, its tool and its policy.
type Digests struct {
	Digest      task.Digest `json:"digest"`
	ShownDigest string      `json:"shownDigest,omitzero"` // the digest of this view, set by [Viewer.Show]; an approval must name it
	ToolDigest  string      `json:"toolDigest,omitzero"`
	Policy      string      `json:"policy,omitzero"` // the policy snapshot that held the call
}

// Hints are the tool annotations of the upstream.
type Hints struct {
	Title       string `json:"title,omitzero"`
	ReadOnly    *bool  `json:"readOnly,omitzero"`
	Destructive *bool  `json:"destructive,omitzero"`
	Idempotent  *bool  `json:"idempotent,omitzero"`
	OpenWorld   *bool  `json:"openWorld,omitzero"`
}

// An Untrusted is text that an agent wrote for approvers.
type Untrusted struct {
	Text      string `json:"text"`
	Untrusted bool   `json:"untrusted"` // always true, as a reminder to readers of the JSON
}

// How many bytes of the arguments are shown.
const (
	maxListed = 4 << 10       // in a list
	MaxShown  = 64 << 10      // of one call
	unbounded = math.MaxInt32 // of one call, if everything is requested
)

// How many characters of other texts are shown.
const (
	maxName   = 300 // of a name
	MaxReason = 500 // of a reason
)

// ClientReason is the variable in which an agent gives the reason for its call.
const ClientReason = "client.reason"

// Show returns one held call with the first [MaxShown] bytes of its arguments.
func (v *Viewer) Show(ctx context.Context, id task.ID) (Approval, error) {
	return v.show(ctx, id, MaxShown, nothingElse)
}

// ShowAll returns one held call with all of its arguments.
func (v *Viewer) ShowAll(ctx context.Context, id task.ID) (Approval, error) {
	return v.show(ctx, id, unbounded, nothingElse)
}

func nothingElse(context.Context, task.Task) error { return nil }

// ShowWithChange returns one held call as [Viewer.Show] does, and the change of its tool since it
// was last approved, if there is one or if that is unknown.
func (v *Viewer) ShowWithChange(ctx context.Context, id task.ID) (a Approval, changed *ToolChange, err error) {
	a, err = v.show(ctx, id, MaxShown, func(ctx context.Context, t task.Task) (err error) {
		if t.State == task.InputRequired {
			changed, err = v.changed(ctx, t)
		}
		return err
	})
	return a, changed, err
}

// show returns one held call with at most the given size of arguments, after calling also.
func (v *Viewer) show(ctx context.Context, id task.ID, most int, also func(context.Context, task.Task) error) (a Approval, err error) {
	err = v.read(ctx, id, func(ctx context.Context, t task.Task) error {
		if a, err = v.viewToDecide(ctx, t, most); err != nil {
			return err
		}
		a.Result = v.result(ctx, t)
		a = a.withCautions()
		return cmp.Or(ctx.Err(), also(ctx, t))
	})
	return a, err
}

// read calls do with a current task, within the limits for operators.
func (v *Viewer) read(ctx context.Context, id task.ID, do func(context.Context, task.Task) error) error {
	ctx, done, err := v.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	t, err := v.cfg.Get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return err
	}
	return do(ctx, t)
}

// View returns t as lists show it.
func (v *Viewer) View(t task.Task) Approval {
	f := ReadFacts(t)
	p := v.keptPreview(t, f)
	if p == nil {
		p = v.preview(t, maxListed)
	}
	return v.describe(t, f, p, maxListed)
}

// toolOf returns the escaped name of the tool of t. Each name in a batch is escaped separately, so
// that a space at its end is visible.
func toolOf(t task.Task, f Facts, most int) string {
	var names []string
	for _, m := range f.ToolsInBatch {
		if m.Name != "" {
			names = append(names, m.Name)
		}
	}
	if t.Call.Method != MethodBatch || len(names) == 0 {
		return safetext.Name(t.Call.Name, most)
	}
	return safetext.Truncate(strings.Join(names, ", "), most)
}

// describe returns the view of t. An outline of t is enough.
func (v *Viewer) describe(t task.Task, f Facts, p *Preview, most int) Approval {
	return v.facts(t, f, p, most).withCautions()
}

// withCautions returns a with its cautions.
func (a Approval) withCautions() Approval {
	//mutate:swap "LookalikeWarnings(a)" "nil" internal/approval/api.TestWarnings a letter of another script in a value is not reported
	a.Cautions = Cautions{a.Hints.Risk(), LookalikeWarnings(a)}
	return a
}

// facts returns the view of t without cautions, which are not part of any digest.
func (v *Viewer) facts(t task.Task, f Facts, p *Preview, most int) Approval {
	a := Approval{
		ID: t.ID, State: t.State, Tool: toolOf(t, f, most), Name: t.Call.Name, Method: t.Call.Method, Upstream: t.Call.Upstream,
		Principal: safetext.Name(f.Principal.ID, maxName), Anonymous: f.Principal.Anonymous,
		Client: safetext.Text(f.Session.Client+" "+f.Session.Version, maxName),
		Explanation: Explanation{
			Workflow: t.Workflow, Reason: safetext.Text(t.Verdict.Reason, MaxReason), HeldBy: f.heldBy(), Description: f.description(),
			Hints: f.hints(), ClientReason: clientReason(t),
		},
		Digests:   Digests{Digest: t.CallDigest(), ToolDigest: t.Verdict.ToolDigest, Policy: t.Verdict.Snapshot},
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, Failure: t.Failure,
	}
	a.Arguments, a.ArgumentsTruncated, a.AlsoSent = p.Arguments, p.Truncated, p.Also
	a.NoApprovalNeeded = t.Approval == nil && t.State != task.Working
	a.Agent = agentOf(t, v.cfg.Now())
	a.Requests = Requests(t)
	if asked := t.Approval; asked != nil {
		a.Quorum, a.Approvals, a.Rejection = asked.Quorum, plainDecisions(asked.Approvals), v.shownRejection(t)
		if w, _ := v.cfg.Workflow(t); NeedsPasskey(w, t) {
			a.Confirm = "passkey"
		}
		if t.State == task.InputRequired {
			a.ExpiresAt = asked.Deadline
		}
		if t.State == task.Approved {
			w, _ := v.cfg.Workflow(t)
			a.ValidUntil = ValidUntil(t, w.Validity)
		}
	}
	a.Next = v.nextOf(t, a.Agent, cmp.Or(a.ValidUntil, a.ExpiresAt))
	return a
}

// NeedsPasskey reports whether approvals of t, a task of workflow w, need the signature of a passkey.
func NeedsPasskey(w policy.Workflow, t task.Task) bool {
	//mutate:swap "w.Passkey || " "" internal/approval.TestPasskeyIsNeeded calls that were held before need no passkey
	//mutate:swap "t.Approval != nil && t.Approval.Passkey" "false" internal/approval.TestPasskeyIsNeeded a changed workflow makes an approval by token count
	return w.Passkey || t.Approval != nil && t.Approval.Passkey
}

// plainShape returns s with escaped names of arguments and directories.
func plainShape(s gatetask.GrantShape) gatetask.GrantShape {
	plain := gatetask.GrantShape{Reach: s.Reach, Tools: s.Tools}
	for _, name := range s.Free {
		plain.Free = append(plain.Free, safetext.Name(name, maxName))
	}
	for _, b := range s.Below {
		plain.Below = append(plain.Below, gatetask.GrantBelow{Argument: safetext.Name(b.Argument, maxName), Directory: safetext.Name(b.Directory, maxName)})
	}
	return plain
}

// plainDecisions returns decisions with escaped names of arguments.
func plainDecisions(all []gatetask.Decision) []gatetask.Decision {
	all = slices.Clone(all)
	for i, d := range all {
		if d.NewGrant == nil {
			continue
		}
		terms := *d.NewGrant
		terms.GrantShape = plainShape(terms.GrantShape)
		all[i].NewGrant = &terms
	}
	return all
}

// VariableRequests is the variable in which the gate stores the number of identical requests that
// waited at the same time.
const VariableRequests = "server.requests"

// Requests returns the number of identical requests that waited for t at the same time, or 0 if
// there was only one.
func Requests(t task.Task) int {
	n, _ := strconv.Atoi(string(t.Variables[VariableRequests]))
	return n
}

func clientReason(t task.Task) *Untrusted {
	value := jsontext.Value(t.Variables[ClientReason])
	if value.Kind() != '"' {
		return nil
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return nil
	}
	return &Untrusted{Text: safetext.Text(string(text), MaxReason), Untrusted: true}
}
