package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// An approver can reject a call with a correction: the arguments with which they would approve it
// ([Ruling.Correction]). That is a rejection of one call and an approval of another one, which the
// agent may make or not. The gate never makes the corrected call itself.
//
//   - It needs all that an approval needs: authority, what the approver was shown, the passkey, for
//     the corrected call, and that no agent made it. A call that needs several approvals cannot be
//     corrected, and neither can one of which a part is hidden.
//   - The approval is a grant for exactly the corrected call, once, until the rejected call would
//     have ended. Its uses are checked as those of other grants.
//   - The grant is stored first, without effect. The rejection names it, and has the entries of
//     the journal about both. Only then the grant takes effect. If the gate dies in between, the
//     corrected call is held like any other.

// correctionTerms are the widest terms of a correction of t. They are known before the decision, so
// that the approver can sign them.
func correctionTerms(t task.Task) *gatetask.GrantTerms {
	return &gatetask.GrantTerms{Until: t.ExpiresAt.UTC(), Uses: 1}
}

// corrected returns t as if the agent had sent other arguments. The error is a
// [*review.NoCorrectionError].
func corrected(t task.Task, arguments jsontext.Value) (task.Task, error) {
	text, err := readArguments(arguments)
	if err != nil {
		return t, err
	}
	t.Call.Arguments, t.Call.Message = text, ""
	whole, err := t.Call.Digest()
	if err != nil {
		return t, &review.NoCorrectionError{Reason: "the arguments cannot be read"}
	}
	//mutate:false TestCorrectionIsRefused a call is rejected and approved at once
	if whole == t.CallDigest() {
		return t, &review.NoCorrectionError{Reason: "the arguments are those of the call; approve it instead"}
	}
	if t.Digest, err = identity(t.Call); err != nil {
		return t, &review.NoCorrectionError{Reason: "the call cannot be read"}
	}
	t.FullDigest = &whole
	return t, nil
}

// readArguments returns arguments in the form in which agents read them: strict JSON in one line,
// with escapes for hidden characters.
func readArguments(arguments jsontext.Value) (string, error) {
	if len(arguments) > 2*review.MaxCorrection { // with white space
		return "", &review.NoCorrectionError{Reason: "the arguments are too long"}
	}
	const before, after = `{"jsonrpc":"2.0","id":1,"method":"` + mcpname.ToolsCall + `","params":{"name":"x","arguments":`, `}}`
	p, err := jsonrpc.Parse([]byte(before+string(arguments)+after), jsonrpc.Limits{})
	if err != nil || p.Batch {
		return "", &review.NoCorrectionError{Reason: "the arguments must be one JSON object, in which no name occurs twice"}
	}
	read := jsontext.Value(slices.Clone(p.Messages[0].Params.Arguments.Bytes))
	// Text that closes the object would be other members of the message.
	//mutate:false TestCorrectionIsRefused the arguments contain other members of the call
	if read.Kind() != '{' || len(read) != len(bytes.TrimSpace(arguments)) || read.Compact() != nil {
		return "", &review.NoCorrectionError{Reason: "the arguments must be one JSON object, in which no name occurs twice"}
	}
	text := safetext.Escape(string(read))
	//mutate:false TestCorrectionIsRefused a model reads arguments of any size
	if len(text) > review.MaxCorrection {
		return "", &review.NoCorrectionError{Reason: "the arguments are too long"}
	}
	return text, nil
}

// correction returns the event for a rejection with a correction.
func (d *decider) correction(ctx context.Context, t task.Task, who Approver, r Ruling) (lifecycle.Event, error) {
	if r.Decision != Reject {
		return nil, &review.NoCorrectionError{Reason: "only a rejection can have one"}
	}
	if !d.counts(t, who) {
		r.Correction = nil
		return r.event(t, who, nil) // it is refused
	}
	instead, err := d.mayCorrect(t, r)
	if err != nil {
		return nil, err
	}
	signed, err := d.confirmer.sign(ctx, t, who, r)
	if err != nil {
		return nil, err
	}
	e, err := r.event(t, who, signed)
	reject, ok := e.(lifecycle.Reject)
	if err != nil || !ok {
		return e, err
	}
	scope, _, err := scopeOf(instead, gatetask.GrantShape{}, nil)
	if err != nil {
		return nil, err
	}
	reject.NewGrant = correctionTerms(t)
	if w, _ := d.workflows.of(t); w.Validity > 0 && d.env.now().Add(w.Validity).Before(reject.NewGrant.Until) {
		reject.NewGrant.Until = d.env.now().Add(w.Validity).UTC().Truncate(time.Microsecond)
	}
	reject.Passkey = signed
	reject.Correction = &gatetask.Correction{Arguments: json.RawMessage(instead.Call.Arguments), Grant: grantstore.NewID(scope), Structured: review.ReadFacts(t).NoOutputSchema}
	return reject, nil
}

