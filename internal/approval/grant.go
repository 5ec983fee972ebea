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
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A standing approval, called a grant in the code, lets calls run that are like one
// which people have approved:
//
//   - An approver gives it together with an approval ([Ruling.Gives]). If several
//     people must approve, all of them must give it, and the narrowest of what they
//     say counts.
//   - A call that policy holds becomes a task like any other. If a grant covers it, it
//     is approved from the beginning ([holder.byGrant]). All that protects an approved
//     call protects it too: policy is asked again, the definition of the tool and the
//     digest are compared, it is claimed once, and the request is written from the
//     parts that a grant covers.
//   - Its use is counted before the task is created. If the process ends in between,
//     the use is lost: there are never more calls than uses.

// maxGrants is how many grants one owner can have for one tool at the same time.
const maxGrants = 20

// maxMeta is how many digests of metadata a grant keeps.
const maxMeta = 16

// Grants give, check and revoke standing approvals.
type grants struct {
	*core

	cases  *casefile.Viewer
	stored grantstore.Store
}

func newGrants(c *core, cases *casefile.Viewer) *grants {
	return &grants{core: c, cases: cases, stored: grantstore.Store{Records: c.cfg.Store}}
}

// mayGive returns nil if who may give the grant of r with an approval of t.
func (gs *grants) mayGive(t task.Task, who Approver, r Ruling) error {
	if r.Gives == nil {
		return nil
	}
	offer, err := gs.cases.Offer(t)
	if err != nil {
		return err
	}
	now := gs.cfg.Now()
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
// knows of it before it takes effect, and of none that is not kept.
func (gs *grants) give(ctx context.Context, t task.Task) error {
	terms, all := grantstore.Narrowest(t.Approval.Approvals)
	if !all {
		return nil
	}
	scope, meta, err := gs.scopeOf(t, terms.Free)
	if err != nil {
		return err
	}
	if err := gs.hasRoom(ctx, scope); err != nil {
		return err
	}
	g := grantstore.Grant{
		ID: grantstore.NewID(scope), Workflow: t.Workflow, Free: terms.Free, Meta: metaDigests(meta), From: t.ID,
		By: t.Approval.Approvals, GivenAt: gs.cfg.Now().UTC(), Until: terms.Until.UTC(), MaxUses: terms.Uses,
	}
	if g.Pattern, err = scope.Digest(); err != nil {
		return err
	}
	if g.Facts, err = gs.cases.GrantFacts(t, terms.Free); err != nil {
		return err
	}
	n := note(t, Granted, g.GivenAt)
	last := g.By[len(g.By)-1]
	n.Actor, n.Approver, n.Grant, n.Outcome = last.By, last.By, g.ID, grantText(g)
	if err := gs.keep(ctx, g, n); err != nil {
		return err
	}
	gs.cfg.Log.InfoContext(About(ctx, t), "standing approval given", "grant", g.ID, "by", last.By, "until", g.Until, "uses", g.MaxUses)
	gs.observe(ctx, Event{Step: Granted, Task: t, By: last.By})
	return nil
}

// keep keeps a new grant, of which n is the note for the journal. If the grant cannot
// be put in force after that, the journal has it as revoked, like the store, unless the
// gate is killed meanwhile, or does not hear that the journal has the note: then the
// journal says that it was given, and it is not in force.
func (gs *grants) keep(ctx context.Context, g grantstore.Grant, n task.Note) error {
	noted := false
	err := gs.stored.GiveRecorded(ctx, g, gs.cfg.Name, func() error {
		err := gs.cfg.Store.Append(ctx, n)
		noted = err == nil
		return err
	})
	if err == nil || !noted || errors.Is(err, grantstore.ErrUncertain) {
		return err
	}
	n.Step, n.Actor, n.Approver, n.Reason = string(Revoked), gs.cfg.Name, "", grantstore.NeverInForce
	n.Outcome = fmt.Sprintf("used: 0 of %d", g.MaxUses)
	return errors.Join(err, gs.cfg.Store.Append(ctx, n))
}

// grantText says how far g goes, for the journal. The names of arguments are not
// part of it.
func grantText(g grantstore.Grant) string {
	return fmt.Sprintf("until %s, uses: %d, free arguments: %d", g.Until.UTC().Format(time.RFC3339), g.MaxUses, len(g.Free))
}

// hasRoom returns nil if there can be one more grant for the tool and owner of s.
func (gs *grants) hasRoom(ctx context.Context, s grantstore.Scope) error {
	all, err := gs.stored.Of(ctx, s)
	if err != nil {
		return err
	}
	live := 0
	for _, g := range all {
		if g.Usable(gs.cfg.Now(), grantstore.Limits{Longest: time.Duration(1<<62 - 1), Uses: grantstore.MaxUses}) == nil {
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
func (gs *grants) scopeOf(t task.Task, free []string) (grantstore.Scope, map[string]jsontext.Value, error) {
	p := casefile.ReadFacts(t).Principal
	principal := "named " + p.ID
	if p.Anonymous {
		principal = "anonymous"
	}
	call, meta, err := withoutRequestMeta(t.Call, gs.grantMeta())
	return grantstore.Scope{
		Owner: t.Owner, Principal: principal, Workflow: t.Workflow, ToolDigest: t.Verdict.ToolDigest, Call: call, Free: free,
	}, meta, err
}

// grantMeta names the members of _meta that are no part of a grant, besides those that
// the gate knows. Gates that share a store and have other configurations must agree on
// them.
func (gs *grants) grantMeta() []string {
	if gs.cfg.Mixed {
		return nil
	}
	return gs.settings().RequestMeta
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

// covers reports whether the call of t is one for which g was given.
func (gs *grants) covers(g grantstore.Grant, t task.Task) bool {
	scope, _, err := gs.scopeOf(t, g.Free)
	if err != nil {
		return false
	}
	pattern, err := scope.Digest()
	return err == nil && pattern == g.Pattern && g.Workflow == t.Workflow && t.Verdict.ToolDigest != ""
}

// Revoke ends a grant on every replica. A call that it let in and that has not begun
// does not run. The error is [grantstore.ErrRevoked] if it was revoked before.
func (gs *grants) Revoke(ctx context.Context, id task.GrantID, who Approver, reason string) (casefile.Grant, error) {
	if who.Name == "" {
		return casefile.Grant{}, ErrForbidden
	}
	now := gs.cfg.Now()
	reason = plain.Text(reason, casefile.MaxReason)
	g, err := gs.stored.Revoke(ctx, id, grantstore.Revocation{By: who.Name, At: now, Reason: reason})
	if err != nil {
		return casefile.Grant{}, err
	}
	shown := gs.cases.ViewGrant(g)
	gs.cfg.Log.InfoContext(ctx, "standing approval revoked", "grant", id, "by", who.Name)
	gs.observe(ctx, Event{Step: Revoked, By: who.Name})
	// It is revoked whether or not the journal can say so.
	return shown, gs.cfg.Store.Append(context.WithoutCancel(ctx), task.Note{
		At: now, Task: g.From, Step: string(Revoked), Actor: who.Name, Requester: shown.Principal, Upstream: shown.Upstream,
		Method: casefile.MethodTool, Tool: shown.Tool, ToolDigest: shown.ToolDigest, Workflow: g.Workflow,
		Reason: reason, Outcome: fmt.Sprintf("used: %d of %d", len(g.Uses), g.MaxUses), Grant: g.ID,
	})
}

// grantNotes returns what the journal says of a call that a grant approved, where n
// is the note of the change.
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
