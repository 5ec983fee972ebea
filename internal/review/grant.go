package review

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An Offer has the limits of a standing approval that approvers of a call can give. The zero
// Offer means that they cannot give one.
type Offer struct {
	LongestSeconds int      `json:"longestSeconds"`
	Uses           int      `json:"uses"`
	Free           []string `json:"free,omitempty"`   // the names of the arguments that can be left free, as they came
	Caution        string   `json:"caution,omitzero"` // the other programs that can use it, in words
}

// Longest returns the longest lifetime of the standing approval.
func (o Offer) Longest() time.Duration { return time.Duration(o.LongestSeconds) * time.Second }

// A NoGrantError is the reason why a standing approval cannot be given.
type NoGrantError struct{ Reason string }

// Error implements error.
func (e *NoGrantError) Error() string { return "no standing approval: " + e.Reason }

// Offer returns the limits of the standing approval that approvers of t can give. The error is
// a [*NoGrantError] if they cannot give one.
func (v *Viewer) Offer(t task.Task) (Offer, error) {
	w, known := v.cfg.Workflow(t)
	f := ReadFacts(t)
	switch {
	//mutate:swap " || w.Grants.Uses < 1 || w.Grants.Longest < time.Second" "" internal/approval.TestGrantIsRefused a grant is given although the workflow allows none
	case !known || w.Grants.Uses < 1 || w.Grants.Longest < time.Second:
		return Offer{}, &NoGrantError{"the workflow does not allow standing approvals"}
	case t.Call.Method != mcpname.ToolsCall:
		return Offer{}, &NoGrantError{"only single calls of tools can have one"}
	case t.Verdict.ToolDigest == "":
		return Offer{}, &NoGrantError{"the definition of the tool is not known"}
	//mutate:false internal/app.TestChangedToolIsHeld a standing approval can be given for a changed tool
	case f.Change != nil:
		return Offer{}, &NoGrantError{"the tool has changed, and no operator has accepted that"}
	case f.SharedOwner || !f.Principal.Anonymous && f.Principal.ID == "":
		return Offer{}, &NoGrantError{"the gate cannot distinguish the agent from others"}
	}
	free, err := v.freeable(t)
	if err != nil {
		return Offer{}, &NoGrantError{"the arguments cannot be read"}
	}
	return Offer{int(w.Grants.Longest / time.Second), min(w.Grants.Uses, grantstore.MaxUses), free, f.sharing()}, nil
}

// sharing names the programs that share the standing approvals of the owner, or "" if only one
// program uses them.
func (f Facts) sharing() string {
	if !f.OwnerByName {
		return ""
	}
	return fmt.Sprintf("The agent has no identity. Every program of the same user that calls itself %s shares its standing approvals and its held calls.",
		strconv.Quote(safetext.Name(f.Session.Client, maxName)))
}

// maxFree is how many arguments can be left free. In a call with more arguments, all are
// pinned.
const maxFree = 100

// freeable returns the arguments of t that can be left free: those without redacted parts.
func (v *Viewer) freeable(t task.Task) ([]string, error) {
	if t.Call.Arguments == "" || jsontext.Value(t.Call.Arguments).Kind() != '{' {
		return nil, nil
	}
	paths := v.redactions(t)
	if namesWhole(paths) {
		return nil, nil
	}
	var names []string
	for name, value := range (jsonrpc.Value{Bytes: []byte(t.Call.Arguments)}).Members() {
		if inside := (&redaction{}).below(paths, name); len(inside) > 0 {
			c := withoutRedacted(neverEnds, string(value.Bytes), inside, 0)
			if c.err != nil {
				return nil, c.err
			}
			//mutate:false internal/approval.TestGrantIsRefused a redacted argument is left free
			if len(c.hidden) > 0 || c.parts {
				continue
			}
		}
		names = append(names, name)
		if len(names) > maxFree {
			return nil, nil
		}
	}
	return names, nil
}

// A GrantState says whether a standing approval can still be used.
type GrantState string

// The states of a standing approval.
const (
	GrantActive  GrantState = "active"
	GrantSpent   GrantState = "spent"   // all uses are taken
	GrantExpired GrantState = "expired" // its lifetime has ended
	GrantRevoked GrantState = "revoked"
)

// A Grant is a standing approval as operators see it. Tool, Arguments, Free and AlsoSent are
// values that an agent sent.
type Grant struct {
	ID    gatetask.GrantID `json:"id"`
	State GrantState       `json:"state"`

	GrantFacts
	Free     []string `json:"free,omitempty"` // the arguments that may have any value of the same type
	Workflow string   `json:"workflow"`

	From    task.ID                `json:"from"` // the call whose approvers gave the grant
	By      []string               `json:"by"`
	GivenAt time.Time              `json:"givenAt"`
	Until   time.Time              `json:"until"`
	MaxUses int                    `json:"maxUses"`
	Used    int                    `json:"used"`
	Uses    []GrantUse             `json:"uses,omitempty"` // set by [Viewer.Grant]
	Revoked *grantstore.Revocation `json:"revoked,omitzero"`
}

