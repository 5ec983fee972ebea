package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// If a workflow asks for it, an approval counts only with the signature of a passkey of the approver:
//
//   - The approver signs a statement about the call, with its digest and the digest of what was shown
//     ([Service.Statement]). The signature is stored with the decision ([decider.sign]).
//   - Before the call runs, every signature is checked again, for the call that is about to run
//     ([confirmer.drift]). So the edited text of a task or of a standing approval does not run.
//   - A standing approval counts for the calls that the approvers have signed ([confirmer.covers]).
//
// A call that was held for such a workflow needs passkeys even if the workflow changes later. A
// signature is for one run: people are asked again where other calls are repeated without asking
// ([grants.allowRetry]).

// The errors of an approval without the signature that it needs.
var (
	ErrPasskeyRequired = errors.New("approval: the workflow needs the approver's passkey")
	ErrPasskeyInvalid  = passkey.ErrInvalid
)

// The outcomes of refused approvals in the journal, besides [DecidedByAgent].
const (
	PasskeyRequired = "passkey_required"
	PasskeyInvalid  = "passkey_invalid"
)

// A confirmer checks the signatures of approvals.
type confirmer struct {
	env       *env
	workflows *workflows
	passkeys  passkey.Store
	grants    grantstore.Store
}

// Passkeys returns the passkeys of operators.
func (s *Service) Passkeys() passkey.Store { return s.confirmer.passkeys }

func (c *confirmer) needed(t task.Task) bool {
	w, _ := c.workflows.of(t)
	return review.NeedsPasskey(w, t)
}

// Statement returns what an approver signs for an approval.
func (s *Service) Statement(ctx context.Context, id task.ID, who Approver, r Ruling) (gatetask.Statement, error) {
	t, err := s.env.store.Get(ctx, task.AnyOwner().Ref(id))
	if err == nil && r.Correction != nil {
		_, err = s.decider.mayCorrect(t, r)
	}
	if err != nil {
		return gatetask.Statement{}, err
	}
	return statement(t, who, r)
}

func statement(t task.Task, who Approver, r Ruling) (gatetask.Statement, error) {
	if r.Correction != nil {
		var err error
		if t, err = corrected(t, r.Correction); err != nil {
			return gatetask.Statement{}, err
		}
		r.Gives = correctionTerms(t)
	}
	s := gatetask.Statement{
		Task: string(t.ID), Call: t.CallDigest().String(), Shown: r.Shown, Unread: int64(max(0, r.Unread)), Approver: who.Name, Grant: r.Gives,
	}
	scope, meta, err := scopeOf(t, shapeOf(r.Gives), review.ReadFacts(t).ReadOnlyTools)
	if err != nil {
		return s, err
	}
	s.Scope, err = scopeDigest(scope, metaDigests(meta))
	return s, err
}

func shapeOf(terms *gatetask.GrantTerms) gatetask.GrantShape {
	if terms == nil {
		return gatetask.GrantShape{}
	}
	return terms.GrantShape
}

// scopeDigest returns the digest of all calls in a scope, and of the metadata that may be sent with them.
func scopeDigest(s grantstore.Scope, meta map[string]task.Digest) (string, error) {
	calls, err := s.Digest()
	h := sha256.New()
	h.Write(calls[:])
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		of, value := sha256.Sum256([]byte(name)), meta[name]
		h.Write(append(of[:], value[:]...))
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// sign returns the signature of r, or nil if r has none and needs none. The error is
// [ErrPasskeyRequired] or [ErrPasskeyInvalid]; the journal records the attempt.
func (c *confirmer) sign(ctx context.Context, t task.Task, who Approver, r Ruling) (*gatetask.Signature, error) {
	switch {
	case !r.approves():
		return nil, nil // rejections need no signature
	case r.Signed == "" && !c.needed(t):
		return nil, nil // nor does this workflow
	case r.Signed == "":
		return nil, c.refuse(ctx, note(t, Refused, c.env.now()), who, r.Via, ErrPasskeyRequired)
	}
	about, err := statement(t, who, r)
	if err != nil {
		return nil, err
	}
	signed, err := c.passkeys.Sign(ctx, r.Signed, r.Site, about)
	if errors.Is(err, ErrPasskeyInvalid) {
		return nil, c.refuse(ctx, note(t, Refused, c.env.now()), who, r.Via, err)
	}
	return &signed, err
}

// refuse records that an approval was refused, and returns err.
func (c *confirmer) refuse(ctx context.Context, n task.Note, who Approver, via gatetask.Via, err error) error {
	n.Actor, n.Approver, n.Outcome, n.Via, n.Reason = who.Name, who.Name, PasskeyInvalid, via, safetext.Text(err.Error(), review.MaxReason)
	if errors.Is(err, ErrPasskeyRequired) {
		n.Outcome = PasskeyRequired
	}
	c.env.log.WarnContext(ctx, "approval refused", "task_id", n.Task, "by", who.Name, "via", via.Details(), "why", err)
	return errors.Join(err, c.env.store.Append(context.WithoutCancel(ctx), n))
}

// strictest returns the workflow of t with the passkeys and the quorum of the present configuration too: the
// task says which gate holds it, and could have been edited.
func (c *confirmer) strictest(t task.Task) Workflow {
	w, _ := c.workflows.of(t)
	//mutate:false TestEditedHoldingGateDoesNotRun an edited task says that it needs no passkey
	if now, known := c.workflows.named(t.Workflow); known {
		w.Passkey, w.Quorum = w.Passkey || now.Passkey, max(w.Quorum, now.Quorum)
	}
	return w
}

// drift returns a failure if t needs passkeys, and not enough approvers have signed for exactly this
// call, or nil.
func (c *confirmer) drift(ctx context.Context, t task.Task) (*task.Failure, error) {
	if t.Approval == nil || !review.NeedsPasskey(c.strictest(t), t) {
		return nil, nil // nil means that t may run
	}
	signed := func(d gatetask.Decision) error { return c.check(ctx, d, t) }
	if id := t.Approval.Grant(); id != "" {
		g, err := c.grants.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		signed = func(d gatetask.Decision) error { return c.checkGranted(ctx, d, g, t) }
	}
	err := c.checkAll(t, t.Approval.Approvals, signed)
	if errors.Is(err, ErrPasskeyInvalid) || errors.Is(err, ErrPasskeyRequired) {
		c.env.log.WarnContext(LogContext(ctx, t), "the signature of an approval does not count", "err", err)
		return &task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "its approval is not confirmed by a passkey", Retriable: true}, nil
	}
	return nil, err
}

