package approval

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A standing approval, called a grant in the code, lets calls run that are like an approved one:
//
//   - An approver gives it with an approval ([Ruling.Gives]). If several approvals are needed, all
//     approvers must give it, and the narrowest terms count.
//   - A call that policy holds becomes a task. If a grant covers it, the task is created as
//     approved ([holder.byGrant]). All other checks remain: policy is asked again, the tool
//     definition and the digest are compared, the task is claimed once, and the request is written
//     from the covered parts.
//   - The use is counted before the task is created. If the process dies in between, the use is
//     lost: there are never more calls than uses.

// maxGrants is how many active grants one owner can have for one tool, one server or all servers.
const maxGrants = 20

// maxMeta is how many digests of metadata a grant stores.
const maxMeta = 16

// Grants create, use, check and revoke standing approvals.
type grants struct {
	env       *env
	workflows *workflows
	viewer    *review.Viewer
	confirmer *confirmer
	stored    grantstore.Store
}

// mayGive returns nil if who may give the grant of r with an approval of t.
func (gs *grants) mayGive(t task.Task, who Approver, r Ruling) error {
	if r.Gives == nil {
		return nil
	}
	offer, err := gs.viewer.Offer(t)
	if err != nil {
		return err
	}
	now := gs.env.now()
	var why string
	switch {
	case r.Decision != Approve:
		why = "a rejection gives none"
	//mutate:false TestGrantIsRefused a requester gives a grant to their own agent
	case isRequester(t, who):
		why = "you cannot give one to your own agent"
	case r.Unread > 0:
		why = "a part of the call was not read"
	case r.Gives.Uses < 1 || r.Gives.Uses > offer.Uses:
		why = fmt.Sprintf("it can have 1 to %d uses", offer.Uses)
	case !r.Gives.Until.After(now) || r.Gives.Until.After(now.Add(offer.Longest())):
		why = "it must end within " + human.Duration(offer.Longest())
	default:
		why = offer.Refuses(r.Gives.GrantShape)
	}
	if why == "" {
		return nil
	}
	return &review.NoGrantError{Reason: why}
}

// give stores the grant that the approvers of t gave, if all of them did. The journal records it
// before it takes effect.
func (gs *grants) give(ctx context.Context, t task.Task) error {
	terms, all := grantstore.Narrowest(t.Approval.Approvals)
	if !all {
		return nil
	}
	g, err := gs.grantFrom(t, terms)
	if err != nil {
		return err
	}
	if err := gs.checkCount(ctx, t, g); err != nil {
		return err
	}
	n := note(t, Granted, g.GivenAt)
	last := g.By[len(g.By)-1]
	n.Actor, n.Approver, n.Grant, n.Outcome = last.By, last.By, g.ID, grantText(g)
	if err := gs.add(ctx, g, n); err != nil {
		return err
	}
	gs.env.log.InfoContext(LogContext(ctx, t), "standing approval given", "grant", g.ID, "by", last.By, "until", g.Until, "uses", g.MaxUses)
	gs.env.observe(ctx, Event{Step: Granted, Task: t, By: last.By})
	return nil
}

// allowRetry turns the approval of t into a grant for exactly the same call until t expires. The
// upstream refused the session or the credentials of the client, so the call can be repeated
// without another approval. If a grant approved t, its use is returned.
func (gs *grants) allowRetry(ctx context.Context, t task.Task) {
	if t.Approval == nil || review.ReadFacts(t).SharedOwner {
		return // no person approved it, or the owner cannot be recognized
	}
	var err error
	if used := t.Approval.Grant(); used != "" {
		err = gs.stored.Return(ctx, used, t.ID)
	} else if !gs.confirmer.needed(t) { // a signature is for one run
		err = gs.giveRetry(ctx, t)
	}
	if err != nil {
		gs.env.log.WarnContext(LogContext(ctx, t), "people will be asked again about a call that did not run", "err", err)
	}
}

