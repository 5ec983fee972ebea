package approval

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A standing approval, called a grant in the code, lets calls run that are like one
// which people have approved:
//
//   - An approver gives it together with an approval ([Ruling.Gives]). If several
//     people must approve, all of them must give it, and the narrowest of what they
//     say counts.
//   - A call that policy holds becomes a task like any other. If a grant covers it, it
//     is approved from the beginning ([Desk.byGrant]). All that protects an approved
//     call protects it too: policy is asked again, the definition of the tool and the
//     digest are compared, it is claimed once, and the request is written from the
//     parts that a grant covers.
//   - Its use is counted before the task is created. If the process ends in between,
//     the use is lost: there are never more calls than uses.

// maxGrants is how many grants one owner can have for one tool at the same time.
const maxGrants = 20

// maxMeta is how many digests of metadata a grant keeps.
const maxMeta = 16

func (c *core) grants() task.Grants { return task.Grants{Records: c.cfg.Store} }

// mayGive returns nil if who may give the grant of r with an approval of t.
func (d *Desk) mayGive(t task.Task, who Approver, r Ruling) error {
	if r.Gives == nil {
		return nil
	}
	offer, err := d.cases.Offer(t)
	if err != nil {
		return err
	}
	now := d.cfg.Now()
	var why string
	switch {
	case r.Decision != Approve:
		why = "a rejection gives none"
	case isRequester(t, who):
		why = "you cannot give one to your own agent"
	case r.Unread > 0:
		why = "a part of the call was not read"
	case r.Gives.Uses < 1 || r.Gives.Uses > offer.Uses:
		why = fmt.Sprintf("it can have 1 to %d uses", offer.Uses)
	case !r.Gives.Until.After(now) || r.Gives.Until.After(now.Add(offer.Longest())):
		why = fmt.Sprintf("it must end within %v", offer.Longest())
	case !allIn(r.Gives.Free, offer.Free):
		why = "only an argument of this call of which everything is shown can be left free, each once"
	default:
		return nil
	}
	return &casefile.NoGrantError{Why: why}
}

// allIn reports whether each of names is in all, and none is there twice.
func allIn(names, all []string) bool {
	for i, name := range names {
		if !slices.Contains(all, name) || slices.Contains(names[:i], name) {
			return false
		}
	}
	return true
}

// give keeps the grant that the approvers of t gave, if all of them did. The journal
// knows of it before it takes effect.
func (d *Desk) give(ctx context.Context, t task.Task) error {
	terms, all := task.Narrowest(t.Approval.Approvals)
	if !all {
		return nil
	}
	scope, meta, err := d.scopeOf(t, terms.Free)
	if err != nil {
		return err
	}
	if err := d.hasRoom(ctx, scope); err != nil {
		return err
	}
	g := task.Grant{
		ID: task.NewGrantID(scope), Workflow: t.Workflow, Free: terms.Free, Meta: metaDigests(meta), From: t.ID,
		By: t.Approval.Approvals, GivenAt: d.cfg.Now().UTC(), Until: terms.Until.UTC(), MaxUses: terms.Uses,
	}
	if g.Pattern, err = scope.Digest(); err != nil {
		return err
	}
	if g.Facts, err = d.cases.GrantFacts(t, terms.Free); err != nil {
		return err
	}
	n := note(t, Granted, g.GivenAt)
	last := g.By[len(g.By)-1]
	n.Actor, n.Approver, n.Grant, n.Outcome = last.By, last.By, g.ID, grantText(g)
	if err := d.cfg.Store.Append(ctx, n); err != nil {
		return err
	}
	if err := d.grants().Give(ctx, g); err != nil {
		return err
	}
	d.cfg.Log.InfoContext(About(ctx, t), "standing approval given", "grant", g.ID, "by", last.By, "until", g.Until, "uses", g.MaxUses)
	d.observe(ctx, Event{Step: Granted, Task: t, By: last.By})
	return nil
}

// grantText says how far g goes, for the journal. The names of arguments are not
// part of it.
func grantText(g task.Grant) string {
	return fmt.Sprintf("until %s, uses: %d, free arguments: %d", g.Until.UTC().Format(time.RFC3339), g.MaxUses, len(g.Free))
}

// hasRoom returns nil if there can be one more grant for the tool and owner of s.
func (d *Desk) hasRoom(ctx context.Context, s task.GrantScope) error {
	all, err := d.grants().Of(ctx, s)
	if err != nil {
		return err
	}
	live := 0
	for _, g := range all {
		if g.Usable(d.cfg.Now(), task.GrantLimits{Longest: time.Duration(1<<62 - 1), Uses: task.MaxGrantUses}) == nil {
			live++
		}
	}
	if live >= maxGrants {
		return &casefile.NoGrantError{Why: fmt.Sprintf("the agent has %d for this tool already", live)}
	}
	return nil
}

