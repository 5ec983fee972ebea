package approval

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sort"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// byGrant returns c and its task t approved by a grant, if one covers it, and
// otherwise as they are. The use is counted then.
func (h *holder) byGrant(ctx context.Context, c Call, t task.Task) (Call, task.Task) {
	w, covering := h.grants.covering(ctx, c, t)
	if len(covering) == 0 {
		return c, t
	}
	if same, err := h.identical(ctx, t); err != nil || same.ID != "" {
		return c, t // it attaches to that one, which needs no use
	}
	if c.Define != nil {
		now := c.Define(ctx)
		if now.Digest != c.Tool.Digest {
			return h.redefined(ctx, c, t, now)
		}
	}
	for _, g := range covering {
		used, err := h.grants.stored.Use(ctx, g.ID, t.ID, h.cfg.Now(), w.Grants)
		if err != nil {
			h.cfg.Log.InfoContext(About(ctx, t), "standing approval not used", "grant", g.ID, "cause", err)
			continue
		}
		approved, err := h.approvedBy(ctx, c, t, used)
		if err != nil {
			h.cfg.Log.ErrorContext(About(ctx, t), "standing approval not used", "grant", g.ID, "error", err)
			break
		}
		c.grant = &used
		return c, approved
	}
	return c, t
}

// covering returns the workflow of c and the grants that cover its task t, those that
// end first at the beginning.
func (gs *grants) covering(ctx context.Context, c Call, t task.Task) (Workflow, []grantstore.Grant) {
	w, known := gs.cfg.Workflow(t.Workflow)
	if !known || w.Grants.Uses < 1 || t.State != task.InputRequired || t.Call.Method != casefile.MethodTool || c.Alone || c.Tool.Digest == "" {
		return w, nil
	}
	scope, _, err := gs.scopeOf(t, nil)
	if err != nil {
		return w, nil
	}
	all, err := gs.stored.Of(ctx, scope)
	if err != nil {
		gs.cfg.Log.WarnContext(About(ctx, t), "standing approvals not read", "error", err)
		return w, nil
	}
	others := w
	others.SelfApproval = false // nobody gives a grant to their own agent
	all = slices.DeleteFunc(all, func(g grantstore.Grant) bool {
		return g.Usable(gs.cfg.Now(), w.Grants) != nil || !gs.covers(g, t) || !others.satisfied(task.Task{
			Owner: t.Owner, HeldCall: task.HeldCall{Verdict: t.Verdict, Approval: &task.Approval{Approvals: g.By}},
		})
	})
	sort.Slice(all, func(i, j int) bool { return all[i].Until.Before(all[j].Until) }) // slices.SortFunc would be compiled for this large type alone
	return w, all
}

// redefined returns c and its task with the definition that the tool has now, if
// there is one: approvers are asked about that.
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

// approvedBy returns the task of c, which takes the place of t, as g approves it.
// Metadata that its approvers did not see is left out of it.
func (h *holder) approvedBy(ctx context.Context, c Call, t task.Task, g grantstore.Grant) (task.Task, error) {
	_, meta, err := h.grants.scopeOf(t, nil)
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
	return h.prepare(ctx, c)
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
func (gs *grants) settleUse(ctx context.Context, c Call, t, held task.Task, err error) {
	if c.grant == nil {
		return
	}
	if err == nil && held.ID == t.ID {
		gs.observe(ctx, Event{Step: UsedGrant, Task: held})
		return
	}
	notCreated := err == nil || errors.Is(err, task.ErrRateLimited) || errors.Is(err, task.ErrCapacityExceeded) && !failed(err)
	if !notCreated {
		return
	}
	if err := gs.stored.Return(context.WithoutCancel(ctx), c.grant.ID, t.ID); err != nil {
		gs.cfg.Log.WarnContext(About(ctx, t), "use of a standing approval not given back", "grant", c.grant.ID, "error", err)
	}
}

// drift returns why t must not run although a grant approved it, or nil.
func (gs *grants) drift(ctx context.Context, t task.Task) (*task.Failure, error) {
	id := t.Approval.Grant()
	if id == "" {
		return nil, nil //nolint:nilnil // no reason is no error
	}
	g, err := gs.stored.Get(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrUnreadable) {
		return nil, err
	}
	why := gs.withdrawn(g, t)
	if why == "" {
		return nil, nil //nolint:nilnil // no reason is no error
	}
	return &task.Failure{Stage: task.StagePolicyDrift, Reason: why, Retriable: true}, nil
}

// withdrawn returns why g, which may be nothing at all, does not let t run, or "": it
// must have counted t, cover it, and be in force.
func (gs *grants) withdrawn(g grantstore.Grant, t task.Task) string {
	counted := slices.ContainsFunc(g.Uses, func(u grantstore.Use) bool { return u.Task == t.ID })
	w, _ := gs.cfg.Workflow(t.Workflow)
	g.Uses = nil // that of t is one of them
	switch usable := g.Usable(gs.cfg.Now(), w.Grants); {
	case !counted || !gs.covers(g, t):
		return "there is no standing approval for it"
	case errors.Is(usable, grantstore.ErrRevoked):
		return "the standing approval was revoked"
	case w.Grants.Uses < 1:
		return "the workflow no longer allows standing approvals"
	case usable != nil:
		return "the standing approval is over"
	default:
		return ""
	}
}