func (gs *grants) giveRetry(ctx context.Context, t task.Task) error {
	w, _ := gs.workflows.of(t)
	//mutate:swap "review.ValidUntil(t, w.Validity)" "review.ValidUntil(t, w.Validity).Add(1000 * time.Hour)" TestRefusedCallIsApprovedUntilItsDeadline the approval of a retry never expires
	g, err := gs.grantFrom(t, gatetask.GrantTerms{Until: review.ValidUntil(t, w.Validity), Uses: 1})
	if err != nil {
		return err
	}
	g.Retry = true
	n := note(t, Granted, g.GivenAt)
	n.Actor, n.Grant, n.Outcome = gs.env.name, g.ID, grantText(g)
	n.Reason = "the call did not run, because the upstream refused the session or the credentials of the client"
	return gs.add(ctx, g, n)
}

// grantFrom returns the grant that the approvers of t gave with the given terms.
func (gs *grants) grantFrom(t task.Task, terms gatetask.GrantTerms) (grantstore.Grant, error) {
	var tools []gatetask.GrantTool
	if slices.ContainsFunc(t.Approval.Approvals, func(d gatetask.Decision) bool { return d.NewGrant != nil && d.NewGrant.Tools != "" }) {
		tools = review.ReadFacts(t).ReadOnlyTools // also needed to check the signatures, whatever the narrowest reach is
	}
	scope, meta, err := scopeOf(t, terms.GrantShape, tools)
	if err != nil {
		return grantstore.Grant{}, err
	}
	g := grantstore.Grant{
		ID: grantstore.NewID(scope), Workflow: t.Workflow, GrantShape: terms.GrantShape, ReadOnly: tools, Meta: metaDigests(meta), From: t.ID,
		By: t.Approval.Approvals, GivenAt: gs.env.now().UTC(), Until: terms.Until.UTC(), MaxUses: terms.Uses,
	}
	if g.Pattern, err = scope.Digest(); err != nil {
		return g, err
	}
	g.Facts, err = gs.viewer.GrantFacts(t, terms.GrantShape)
	return g, err
}

// add stores a new grant and its note n. If the grant cannot take effect after the note was
// written, the journal records a revocation. If the gate is killed in between, the journal has a
// grant that is not in force.
func (gs *grants) add(ctx context.Context, g grantstore.Grant, n task.Note) error {
	return gs.addWith(ctx, g, n, func() error { return gs.env.store.Append(ctx, n) })
}

// addWith is add for a note that record stores.
func (gs *grants) addWith(ctx context.Context, g grantstore.Grant, n task.Note, record func() error) error {
	noted := false
	err := gs.stored.AddRecorded(ctx, g, gs.env.name, func() error {
		err := record()
		noted = err == nil
		return err
	})
	if err == nil || !noted || errors.Is(err, grantstore.ErrUncertain) {
		return err
	}
	n.Step, n.Actor, n.Approver, n.Reason = string(Revoked), gs.env.name, "", grantstore.NeverInForce
	n.Via, n.Passkey = gatetask.Via{}, nil
	n.Outcome = fmt.Sprintf("used: 0 of %d", g.MaxUses)
	return errors.Join(err, gs.env.store.Append(ctx, n))
}

// grantText describes the terms of g for the journal, without names of arguments.
func grantText(g grantstore.Grant) string {
	text := fmt.Sprintf("until %s, uses: %d, free arguments: %d", g.Until.UTC().Format(time.RFC3339), g.MaxUses, len(g.Free))
	if len(g.Below) > 0 {
		text += fmt.Sprintf(", paths: %d", len(g.Below))
	}
	if g.Reach != gatetask.ReachTool {
		text += ", reach: " + string(g.Reach)
	}
	return text
}

// checkCount returns nil if the owner of t can have one more grant like g for the tool. Grants of
// [grants.allowRetry] are not counted: each stands for one approved call.
func (gs *grants) checkCount(ctx context.Context, t task.Task, g grantstore.Grant) error {
	scope, _, err := scopeOf(t, g.GrantShape, nil)
	if err != nil {
		return err
	}
	all, err := gs.stored.For(ctx, scope)
	if err != nil {
		return err
	}
	live := 0
	for _, g := range all {
		if !g.Retry && g.Usable(gs.env.now(), grantstore.Limits{Longest: time.Duration(1<<62 - 1), Uses: grantstore.MaxUses, Reach: string(gatetask.ReachAgent)}) == nil {
			live++
		}
	}
	if live >= maxGrants {
		what := "for this tool"
		if g.Reach != gatetask.ReachTool {
			what = "with this reach"
		}
		return &review.NoGrantError{Reason: fmt.Sprintf("the agent has %d %s already", live, what)}
	}
	return nil
}

