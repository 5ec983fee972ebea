package approval

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Approval is a held call as approvers see it. Its arguments are redacted
// and bounded, and nothing in it hides characters from the reader; but Tool,
// Arguments, AlsoSent, Description and ClientReason are what agents and upstreams say.
type Approval struct {
	ID                 task.ID         `json:"id"`
	State              task.State      `json:"state"`
	Tool               string          `json:"tool"`
	Method             string          `json:"method"`
	Upstream           string          `json:"upstream"`
	Arguments          jsontext.Value  `json:"arguments,omitzero"` // a string with their beginning if they are too long
	ArgumentsTruncated bool            `json:"argumentsTruncated,omitzero"`
	AlsoSent           jsontext.Value  `json:"alsoSent,omitzero"`    // what reaches the upstream besides; a string with its beginning if it is too long
	UnreadBytes        int             `json:"unreadBytes,omitzero"` // how much of the arguments is left out, by Desk.Show
	Principal          string          `json:"principal"`
	Anonymous          bool            `json:"anonymous,omitzero"`
	Client             string          `json:"client,omitzero"` // what the agent's program calls itself
	Workflow           string          `json:"workflow"`
	Reason             string          `json:"reason"` // why it is held
	Why                *Why            `json:"why,omitzero"`
	Description        string          `json:"description,omitzero"`
	Hints              *Hints          `json:"hints,omitzero"`
	ClientReason       *Untrusted      `json:"clientReason,omitzero"`
	Digest             task.Digest     `json:"digest"`
	ShownDigest        string          `json:"shownDigest,omitzero"` // of this view of the call, by Desk.Show: an approval names it
	ToolDigest         string          `json:"toolDigest,omitzero"`
	Policy             string          `json:"policy,omitzero"` // the snapshot that held it
	CreatedAt          time.Time       `json:"createdAt"`
	ExpiresAt          time.Time       `json:"expiresAt"`           // of the question while it is pending, then of the task
	ValidUntil         time.Time       `json:"validUntil,omitzero"` // until when a call that is approved can be run
	Quorum             int             `json:"quorum,omitzero"`
	Approvals          []task.Decision `json:"approvals,omitempty"`
	Rejection          *task.Decision  `json:"rejection,omitzero"`
	Failure            *task.Failure   `json:"failure,omitzero"`
	NoApprovalNeeded   bool            `json:"noApprovalNeeded,omitzero"` // policy let it run without one
	Result             *Result         `json:"result,omitzero"`           // what the tool answered, by Desk.Show

	// Name is the tool's name as it came, for those who make visible
	// themselves what it may hide.
	Name string `json:"-"`
}

// A Why names what held a call.
type Why struct {
	Rule     int      `json:"rule,omitzero"`      // of a call that an earlier version held: the place of the rule, counted from 1; approvers see Label
	Label    string   `json:"label,omitzero"`     // what the rule is called: "rule NAME", or its place such as "rules[3]"; empty if none matched
	Match    string   `json:"match,omitzero"`     // what the rule matches
	Policies []string `json:"policies,omitempty"` // the Cedar policies, if they decided
	Says     []string `json:"says,omitempty"`     // the reasons that the rule or the policies give
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

// How much of the arguments is shown.
const (
	maxListed = 4 << 10
	maxShown  = 64 << 10
	unbounded = math.MaxInt32
)

// ClientReason is the variable with which an agent says why it makes a call.
const ClientReason = "client.reason"

// A Filter selects approvals.
type Filter struct {
	States    []task.State // none means those that wait for a decision
	Tool      string       // a part of the tool's name
	Principal string       // a part of the requester's name
	Workflow  string       // a part of the workflow's name
	Text      string       // words, each of which is somewhere in the call as a list shows it
	Needed    *bool        // whether an approval was needed; nil for both
	Cursor    string       // Page.Next of the page before
	Limit     int          // 20 if zero, at most 100
}

// A Page is a part of what a filter selects, newest first.
type Page struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitzero"` // the cursor of the next page
}

// maxSearch is how many pages of tasks are looked through for one page of
// those that a filter selects.
const maxSearch = 10

// Pending returns a page of the held calls that f selects, by default those
// that wait for a decision. If there are few among many, a page may have fewer
// than f asks for, or none, and still be followed by another.
func (d *Desk) Pending(ctx context.Context, f Filter) (Page, error) {
	if len(f.States) == 0 {
		f.States = []task.State{task.InputRequired}
	}
	ctx, done, err := d.aside(ctx)
	if err != nil {
		return Page{}, err
	}
	defer done()
	q := task.Query{Scope: task.AnyOwner(), States: f.States, Cursor: f.Cursor, Limit: f.Limit, Heads: true}
	page := Page{Approvals: make([]Approval, 0, q.PageSize())}
	for range maxSearch {
		listed, err := d.cfg.Store.List(ctx, q)
		if err != nil {
			return Page{}, err
		}
		page.Next, q.Cursor = listed.Next, listed.Next
		rest, err := d.fill(ctx, &page, f, listed.Tasks)
		if err != nil {
			return Page{}, err
		}
		if len(page.Approvals) == q.PageSize() {
			if last := len(listed.Tasks) - len(rest) - 1; len(rest) > 0 {
				page.Next = q.CursorAfter(listed.Tasks[last].Position())
			}
			break
		}
		if q.Cursor == "" {
			break
		}
	}
	return page, nil
}

