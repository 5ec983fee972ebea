package casefile

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Approval is a held call as approvers see it. Its arguments are redacted
// and bounded, and nothing in it but Name hides characters from the reader; but Tool,
// Name, Arguments, AlsoSent, Description and ClientReason are what agents and upstreams say.
type Approval struct {
	ID                 task.ID        `json:"id"`
	State              task.State     `json:"state"`
	Tool               string         `json:"tool"`          // the name as people see it: see [plain.Name]
	Name               string         `json:"name,omitzero"` // the name exactly as it came; it may hide characters
	Method             string         `json:"method"`
	Upstream           string         `json:"upstream"`
	Arguments          jsontext.Value `json:"arguments,omitzero"` // a string with their beginning if they are too long
	ArgumentsTruncated bool           `json:"argumentsTruncated,omitzero"`
	AlsoSent           jsontext.Value `json:"alsoSent,omitzero"`    // what reaches the upstream besides; a string with its beginning if it is too long
	UnreadBytes        int            `json:"unreadBytes,omitzero"` // how much of the arguments is left out, by [Viewer.Show]
	Principal          string         `json:"principal"`
	Anonymous          bool           `json:"anonymous,omitzero"`
	Client             string         `json:"client,omitzero"` // what the agent's program calls itself
	Background
	Cautions
	Digests
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt"`           // of the question while it is pending, then of the task
	ValidUntil time.Time `json:"validUntil,omitzero"` // until when a call that is approved can be run
	Decisions
	Failure          *task.Failure `json:"failure,omitzero"`
	Agent            *Agent        `json:"agent,omitzero"`            // until the call is run
	Next             string        `json:"next,omitzero"`             // once it is approved: what happens next, in words
	NoApprovalNeeded bool          `json:"noApprovalNeeded,omitzero"` // policy let it run without one
	Result           *Result       `json:"result,omitzero"`           // what the tool answered, by [Viewer.Show]
}

// Decisions are what approvers have decided, and how many must approve.
type Decisions struct {
	Quorum    int             `json:"quorum,omitzero"`
	Approvals []task.Decision `json:"approvals,omitempty"`
	Rejection *task.Decision  `json:"rejection,omitzero"`
}

// A Background is what policy, the upstream and the agent say about a call.
type Background struct {
	Workflow     string     `json:"workflow"`
	Reason       string     `json:"reason"` // why it is held
	Why          *Why       `json:"why,omitzero"`
	Description  string     `json:"description,omitzero"`
	Hints        *Hints     `json:"hints,omitzero"`
	ClientReason *Untrusted `json:"clientReason,omitzero"`
}

// Cautions are what a reader should know before anything else. They follow from the
// rest of an [Approval].
type Cautions struct {
	Risk     Risk     `json:"risk,omitzero"`      // what may come of the call
	Warnings []string `json:"warnings,omitempty"` // what in it may be taken for something else
}

// Digests identify a call, and what it was judged by.
type Digests struct {
	Digest      task.Digest `json:"digest"`
	ShownDigest string      `json:"shownDigest,omitzero"` // of this view of the call, by [Viewer.Show]: an approval names it
	ToolDigest  string      `json:"toolDigest,omitzero"`
	Policy      string      `json:"policy,omitzero"` // the snapshot that held it
}

// Hints are what the upstream says of the tool.
type Hints struct {
	Title       string `json:"title,omitzero"`
	ReadOnly    *bool  `json:"readOnly,omitzero"`
	Destructive *bool  `json:"destructive,omitzero"`
	Idempotent  *bool  `json:"idempotent,omitzero"`
	OpenWorld   *bool  `json:"openWorld,omitzero"`
}

// An Untrusted is text that an agent wrote to be read by approvers.
type Untrusted struct {
	Text      string `json:"text"`
	Untrusted bool   `json:"untrusted"` // always true: a reader of the JSON should not need this sentence
}

// How many bytes of the arguments are shown.
const (
	maxListed = 4 << 10       // in a list
	MaxShown  = 64 << 10      // of one call
	unbounded = math.MaxInt32 // of one call, to somebody who asks for everything
)

// How many characters are shown of texts that are not the call's own.
const (
	maxName   = 300 // of a name
	MaxReason = 500 // of a reason
)

// ClientReason is the variable with which an agent says why it makes a call.
const ClientReason = "client.reason"

// Show returns one held call with much of its arguments.
func (v *Viewer) Show(ctx context.Context, id task.ID) (Approval, error) {
	return v.show(ctx, id, MaxShown)
}