// covers returns nil if t needs no passkeys, or if the approvers of g have signed for calls like t.
func (c *confirmer) covers(ctx context.Context, g grantstore.Grant, t task.Task) error {
	if !c.needed(t) {
		return nil
	}
	return c.checkAll(t, g.By, func(d gatetask.Decision) error { return c.checkGranted(ctx, d, g, t) })
}

// checkAll returns nil if all decisions are signed, by as many operators as the workflow of t asks for.
func (c *confirmer) checkAll(t task.Task, all []gatetask.Decision, signed func(gatetask.Decision) error) error {
	approvers := map[string]bool{}
	for _, d := range all {
		if d.Passkey == nil {
			return ErrPasskeyRequired
		}
		if err := signed(d); err != nil {
			return err
		}
		approvers[d.By] = true
	}
	//mutate:false TestEditedStoreDoesNotRun one signature counts twice
	if len(approvers) < max(1, c.strictest(t).Quorum) {
		return ErrPasskeyRequired
	}
	return nil
}

// check returns nil if d has a valid signature for exactly the call of t.
func (c *confirmer) check(ctx context.Context, d gatetask.Decision, t task.Task) error {
	want, err := statement(t, Approver{Name: d.By}, Ruling{Shown: d.Passkey.Statement.Shown, Unread: int(d.UnreadBytes), Gives: d.NewGrant})
	if err != nil {
		return err
	}
	//mutate:false TestEditedStoreDoesNotRun a signature counts for another call
	if !passkey.Equal(want, d.Passkey.Statement) {
		return ErrPasskeyInvalid
	}
	return c.passkeys.Verify(ctx, *d.Passkey)
}

// checkGranted returns nil if d has a valid signature for calls like t on the terms of g.
func (c *confirmer) checkGranted(ctx context.Context, d gatetask.Decision, g grantstore.Grant, t task.Task) error {
	signed := d.Passkey.Statement
	calls, _, err := scopeOf(t, shapeOf(signed.Grant), g.ReadOnly)
	if err != nil {
		return err
	}
	scope, err := scopeDigest(calls, g.Meta)
	if err != nil {
		return err
	}
	//mutate:false TestEditedGrantDoesNotRun a standing approval counts for more than its approvers have signed
	if signed.Task != string(g.From) || signed.Approver != d.By || signed.Scope != scope || isWider(g, signed.Grant) {
		return ErrPasskeyInvalid
	}
	return c.passkeys.Verify(ctx, *d.Passkey)
}

// isWider reports whether g covers more than an approver has signed. Nobody signs for retries, except
// for corrections.
func isWider(g grantstore.Grant, signed *gatetask.GrantTerms) bool {
	if signed == nil || g.Retry && (!g.Correction || signed.Uses != 1 || grantstore.Wider(signed.GrantShape, gatetask.GrantShape{})) {
		return true
	}
	return g.MaxUses > signed.Uses || g.Until.After(signed.Until) || grantstore.Wider(g.GrantShape, signed.GrantShape)
}