// scopeOf returns the scope of t in a shape with the given read-only tools, and the metadata of t
// outside that scope.
func scopeOf(t task.Task, shape gatetask.GrantShape, tools []gatetask.GrantTool) (grantstore.Scope, map[string]jsontext.Value, error) {
	f := review.ReadFacts(t)
	principal := "named " + f.Principal.ID
	if f.Principal.Anonymous {
		principal = "anonymous"
	}
	call, meta, err := withoutRequestMeta(t.Call)
	return grantstore.Scope{
		Owner: t.Owner, Principal: principal, Named: f.Principal.ID != "" && !f.Principal.Anonymous, Workflow: t.Workflow,
		ToolDigest: strings.Join(heldDefinitions(t), " "), Call: call, Trusted: f.Trusted, ReadOnly: f.ReadOnly, GrantShape: shape, Tools: tools,
	}, meta, err
}

// metaDigests returns the digests of metadata, or nil if there are more than a grant stores.
// Metadata without a digest is never sent.
func metaDigests(meta map[string]jsontext.Value) map[string]task.Digest {
	if len(meta) > maxMeta {
		return nil
	}
	digests := make(map[string]task.Digest, len(meta))
	for name, value := range meta {
		digests[name] = sha256.Sum256(value)
	}
	return digests
}

// covers reports whether g was given for calls like t. Grants that people give require a known
// tool definition.
func (gs *grants) covers(g grantstore.Grant, t task.Task) bool {
	//mutate:false TestSecretIsHeld a call with a secret that no approver saw runs
	if !exact(g) && review.ReadFacts(t).Secret || g.Reach == gatetask.ReachAgent && gs.workflows.mixed {
		return false
	}
	scope, _, err := scopeOf(t, g.GrantShape, g.ReadOnly)
	if err != nil {
		return false
	}
	pattern, err := scope.Digest()
	return err == nil && pattern == g.Pattern && g.Workflow == t.Workflow && (g.Retry || t.Verdict.ToolDigest != "" && t.Call.Method == mcpname.ToolsCall)
}

// exact reports whether g covers only calls with the arguments that its approvers saw.
func exact(g grantstore.Grant) bool {
	return g.Reach == gatetask.ReachTool && len(g.Free) == 0 && len(g.Below) == 0
}

// Revoke ends a grant on every replica. Calls that it approved and that have not started do not
// run. The error is [grantstore.ErrRevoked] if it was revoked before.
func (s *Service) Revoke(ctx context.Context, id gatetask.GrantID, who Approver, reason string) (review.Grant, error) {
	return s.grants.revoke(ctx, id, who, reason)
}

// revoke implements [Service.Revoke].
func (gs *grants) revoke(ctx context.Context, id gatetask.GrantID, who Approver, reason string) (review.Grant, error) {
	if who.Name == "" {
		return review.Grant{}, ErrForbidden
	}
	now := gs.env.now()
	reason = safetext.Text(reason, review.MaxReason)
	g, err := gs.stored.Revoke(ctx, id, grantstore.Revocation{By: who.Name, At: now, Reason: reason})
	if err != nil {
		return review.Grant{}, err
	}
	shown := gs.viewer.ViewGrant(g)
	gs.env.log.InfoContext(ctx, "standing approval revoked", "grant", id, "by", who.Name)
	gs.env.observe(ctx, Event{Step: Revoked, By: who.Name})
	// The revocation counts even if the journal cannot be written.
	return shown, gs.env.store.Append(context.WithoutCancel(ctx), task.Note{
		At: now, Task: g.From, Step: string(Revoked), Actor: who.Name, Requester: shown.Principal, Upstream: shown.Upstream,
		Method: mcpname.ToolsCall, Tool: shown.Tool, ToolDigest: shown.ToolDigest, Workflow: g.Workflow,
		Reason: reason, Outcome: fmt.Sprintf("used: %d of %d", len(g.Uses), g.MaxUses), Grant: g.ID,
	})
}