// ShowAll returns one held call with all of its arguments.
func (v *Viewer) ShowAll(ctx context.Context, id task.ID) (Approval, error) {
	return v.show(ctx, id, unbounded)
}

// ShowToAsk returns one held call as [Viewer.Show] does, and what people must know
// besides before they decide: the last approved call of the tool, if the tool was
// defined otherwise then, or if that is not known.
func (v *Viewer) ShowToAsk(ctx context.Context, id task.ID) (Approval, *Precedent, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return Approval{}, nil, err
	}
	defer done()
	t, err := v.cfg.Get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return Approval{}, nil, err
	}
	a := v.viewToDecide(t, MaxShown)
	if a.Result = v.result(ctx, t); t.State != task.InputRequired {
		return a, nil, nil
	}
	changed, err := v.changed(ctx, t)
	return a, changed, err
}

func (v *Viewer) show(ctx context.Context, id task.ID, most int) (Approval, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return Approval{}, err
	}
	defer done()
	t, err := v.cfg.Get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return Approval{}, err
	}
	a := v.viewToDecide(t, most)
	a.Result = v.result(ctx, t)
	return a, nil
}

// View returns t as approvers see it.
func (v *Viewer) View(t task.Task) Approval { return v.view(t, maxListed) }

// view returns t with at most so many bytes of its arguments.
func (v *Viewer) view(t task.Task, most int) Approval {
	return v.describe(t, ReadFacts(t), v.preview(t, most), most)
}

// toolOf returns the name of what t calls, as people read it. The names in a batch are
// made legible one by one: a space at the end of one of them is not to be overlooked.
func toolOf(t task.Task, f Facts, most int) string {
	var names []string
	for _, m := range f.ToolsInBatch {
		if m.Name != "" {
			names = append(names, m.Name)
		}
	}
	if t.Call.Method != MethodBatch || len(names) == 0 {
		return plain.Name(t.Call.Name, most)
	}
	return plain.Shown(strings.Join(names, ", "), most)
}

// describe returns t, of which an outline is enough, with its facts and a preview.
func (v *Viewer) describe(t task.Task, f Facts, p *Preview, most int) Approval {
	a := Approval{
		ID: t.ID, State: t.State, Tool: toolOf(t, f, most), Name: t.Call.Name, Method: t.Call.Method, Upstream: t.Call.Upstream,
		Principal: plain.Name(f.Principal.ID, maxName), Anonymous: f.Principal.Anonymous,
		Client: plain.Text(f.Session.Client+" "+f.Session.Version, maxName),
		Background: Background{
			Workflow: t.Workflow, Reason: plain.Text(t.Verdict.Reason, MaxReason), Why: f.why(), Description: f.description(),
			Hints: f.hints(), ClientReason: clientReason(t),
		},
		Digests:   Digests{Digest: t.CallDigest(), ToolDigest: t.Verdict.ToolDigest, Policy: t.Verdict.Snapshot},
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, Failure: t.Failure,
	}
	a.Arguments, a.ArgumentsTruncated, a.AlsoSent = p.Arguments, p.Truncated, p.Also
	a.Cautions = Cautions{a.Hints.Risk(), Alike(a)}
	a.NoApprovalNeeded = t.Approval == nil && t.State != task.Working
	a.Agent = agentOf(t, v.cfg.Now())
	if asked := t.Approval; asked != nil {
		a.Quorum, a.Approvals, a.Rejection = asked.Quorum, plainDecisions(asked.Approvals), asked.Rejection
		if t.State == task.InputRequired {
			a.ExpiresAt = asked.Deadline
		}
		if t.State == task.Approved {
			terms, _ := v.cfg.Terms(t)
			a.ValidUntil = ValidUntil(t, terms.Validity)
		}
	}
	a.Next = v.nextOf(t, a.Agent, cmp.Or(a.ValidUntil, a.ExpiresAt))
	return a
}

// plainDecisions returns decisions without anything in the names of arguments that
// hides characters from the reader.
func plainDecisions(all []task.Decision) []task.Decision {
	all = slices.Clone(all)
	for i, d := range all {
		if d.Gives == nil {
			continue
		}
		terms := *d.Gives
		terms.Free = nil
		for _, name := range d.Gives.Free {
			terms.Free = append(terms.Free, plain.Name(name, maxName))
		}
		all[i].Gives = &terms
	}
	return all
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
	return &Untrusted{Text: plain.Text(string(text), MaxReason), Untrusted: true}
}