// fill adds those of the tasks to a page that f selects, until it is full, and
// returns the heads that it has not looked at.
func (d *Desk) fill(ctx context.Context, page *Page, f Filter, heads []task.Task) (rest []task.Task, err error) {
	for i, head := range heads {
		if len(page.Approvals) == cap(page.Approvals) {
			return heads[i:], nil
		}
		p, err := d.preview(ctx, head)
		if err != nil {
			return nil, err
		}
		if p != nil && f.selects(p) {
			page.Approvals = append(page.Approvals, p.Approval)
		}
	}
	return nil, nil
}

// Show returns one held call with much of its arguments.
func (d *Desk) Show(ctx context.Context, id task.ID) (Approval, error) {
	return d.show(ctx, id, maxShown)
}

// ShowAll returns one held call with all of its arguments.
func (d *Desk) ShowAll(ctx context.Context, id task.ID) (Approval, error) {
	return d.show(ctx, id, unbounded)
}

func (d *Desk) show(ctx context.Context, id task.ID, most int) (Approval, error) {
	ctx, done, err := d.aside(ctx)
	if err != nil {
		return Approval{}, err
	}
	defer done()
	t, err := d.get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return Approval{}, err
	}
	a := d.viewToDecide(t, most)
	a.Result = d.result(ctx, t)
	return a, nil
}

// View returns t as approvers see it.
func (d *Desk) View(t task.Task) Approval { return d.view(t, maxListed) }

func (d *Desk) view(t task.Task, most int) Approval {
	f := readFacts(t)
	a := Approval{
		ID: t.ID, State: t.State, Tool: plain.Name(t.Call.Name, most), Name: t.Call.Name, Method: t.Call.Method, Upstream: t.Call.Upstream,
		Principal: plain.Name(f.Principal.ID, maxName), Anonymous: f.Principal.Anonymous,
		Client:   plain.Text(f.Session.Client+" "+f.Session.Version, maxName),
		Workflow: t.Workflow, Reason: plain.Text(t.Verdict.Reason, maxReason), Why: f.why(), Description: f.Description,
		Hints: f.hints(), ClientReason: clientReason(t),
		Digest: t.Digest, ToolDigest: t.Verdict.ToolDigest, Policy: t.Verdict.Snapshot,
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, Failure: t.Failure,
	}
	a.Arguments, a.ArgumentsTruncated = shown(t.Call.Arguments, d.redactions(t), most)
	a.AlsoSent, _ = shown(t.Call.Also, d.redactionsBeside(t), most)
	a.NoApprovalNeeded = t.Approval == nil && t.State != task.Working
	if p := t.Approval; p != nil {
		a.Quorum, a.Approvals, a.Rejection = p.Quorum, p.Approvals, p.Rejection
		if t.State == task.InputRequired {
			a.ExpiresAt = p.Deadline
		}
		if t.State == task.Approved {
			a.ValidUntil = d.validUntil(t)
		}
	}
	return a
}

// maxName is how many characters are shown of a name that is not the call's own.
const maxName = 300

// why returns what held the call, with one name for the rule.
func (f facts) why() *Why {
	if f.Why == nil {
		return nil
	}
	w := *f.Why
	if w.Rule > 0 && w.Label == "" {
		w.Label = fmt.Sprintf("rules[%d]", w.Rule-1)
	}
	w.Rule = 0
	return &w
}

// hints returns what is said of the tool, or of a batch the worst that is said of
// any tool in it.
func (f facts) hints() *Hints {
	a := f.Annotations
	for _, one := range f.InBatch {
		a.Destructive, a.OpenWorld = either(a.Destructive, one.Destructive), either(a.OpenWorld, one.OpenWorld)
	}
	if a == (policy.Annotations{}) {
		return nil
	}
	return &Hints{
		Title: plain.Text(a.Title, maxName), ReadOnly: a.ReadOnly, Destructive: a.Destructive,
		Idempotent: a.Idempotent, OpenWorld: a.OpenWorld,
	}
}

// either returns the one that is true, or else any that says something.
func either(a, b *bool) *bool {
	if a != nil && *a || b == nil {
		return a
	}
	return b
}

func clientReason(t task.Task) *Untrusted {
	value := t.Variables[ClientReason]
	if value.Kind() != '"' {
		return nil
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return nil
	}
	return &Untrusted{Text: plain.Text(string(text), maxReason), Untrusted: true}
}