// scopeOf returns what calls of a grant have in common with t, and the metadata of
// t that is no part of it.
func (c *core) scopeOf(t task.Task, free []string) (task.GrantScope, map[string]jsontext.Value, error) {
	p := casefile.ReadFacts(t).Principal
	principal := "named " + p.ID
	if p.Anonymous {
		principal = "anonymous"
	}
	call, meta, err := withoutRequestMeta(t.Call, c.grantMeta())
	return task.GrantScope{
		Owner: t.Owner, Principal: principal, Workflow: t.Workflow, ToolDigest: t.Verdict.ToolDigest, Call: call, Free: free,
	}, meta, err
}

// grantMeta names the members of _meta that are no part of a grant, besides those that
// the gate knows. Gates that share a store and have other configurations must agree on
// them.
func (c *core) grantMeta() []string {
	if c.cfg.Mixed {
		return nil
	}
	return c.settings().RequestMeta
}

// metaDigests returns the digests of metadata. Of more than a grant keeps, it returns
// none: such metadata is never sent.
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

// byGrant returns c and its task t approved by a grant, if one covers it, and
// otherwise as they are. The use is counted then.
func (d *Desk) byGrant(ctx context.Context, c Call, t task.Task) (Call, task.Task) {
	w, covering := d.covering(ctx, c, t)
	if len(covering) == 0 {
		return c, t
	}
	if same, err := d.identical(ctx, t); err != nil || same.ID != "" {
		return c, t // it joins that one, which needs no use
	}
	if c.Define != nil {
		now := c.Define(ctx)
		if now.Digest != c.Tool.Digest {
			return d.redefined(ctx, c, t, now)
		}
	}
	for _, g := range covering {
		used, err := d.grants().Use(ctx, g.ID, t.ID, d.cfg.Now(), w.Grants)
		if err != nil {
			d.cfg.Log.InfoContext(About(ctx, t), "standing approval not used", "grant", g.ID, "cause", err)
			continue
		}
		approved, err := d.approvedBy(ctx, c, t, used)
		if err != nil {
			d.cfg.Log.ErrorContext(About(ctx, t), "standing approval not used", "grant", g.ID, "error", err)
			break
		}
		c.grant = &used
		return c, approved
	}
	return c, t
}

// covering returns the workflow of c and the grants that cover its task t, those that
// end first at the beginning.
func (d *Desk) covering(ctx context.Context, c Call, t task.Task) (Workflow, []task.Grant) {
	w, known := d.cfg.Workflow(t.Workflow)
	if !known || w.Grants.Uses < 1 || t.State != task.InputRequired || t.Call.Method != casefile.MethodTool || c.Alone || c.Tool.Digest == "" {
		return w, nil
	}
	scope, _, err := d.scopeOf(t, nil)
	if err != nil {
		return w, nil
	}
	all, err := d.grants().Of(ctx, scope)
	if err != nil {
		d.cfg.Log.WarnContext(About(ctx, t), "standing approvals not read", "error", err)
		return w, nil
	}
	others := w
	others.SelfApproval = false // nobody gives a grant to their own agent
	all = slices.DeleteFunc(all, func(g task.Grant) bool {
		return g.Usable(d.cfg.Now(), w.Grants) != nil || !d.covers(g, t) || !others.satisfied(task.Task{
			Owner: t.Owner, Verdict: t.Verdict, Approval: &task.Approval{Approvals: g.By},
		})
	})
	slices.SortFunc(all, func(a, b task.Grant) int { return a.Until.Compare(b.Until) })
	return w, all
}

// covers reports whether the call of t is one for which g was given.
func (c *core) covers(g task.Grant, t task.Task) bool {
	scope, _, err := c.scopeOf(t, g.Free)
	if err != nil {
		return false
	}
	pattern, err := scope.Digest()
	return err == nil && pattern == g.Pattern && g.Workflow == t.Workflow && t.Verdict.ToolDigest != ""
}

// redefined returns c and its task with the definition that the tool has now, if
// there is one: approvers are asked about that.
func (d *Desk) redefined(ctx context.Context, c Call, t task.Task, now Tool) (Call, task.Task) {
	if now.Digest == "" {
		return c, t
	}
	c.Tool = now
	again, err := d.prepare(ctx, c)
	if err != nil {
		return c, t
	}
	return c, again
}