// grantNotes returns the notes for a call that a grant approved. N is the note of the change.
func grantNotes(t task.Task, n task.Note) []task.Note {
	var notes []task.Note
	for _, a := range t.Approval.Approvals {
		n.Approver, n.Grant, n.Outcome = a.By, a.Grant, string(Approve)
		n.Reason = strings.TrimSpace("standing approval. " + a.Reason)
		notes = append(notes, n)
	}
	for i := range notes[:len(notes)-1] {
		notes[i].From, notes[i].To = "", ""
	}
	return notes
}

// byGrant returns c and its task t approved by one of the covering grants, after counting the use.
// Otherwise it returns them unchanged.
func (h *holder) byGrant(ctx context.Context, c Call, t task.Task, w Workflow, covering []grantstore.Grant) (Call, task.Task) {
	if same, err := h.identical(ctx, t); err != nil || same.ID != "" {
		return c, t // it attaches to that task and needs no use
	}
	if c.Define != nil {
		now := c.Define(ctx)
		//mutate:false TestGrantCoversNothingElse a grant ignores the current definition of the tool
		if now.Digest != c.Tool.Digest {
			return h.redefined(ctx, c, t, now)
		}
	}
	for _, g := range covering {
		used, err := h.grants.stored.Use(ctx, g.ID, t.ID, h.env.now(), grantstore.Limits(w.Grants))
		if err != nil {
			h.env.log.InfoContext(LogContext(ctx, t), "standing approval not used", "grant", g.ID, "err", err)
			continue
		}
		approved, err := h.approvedBy(ctx, c, t, used)
		if err != nil {
			h.env.log.ErrorContext(LogContext(ctx, t), "standing approval not used", "grant", g.ID, "err", err)
			break
		}
		c.grant = &used
		return c, approved
	}
	return c, t
}

// covering returns the workflow of c and the grants that cover its task t, the earliest end first.
func (gs *grants) covering(ctx context.Context, c Call, t task.Task) (Workflow, []grantstore.Grant) {
	w, known := gs.workflows.named(t.Workflow)
	if !known || t.State != task.InputRequired || c.SharedOwner {
		return w, nil
	}
	all, err := gs.of(ctx, t, w)
	if err != nil {
		gs.env.log.WarnContext(LogContext(ctx, t), "standing approvals not read", "err", err)
		return w, nil
	}
	all = slices.DeleteFunc(all, func(g grantstore.Grant) bool {
		now := w
		now.SelfApproval = w.SelfApproval && g.Retry // approvers cannot give a grant to their own agent
		//mutate:swap "!satisfied" "false && !satisfied" TestGrantNeedsCurrentPolicy a grant is used although its approvers may no longer approve
		return g.Usable(gs.env.now(), grantstore.Limits(w.Grants)) != nil || c.Tool.Change != nil && !g.Retry || !gs.covers(g, t) || !satisfied(now, task.Task{
			Owner: t.Owner, HeldCall: gatetask.HeldCall{Verdict: t.Verdict, Approval: &gatetask.Approval{Approvals: g.By}},
		}) || gs.confirmer.covers(ctx, g, t) != nil
	})
	sort.Slice(all, func(i, j int) bool { return all[i].Until.Before(all[j].Until) }) // slices.SortFunc would be compiled for this large type alone
	return w, all
}

