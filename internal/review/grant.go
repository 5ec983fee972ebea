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

	Below    []OfferedPath         `json:"below,omitempty"`    // the arguments that can have any path below a directory
	Reach    []gatetask.GrantReach `json:"reach,omitempty"`    // besides the tool of the call
	ReadOnly []string              `json:"readOnly,omitempty"` // the names of the tools of the reach read_only
	Tools    string                `json:"tools,omitzero"`     // the digest of the list of them
}

// An OfferedPath is an argument that can have any path below one of some directories.
type OfferedPath struct {
	Argument    string   `json:"argument"`    // as it came
	Directories []string `json:"directories"` // the closest one first
}

// Refuses returns why a standing approval cannot have a shape, or "".
func (o Offer) Refuses(s gatetask.GrantShape) string {
	if s.Reach != gatetask.ReachTool {
		return o.refusesReach(s)
	}
	if s.Tools != "" {
		return "a list of tools needs the reach read_only"
	}
	var names []string
	for _, b := range s.Below {
		if !slices.ContainsFunc(o.Below, func(p OfferedPath) bool {
			return p.Argument == b.Argument && slices.Contains(p.Directories, b.Directory)
		}) {
			return "only a plain path of this call of which everything is shown can be below a directory, and only below one above it"
		}
		names = append(names, b.Argument)
	}
	for _, name := range s.Free {
		if !slices.Contains(o.Free, name) {
			return "only an argument of this call of which everything is shown can be left free"
		}
	}
	names = append(names, s.Free...)
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) < len(names) {
		return "an argument can be left free only once"
	}
	return ""
}

// refusesReach is [Offer.Refuses] for a reach of several tools.
func (o Offer) refusesReach(s gatetask.GrantShape) string {
	switch {
	case !slices.Contains(o.Reach, s.Reach):
		return "the workflow does not allow such a reach, or the call does not"
	case len(s.Free) > 0 || len(s.Below) > 0:
		return "a standing approval for several tools has no conditions about arguments"
	case s.Reach == gatetask.ReachReadOnly && s.Tools != o.Tools:
		return "the list of read-only tools is another one"
	case s.Reach != gatetask.ReachReadOnly && s.Tools != "":
		return "a list of tools needs the reach read_only"
	default:
		return ""
	}
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
	o := Offer{LongestSeconds: int(w.Grants.Longest / time.Second), Uses: min(w.Grants.Uses, grantstore.MaxUses), Caution: f.sharing()}
	//mutate:false internal/approval.TestSecretIsHeld a standing approval for other calls is offered with a call that has a secret
	if f.Secret {
		return o, nil
	}
	var err error
	if o.Free, o.Below, err = v.freeable(t); err != nil {
		return Offer{}, &NoGrantError{"the arguments cannot be read"}
	}
	o.addReach(t, f, gatetask.GrantReach(w.Grants.Reach))
	return o, nil
}

// addReach adds the reaches up to the given one that can be offered for a call.
func (o *Offer) addReach(t task.Task, f Facts, widest gatetask.GrantReach) {
	if !f.Trusted {
		return
	}
	for _, tool := range f.ReadOnlyTools {
		o.ReadOnly = append(o.ReadOnly, safetext.Name(tool.Name, maxName))
	}
	for _, reach := range gatetask.Reaches()[1:] {
		switch {
		case !reach.Within(widest):
		case reach == gatetask.ReachReadOnly && !slices.Contains(f.ReadOnlyTools, gatetask.GrantTool{Name: t.Call.Name, Digest: t.Verdict.ToolDigest}):
		case reach == gatetask.ReachAgent && (f.Principal.Anonymous || f.HoldingGate != nil):
			// The agent has another name at each server, or other gates may identify it in another way.
		default:
			o.Reach = append(o.Reach, reach)
		}
	}
	if len(o.ReadOnly) > 0 {
		o.Tools = grantstore.ToolsDigest(f.ReadOnlyTools)
	}
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

// freeable returns the arguments of t that can be left free, those without redacted parts, and
// those of them that are paths.
func (v *Viewer) freeable(t task.Task) (names []string, below []OfferedPath, err error) {
	if t.Call.Arguments == "" || jsontext.Value(t.Call.Arguments).Kind() != '{' {
		return nil, nil, nil
	}
	paths := v.redactions(t)
	if namesWhole(paths) {
		return nil, nil, nil
	}
	for name, value := range (jsonrpc.Value{Bytes: []byte(t.Call.Arguments)}).Members() {
		if inside := (&redaction{}).below(paths, name); len(inside) > 0 {
			c := withoutRedacted(neverEnds, string(value.Bytes), inside, 0)
			if c.err != nil {
				return nil, nil, c.err
			}
			//mutate:false internal/approval.TestGrantIsRefused a redacted argument is left free
			if len(c.hidden) > 0 || c.parts {
				continue
			}
		}
		names = append(names, name)
		if len(names) > maxFree {
			return nil, nil, nil
		}
		text, _ := value.Text()
		if above := grantstore.Directories(text); len(above) > 0 {
			below = append(below, OfferedPath{name, above[:min(len(above), maxDirectories)]})
		}
	}
	return names, below, nil
}

// maxDirectories is how many directories above a path are offered.
const maxDirectories = 10

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
	gatetask.GrantShape
	ReadOnly []string `json:"readOnly,omitempty"` // the tools of the reach read_only
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

// GrantFacts returns the stored description of t for a standing approval of the given shape.
func (v *Viewer) GrantFacts(t task.Task, shape gatetask.GrantShape) (string, error) {
	a, known := v.View(t), ReadFacts(t)
	f := storedFacts{HoldingGate: known.HoldingGate, GrantFacts: GrantFacts{
		Tool: a.Tool, Upstream: a.Upstream, Principal: known.Requester(t.Owner), Anonymous: a.Anonymous, Client: a.Client, Caution: known.sharing(), ToolDigest: a.ToolDigest,
		AlsoSent: a.AlsoSent,
	}}
	if t.Call.Arguments != "" && shape.Reach == gatetask.ReachTool {
		pinned, loose := t.Call.Arguments, slices.Clone(shape.Free)
		for _, b := range shape.Below {
			loose = append(loose, b.Argument)
		}
		if len(loose) > 0 {
			pinned = string(jsonrpc.Value{Bytes: []byte(pinned)}.Without(loose...))
		}
		f.Arguments, f.ArgumentsTruncated = withoutRedacted(neverEnds, pinned, v.redactions(t), maxListed).shown(maxListed)
	}
	b, err := json.Marshal(f)
	return string(b), err
}

// Grants returns the stored standing approvals, newest first: all of them, or only the active
// ones.
func (v *Viewer) Grants(ctx context.Context, all bool) ([]Grant, error) { //nolint:revive // a choice of what is listed
	ctx, done, err := v.Begin(ctx)
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
	ctx, done, err := v.Begin(ctx)
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
	one.GrantShape = plainShape(g.GrantShape)
	if g.Reach == gatetask.ReachReadOnly {
		for _, tool := range g.ReadOnly {
			one.ReadOnly = append(one.ReadOnly, safetext.Name(tool.Name, maxName))
		}
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