// approvedBy returns the task of c, which takes the place of t, as g approves it.
// Metadata that its approvers did not see is left out of it.
func (d *Desk) approvedBy(ctx context.Context, c Call, t task.Task, g task.Grant) (task.Task, error) {
	_, meta, err := d.scopeOf(t, nil)
	if err != nil {
		return t, err
	}
	var unseen []string
	for name, value := range meta {
		if g.Meta[name] != sha256.Sum256(value) {
			unseen = append(unseen, name)
		}
	}
	if c.Message, err = withoutMeta(c.Message, unseen); err != nil {
		return t, err
	}
	c.id, c.grant = t.ID, &g
	return d.prepare(ctx, c)
}

// withoutMeta returns a request without the members of its _meta that have the given
// names.
func withoutMeta(message []byte, names []string) ([]byte, error) {
	if len(names) == 0 {
		return message, nil
	}
	p, err := jsonrpc.Parse(message, jsonrpc.Limits{})
	if err != nil {
		return nil, err
	}
	meta := p.Messages[0].Params.Meta
	var patch jsonrpc.Patch
	patch.Replace(meta, meta.Without(names...))
	return patch.Apply(message), nil
}

// settleUse reports what became of a use that was counted for t: a task with its ID
// was created, or one use is given back. If that is not known, the use stays counted.
func (d *Desk) settleUse(ctx context.Context, c Call, t, held task.Task, err error) {
	if c.grant == nil {
		return
	}
	if err == nil && held.ID == t.ID {
		d.observe(ctx, Event{Step: UsedGrant, Task: held})
		return
	}
	notCreated := err == nil || errors.Is(err, task.ErrRateLimited) || errors.Is(err, task.ErrCapacityExceeded) && !failed(err)
	if !notCreated {
		return
	}
	if err := d.grants().Return(context.WithoutCancel(ctx), c.grant.ID, t.ID); err != nil {
		d.cfg.Log.WarnContext(About(ctx, t), "use of a standing approval not given back", "grant", c.grant.ID, "error", err)
	}
}

// grantDrift returns why t must not run although a grant approved it, or nil.
func (rn *runner) grantDrift(ctx context.Context, t task.Task) (*task.Failure, error) {
	id := t.Approval.Grant()
	if id == "" {
		return nil, nil //nolint:nilnil // no reason is no error
	}
	g, err := rn.grants().Get(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrUnreadable) {
		return nil, err
	}
	why := rn.withdrawn(g, t)
	if why == "" {
		return nil, nil //nolint:nilnil // no reason is no error
	}
	return &task.Failure{Stage: task.StagePolicyDrift, Reason: why, Retriable: true}, nil
}

// withdrawn returns why g, which may be nothing at all, does not let t run, or "": it
// must have counted t, cover it, and be in force.
func (rn *runner) withdrawn(g task.Grant, t task.Task) string {
	counted := slices.ContainsFunc(g.Uses, func(u task.GrantUse) bool { return u.Task == t.ID })
	w, _ := rn.cfg.Workflow(t.Workflow)
	g.Uses = nil // that of t is one of them
	switch usable := g.Usable(rn.cfg.Now(), w.Grants); {
	case !counted || !rn.covers(g, t):
		return "there is no standing approval for it"
	case errors.Is(usable, task.ErrGrantRevoked):
		return "the standing approval was revoked"
	case w.Grants.Uses < 1:
		return "the workflow no longer allows standing approvals"
	case usable != nil:
		return "the standing approval is over"
	default:
		return ""
	}
}

// Revoke ends a grant on every replica. A call that it let in and that has not begun
// does not run. The error is [task.ErrGrantRevoked] if it was revoked before.
func (d *Desk) Revoke(ctx context.Context, id task.GrantID, who Approver, reason string) (casefile.Grant, error) {
	if who.Name == "" {
		return casefile.Grant{}, ErrForbidden
	}
	now := d.cfg.Now()
	reason = plain.Text(reason, casefile.MaxReason)
	g, err := d.grants().Revoke(ctx, id, task.Revocation{By: who.Name, At: now, Reason: reason})
	if err != nil {
		return casefile.Grant{}, err
	}
	shown := d.cases.ViewGrant(g)
	d.cfg.Log.InfoContext(ctx, "standing approval revoked", "grant", id, "by", who.Name)
	d.observe(ctx, Event{Step: Revoked, By: who.Name})
	// It is revoked whether or not the journal can say so.
	return shown, d.cfg.Store.Append(context.WithoutCancel(ctx), task.Note{
		At: now, Task: g.From, Step: string(Revoked), Actor: who.Name, Requester: shown.Principal, Upstream: shown.Upstream,
		Method: casefile.MethodTool, Tool: shown.Tool, ToolDigest: shown.ToolDigest, Workflow: g.Workflow,
		Reason: reason, Outcome: fmt.Sprintf("used: %d of %d", len(g.Uses), g.MaxUses), Grant: g.ID,
	})
}

// grantNotes returns what the journal says of a call that a grant approved, where n
// tells of the change.
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
