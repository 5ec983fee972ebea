package casefile

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// MethodTool is the only method that standing approvals are given for.
const MethodTool = "tools/call"

// An Offer says how far a standing approval may go that the approvers of a call can
// give with their approval. The zero Offer says that they can give none.
type Offer struct {
	LongestSeconds int      `json:"longestSeconds"`
	Uses           int      `json:"uses"`
	Free           []string `json:"free,omitempty"` // the names of the arguments that can be left free, as they came
}

// Longest returns how long a standing approval may be good for.
func (o Offer) Longest() time.Duration { return time.Duration(o.LongestSeconds) * time.Second }

// A NoGrantError says why no standing approval can be given for a call, or none such
// as an approver wants.
type NoGrantError struct{ Why string }

// Error implements error.
func (e *NoGrantError) Error() string { return "no standing approval: " + e.Why }

// Offer returns what approvers of t can give. The error is a [*NoGrantError] if they
// can give nothing.
func (v *Viewer) Offer(t task.Task) (Offer, error) {
	terms, known := v.cfg.Terms(t)
	f := ReadFacts(t)
	switch {
	case !known || terms.Grants.Uses < 1 || terms.Grants.Longest < time.Second:
		return Offer{}, &NoGrantError{"the workflow does not allow standing approvals"}
	case t.Call.Method != MethodTool:
		return Offer{}, &NoGrantError{"only single calls of tools can have one"}
	case t.Verdict.ToolDigest == "":
		return Offer{}, &NoGrantError{"the definition of the tool is not known"}
	case f.Shared || !f.Principal.Anonymous && f.Principal.ID == "":
		return Offer{}, &NoGrantError{"the gate cannot distinguish the agent from others"}
	}
	free, err := v.freeable(t)
	if err != nil {
		return Offer{}, &NoGrantError{"the arguments cannot be read"}
	}
	return Offer{int(terms.Grants.Longest / time.Second), min(terms.Grants.Uses, grantstore.MaxUses), free}, nil
}

// maxFree is how many arguments an approver can choose from. Of a call with more, all
// are pinned.
const maxFree = 100

// freeable returns the arguments of t that can be left free: all but those of which
// the approver is not shown everything.
func (v *Viewer) freeable(t task.Task) ([]string, error) {
	if t.Call.Arguments == "" || jsontext.Value(t.Call.Arguments).Kind() != '{' {
		return nil, nil
	}
	_, hidden, err := withoutRedacted(t.Call.Arguments, v.redactions(t), 0)
	if err != nil {
		return nil, err
	}
	redacted := map[string]bool{}
	for p := range hidden {
		for name := range p.Tokens() {
			redacted[name] = true
			break
		}
	}
	var names []string
	for name := range (jsonrpc.Value{Bytes: []byte(t.Call.Arguments)}).Members() {
		if !redacted[name] {
			names = append(names, name)
		}
	}
	if hidden[""] || len(names) > maxFree {
		return nil, nil
	}
	return names, nil
}

// A GrantState says whether a standing approval can still be used.
type GrantState string

// The states of a standing approval.
const (
	GrantActive  GrantState = "active"
	GrantSpent   GrantState = "spent"   // all its uses are taken
	GrantExpired GrantState = "expired" // its time is over
	GrantRevoked GrantState = "revoked"
)

// A Grant is a standing approval as people see it. Tool, Arguments, Free and
// AlsoSent are what an agent said.
type Grant struct {
	ID    task.GrantID `json:"id"`
	State GrantState   `json:"state"`

	GrantFacts
	Free     []string `json:"free,omitempty"` // the arguments that may have any value of the same type
	Workflow string   `json:"workflow"`

	From    task.ID                `json:"from"` // the call whose approvers gave it
	By      []string               `json:"by"`
	GivenAt time.Time              `json:"givenAt"`
	Until   time.Time              `json:"until"`
	MaxUses int                    `json:"maxUses"`
	Used    int                    `json:"used"`
	Uses    []GrantUse             `json:"uses,omitempty"` // by [Viewer.Grant]
	Revoked *grantstore.Revocation `json:"revoked,omitzero"`
}

// GrantFacts are what is kept of the call for which a standing approval was given.
type GrantFacts struct {
	Tool       string `json:"tool"`
	Upstream   string `json:"upstream"`
	Principal  string `json:"principal"`
	Anonymous  bool   `json:"anonymous,omitzero"`
	Client     string `json:"client,omitzero"`
	ToolDigest string `json:"toolDigest"`

	Arguments          jsontext.Value `json:"arguments,omitzero"` // those that are not free, without what is redacted
	ArgumentsTruncated bool           `json:"argumentsTruncated,omitzero"`
	AlsoSent           jsontext.Value `json:"alsoSent,omitzero"`
}

// storedFacts are [GrantFacts] as they are stored.
type storedFacts struct {
	GrantFacts

	Home *Home `json:"home,omitzero"`
}

// A GrantUse is a call that a standing approval let run.
type GrantUse struct {
	Task   task.ID   `json:"task"`
	At     time.Time `json:"at"`
	Became string    `json:"became"` // the state of the call, [UseNotMade] or [UseUnknown]
}

// Outcomes of a use whose call is not known to the store.
const (
	UseNotMade = "not_made" // it was counted, and the gate ended before it could make the call
	UseUnknown = "unknown"  // neither the call nor the journal is kept any more
)