// GrantFacts describe the call for which a standing approval was given.
type GrantFacts struct {
	Tool       string `json:"tool"`
	Upstream   string `json:"upstream"`
	Principal  string `json:"principal"`
	Anonymous  bool   `json:"anonymous,omitzero"`
	Client     string `json:"client,omitzero"`
	Caution    string `json:"caution,omitzero"` // see [Offer]
	ToolDigest string `json:"toolDigest"`

	Arguments          jsontext.Value `json:"arguments,omitzero"` // pinned arguments, redacted
	ArgumentsTruncated bool           `json:"argumentsTruncated,omitzero"`
	AlsoSent           jsontext.Value `json:"alsoSent,omitzero"`
}

// storedFacts are [GrantFacts] in their stored form.
type storedFacts struct {
	GrantFacts

	HoldingGate *HoldingGate `json:"home,omitzero"`
}

// A GrantUse is a call that a standing approval let run.
type GrantUse struct {
	Task    task.ID   `json:"task"`
	At      time.Time `json:"at"`
	Outcome string    `json:"became"` // the state of the call, [UseNotMade] or [UseUnknown]
}

// Outcomes of a use whose call is not in the store.
const (
	UseNotMade = "not_made" // it was counted, and the gate ended before it created the task
	UseUnknown = "unknown"  // the task and its journal entries were deleted
)

// GrantFacts returns the stored description of t for a standing approval that leaves some of
// its arguments free.
func (v *Viewer) GrantFacts(t task.Task, free []string) (string, error) {
	a, known := v.View(t), ReadFacts(t)
	f := storedFacts{HoldingGate: known.HoldingGate, GrantFacts: GrantFacts{
		Tool: a.Tool, Upstream: a.Upstream, Principal: known.Requester(t.Owner), Anonymous: a.Anonymous, Client: a.Client, Caution: known.sharing(), ToolDigest: a.ToolDigest,
		AlsoSent: a.AlsoSent,
	}}
	if t.Call.Arguments != "" {
		pinned := t.Call.Arguments
		if len(free) > 0 {
			pinned = string(jsonrpc.Value{Bytes: []byte(pinned)}.Without(free...))
		}
		f.Arguments, f.ArgumentsTruncated = withoutRedacted(neverEnds, pinned, v.redactions(t), maxListed).shown(maxListed)
	}
	b, err := json.Marshal(f)
	return string(b), err
}

// Grants returns the stored standing approvals, newest first: all of them, or only the active
// ones.
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
func (v *Viewer) Grant(ctx context.Context, id gatetask.GrantID) (Grant, error) {
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

// became returns the state of the call with the given task id that a standing approval let run,
// or its [GrantUse] outcome.
func (v *Viewer) became(ctx context.Context, id task.ID) (string, error) {
	t, err := v.cfg.Store.Get(ctx, task.AnyOwner().Ref(id))
	if err == nil || !errors.Is(err, task.ErrNotFound) {
		return string(t.State), err
	}
	history, err := v.History(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return "", err
	}
	for _, e := range slices.Backward(history) {
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

// ViewGrant returns g as operators see it.
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
		one.Free = append(one.Free, safetext.Name(name, maxName))
	}
	for _, d := range g.By {
		one.By = append(one.By, d.By)
	}
	w, known := v.cfg.Workflow(grantTask(g.Workflow, stored.HoldingGate))
	if !known {
		w.Grants = policy.Grants{}
	}
	if !g.Retry { // the limits of the workflow are not for one call
		one.Until = earlier(one.Until, g.GivenAt.Add(w.Grants.Longest))
		one.MaxUses = min(one.MaxUses, w.Grants.Uses)
	}
	switch err := g.Usable(v.cfg.Now(), grantstore.Limits(w.Grants)); {
	case errors.Is(err, grantstore.ErrRevoked):
		one.State = GrantRevoked
	case errors.Is(err, grantstore.ErrSpent):
		one.State = GrantSpent
	case err != nil:
		one.State = GrantExpired
	}
	one.redactAgain(v.redactions(grantTask(g.Workflow, stored.HoldingGate)))
	return one
}

// grantTask returns a task that has only a workflow and its holding gate.
func grantTask(workflow string, gate *HoldingGate) task.Task {
	facts, err := Facts{HoldingGate: gate}.Text()
	if err != nil {
		facts = ""
	}
	return task.Task{
		Call:     task.Call{Method: mcpname.ToolsCall},
		HeldCall: gatetask.HeldCall{Workflow: workflow, Verdict: gatetask.Verdict{Facts: facts}},
	}
}

// redactAgain redacts values that are redacted now but were not when g was given.
func (g *Grant) redactAgain(paths []path) {
	if len(paths) == 0 {
		return
	}
	if g.ArgumentsTruncated {
		g.Arguments = jsonrpc.AppendString(nil, "[too long to be shown here]")
	} else if len(g.Arguments) > 0 {
		g.Arguments, _ = withoutRedacted(neverEnds, string(g.Arguments), paths, maxListed).shown(maxListed)
	}
	if len(g.AlsoSent) > 0 {
		g.AlsoSent, _ = withoutRedacted(neverEnds, string(g.AlsoSent), alsoSentPaths(paths), maxListed).shown(maxListed)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