// of returns the grants of the owner of t that may cover t, with all reaches that w allows.
func (gs *grants) of(ctx context.Context, t task.Task, w Workflow) ([]grantstore.Grant, error) {
	var all []grantstore.Grant
	for _, reach := range gatetask.Reaches() {
		if !reach.Within(gatetask.GrantReach(w.Grants.Reach)) {
			break
		}
		scope, _, err := scopeOf(t, gatetask.GrantShape{Reach: reach}, nil)
		if err != nil {
			return nil, err
		}
		found, err := gs.stored.For(ctx, scope)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// redefined returns c and its task with the tool's current definition, if that is known.
func (h *holder) redefined(ctx context.Context, c Call, t task.Task, now Tool) (Call, task.Task) {
	if now.Digest == "" {
		return c, t
	}
	c.Tool = now
	again, err := h.prepare(ctx, c)
	if err != nil {
		return c, t
	}
	return c, again
}

// approvedBy returns the task of c as approved by g. It replaces t, and lacks metadata that the
// approvers of g did not see.
func (h *holder) approvedBy(ctx context.Context, c Call, t task.Task, g grantstore.Grant) (task.Task, error) {
	_, meta, err := withoutRequestMeta(t.Call)
	if err != nil {
		return t, err
	}
	var unseen []string
	for name, value := range meta {
		//mutate:false TestGrantIgnoresRequestMetadata metadata that no approver saw is sent
		if g.Meta[name] != sha256.Sum256(value) {
			unseen = append(unseen, name)
		}
	}
	if c, err = c.withoutMeta(unseen); err != nil {
		return t, err
	}
	c.id, c.grant = t.ID, &g
	return h.prepare(ctx, c)
}

// withoutMeta returns c without the given members of _meta.
func (c Call) withoutMeta(names []string) (Call, error) {
	if len(names) == 0 {
		return c, nil
	}
	p, _, err := c.read()
	if err != nil {
		return c, err
	}
	meta := p.Messages[0].Params.Meta
	var patch jsonrpc.Patch
	patch.Replace(meta, meta.Without(names...))
	c.Message, c.Parsed = patch.Apply(p.Messages[0].Raw), nil
	return c, nil
}

// settleUse reports a use that was counted for t, or returns it if no task was created. If that is
// unknown, the use stays counted.
func (gs *grants) settleUse(ctx context.Context, c Call, t, held task.Task, err error) {
	if c.grant == nil {
		return
	}
	if err == nil && held.ID == t.ID {
		gs.env.observe(ctx, Event{Step: UsedGrant, Task: held})
		return
	}
	notCreated := err == nil || errors.Is(err, task.ErrRateLimited) || errors.Is(err, task.ErrOwnerFull) ||
		errors.Is(err, task.ErrCapacityExceeded) && !failed(err)
	//mutate:false TestCountedUseOfMissingCallStaysCounted a use is returned although the call may have been made
	if !notCreated {
		return
	}
	if err := gs.stored.Return(context.WithoutCancel(ctx), c.grant.ID, t.ID); err != nil {
		gs.env.log.WarnContext(LogContext(ctx, t), "use of a standing approval not given back", "grant", c.grant.ID, "err", err)
	}
}

// drift returns a failure if the grant that approved t no longer does, or nil. Now is the current
// verdict of policy.
func (gs *grants) drift(ctx context.Context, t task.Task, now policy.Verdict) (*task.Failure, error) {
	id := t.Approval.Grant()
	if id == "" {
		return nil, nil // nil means that t may run
	}
	g, err := gs.stored.Get(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrUnreadable) {
		return nil, err
	}
	why := gs.withdrawn(g, t)
	if why == "" && now.Secret && !exact(g) {
		why = "a rule that looks for secrets holds it now"
	}
	if why == "" {
		return nil, nil // nil means that t may run
	}
	return &task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: why, Retriable: true}, nil
}

// withdrawn returns why g, which may be zero, does not let t run, or "": g must have counted t,
// cover it and be in force.
func (gs *grants) withdrawn(g grantstore.Grant, t task.Task) string {
	counted := slices.ContainsFunc(g.Uses, func(u grantstore.Use) bool { return u.Task == t.ID })
	w, _ := gs.workflows.named(t.Workflow)
	g.Uses = nil // the use of t is one of them
	switch usable := g.Usable(gs.env.now(), grantstore.Limits(w.Grants)); {
	//mutate:swap "counted" "counted && false" TestForgedGrantUseDoesNotRun a task runs although the grant has not counted it
	case !counted || !gs.covers(g, t):
		return "there is no standing approval for it"
	case errors.Is(usable, grantstore.ErrRevoked):
		return "the standing approval was revoked"
	case w.Grants.Uses < 1 && !g.Retry:
		return "the workflow no longer allows standing approvals"
	case usable != nil:
		return "the standing approval is over"
	default:
		return ""
	}
}