// GrantFacts returns what is kept of t, as text, in a standing approval that leaves
// some of its arguments free.
func (v *Viewer) GrantFacts(t task.Task, free []string) (string, error) {
	a := v.view(t, maxListed)
	f := storedFacts{Home: ReadFacts(t).Home, GrantFacts: GrantFacts{
		Tool: a.Tool, Upstream: a.Upstream, Principal: Requester(t), Anonymous: a.Anonymous, Client: a.Client, ToolDigest: a.ToolDigest,
		AlsoSent: a.AlsoSent,
	}}
	if t.Call.Arguments != "" {
		pinned := t.Call.Arguments
		if len(free) > 0 {
			pinned = string(jsonrpc.Value{Bytes: []byte(pinned)}.Without(free...))
		}
		f.Arguments, f.ArgumentsTruncated = shown(pinned, v.redactions(t), maxListed)
	}
	b, err := json.Marshal(f)
	return string(b), err
}

// Grants returns the standing approvals, newest first: those that can still be used,
// or all that are kept.
func (v *Viewer) Grants(ctx context.Context, all bool) ([]Grant, error) { //nolint:revive // a choice of what is listed
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	kept, err := grantstore.Store{Records: v.cfg.Store}.All(ctx)
	if err != nil {
		return nil, err
	}
	shown := []Grant{}
	for _, g := range kept {
		if one := v.ViewGrant(g); all || one.State == GrantActive {
			shown = append(shown, one)
		}
	}
	return shown, nil
}

// Grant returns one standing approval with its uses.
func (v *Viewer) Grant(ctx context.Context, id task.GrantID) (Grant, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return Grant{}, err
	}
	defer done()
	kept, err := grantstore.Store{Records: v.cfg.Store}.Get(ctx, id)
	if err != nil {
		return Grant{}, err
	}
	g := v.ViewGrant(kept)
	for _, u := range slices.Backward(kept.Uses) {
		became, err := v.became(ctx, u.Task)
		if err != nil {
			return Grant{}, err
		}
		g.Uses = append(g.Uses, GrantUse{u.Task, u.At, became})
	}
	return g, nil
}

// became returns what became of a call that was to run by a standing approval.
func (v *Viewer) became(ctx context.Context, id task.ID) (string, error) {
	t, err := v.cfg.Store.Get(ctx, task.AnyOwner().Ref(id))
	if err == nil || !errors.Is(err, task.ErrNotFound) {
		return string(t.State), err
	}
	story, err := v.Story(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return "", err
	}
	for _, e := range slices.Backward(story) {
		if e.To != "" {
			return string(e.To), nil
		}
	}
	ends, err := v.cfg.Store.Ends(ctx)
	if ends.Anchor.Seq > 0 {
		return UseUnknown, err
	}
	return UseNotMade, err
}

// ViewGrant returns g as people see it.
func (v *Viewer) ViewGrant(g grantstore.Grant) Grant {
	one := Grant{
		ID: g.ID, State: GrantActive, Workflow: g.Workflow, From: g.From, GivenAt: g.GivenAt, Until: g.Until,
		MaxUses: g.MaxUses, Used: len(g.Uses), Revoked: g.Revoked,
	}
	var stored storedFacts
	if err := json.Unmarshal([]byte(g.Facts), &stored); err != nil {
		stored = storedFacts{GrantFacts: GrantFacts{Tool: "[unreadable]"}}
	}
	one.GrantFacts = stored.GrantFacts
	for _, name := range g.Free {
		one.Free = append(one.Free, plain.Name(name, maxName))
	}
	for _, d := range g.By {
		one.By = append(one.By, d.By)
	}
	terms, known := v.cfg.Terms(grantTask(g.Workflow, stored.Home))
	if !known {
		terms.Grants = grantstore.Limits{}
	}
	one.Until = earlier(one.Until, g.GivenAt.Add(terms.Grants.Longest))
	one.MaxUses = min(one.MaxUses, terms.Grants.Uses)
	switch err := g.Usable(v.cfg.Now(), terms.Grants); {
	case errors.Is(err, grantstore.ErrRevoked):
		one.State = GrantRevoked
	case errors.Is(err, grantstore.ErrSpent):
		one.State = GrantSpent
	case err != nil:
		one.State = GrantExpired
	}
	one.redactAgain(v.redactions(grantTask(g.Workflow, stored.Home)))
	return one
}

// grantTask returns a task of which nothing but its workflow, and the gate that knows
// it, is told.
func grantTask(workflow string, home *Home) task.Task {
	facts, err := Facts{Home: home}.Text()
	if err != nil {
		facts = ""
	}
	return task.Task{
		Call:     task.Call{Method: MethodTool},
		HeldCall: task.HeldCall{Workflow: workflow, Verdict: task.Verdict{Facts: facts}},
	}
}

// redactAgain leaves out what is redacted now, and was not when g was given.
func (g *Grant) redactAgain(paths []path) {
	if len(paths) == 0 {
		return
	}
	if g.ArgumentsTruncated {
		g.Arguments = jsonrpc.AppendString(nil, "[too long to be shown here]")
	} else if len(g.Arguments) > 0 {
		g.Arguments, _ = shown(string(g.Arguments), paths, maxListed)
	}
	if len(g.AlsoSent) > 0 {
		g.AlsoSent, _ = shown(string(g.AlsoSent), besides(paths), maxListed)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