// mayCorrect returns t with the corrected arguments of r, or a [*review.NoCorrectionError].
func (d *decider) mayCorrect(t task.Task, r Ruling) (task.Task, error) {
	if err := d.viewer.MayCorrect(t); err != nil {
		return t, err
	}
	if r.Unread > 0 {
		return t, &review.NoCorrectionError{Reason: "a part of the call was not read"}
	}
	instead, err := corrected(t, r.Correction)
	if err != nil {
		return t, err
	}
	//mutate:drop TestCorrectionIsRefused an approver sets an argument that others must not see
	if err := d.viewer.MayCorrect(instead); err != nil {
		return t, err
	}
	if !d.workflows.isHeldHere(review.HoldingGateOf(t)) {
		return instead, nil // the gate that holds it asks its policy when the call is made
	}
	for _, call := range judged(instead, nil, d.env.now()) {
		switch v := d.env.judge(call); {
		case v.Action == policy.Approve && v.Workflow != t.Workflow:
			return t, &review.NoCorrectionError{Reason: "policy asks other approvers about the corrected call"}
		//mutate:false TestCorrectionIsRefused an approver approves what policy denies
		case v.Action != policy.Approve && v.Action != policy.Forward:
			return t, &review.NoCorrectionError{Reason: "policy denies the corrected call"}
		}
	}
	return instead, nil
}

// correct stores a rejection with its correction, and the grant for the corrected call.
func (d *decider) correct(ctx context.Context, before task.Task, who Approver, e lifecycle.Reject) (task.Task, error) {
	now := d.env.now()
	after, err := lifecycle.Apply(before, e, now)
	if err != nil {
		return before, err
	}
	g, err := d.grants.correctionOf(after)
	if err != nil {
		return before, err
	}
	ctx = context.WithoutCancel(ctx) // the approver may leave
	rejected := false
	err = d.grants.addWith(ctx, g, correctionNotes(after, e)[0], func() (err error) {
		after, err = d.advance(ctx, before, who, e, now)
		rejected = err == nil
		return err
	})
	switch {
	case err == nil:
		d.env.log.InfoContext(LogContext(ctx, after), "corrected call approved", "grant", g.ID, "by", who.Name, "until", g.Until)
		d.env.observe(ctx, Event{Step: Granted, Task: after, By: who.Name})
		return after, nil
	case !rejected:
		return after, err
	}
	d.env.log.ErrorContext(LogContext(ctx, after), "standing approval of a correction not given", "err", err)
	if errors.Is(err, grantstore.ErrUncertain) {
		return after, &GrantFailedError{Reason: "look at the list of standing approvals", Unknown: true, Corrected: true}
	}
	return after, &GrantFailedError{Reason: "the gate could not keep it", Corrected: true}
}

// correctionOf returns the grant for the corrected call of a rejected task.
func (gs *grants) correctionOf(t task.Task) (grantstore.Grant, error) {
	d := *t.Approval.Rejection
	instead, err := corrected(t, jsontext.Value(d.Correction.Arguments))
	if err != nil {
		return grantstore.Grant{}, err
	}
	approval := d
	approval.Correction, approval.Reason = nil, "correction of "+string(t.ID.Short())
	instead.Approval = &gatetask.Approval{Quorum: 1, Approvals: []gatetask.Decision{approval}}
	g, err := gs.grantFrom(instead, *d.NewGrant)
	g.ID, g.Retry, g.Correction = d.Correction.Grant, true, true
	return g, err
}

// correctionNotes returns the note for the correction of a rejected task, if it has one.
func correctionNotes(t task.Task, e lifecycle.Reject) []task.Note {
	if e.Correction == nil {
		return nil
	}
	n := note(t, Granted, t.UpdatedAt)
	instead, err := corrected(t, jsontext.Value(e.Correction.Arguments))
	if err != nil {
		return nil // unreachable: the event was made from a corrected call
	}
	n.ArgumentDigest = instead.CallDigest()
	n.Actor, n.Approver, n.Grant, n.Via, n.Passkey = e.By, e.By, e.Correction.Grant, e.Via, e.Passkey
	n.Outcome = grantText(grantstore.Grant{Until: e.NewGrant.Until, MaxUses: e.NewGrant.Uses})
	n.Reason = "corrected arguments"
	return []task.Note{n}
}
