package conversation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A waiting keeps the request of one client open, with heartbeats, until its task has ended.
type waiting struct {
	sender     *sender
	out        responder
	registered *registrations
	refused    *refusal // set when the upstream refuses a call of this request
	inviter    inviter

	stream Stream
	token  jsonrpc.Value // of progress notifications, if the client wants them
	beats  int
	status string // text of progress notifications
	sent   bool   // sending of the outcome has begun

	show func() error // begins the stream; nil after it was called
}

func newWaiting(sender *sender, out responder, registered *registrations, refused *refusal) *waiting {
	return &waiting{
		sender: sender, out: out, registered: registered, refused: refused,
		inviter: inviter{sender: sender, out: out},
	}
}

// open begins the answer. If the call is not decided yet, the stream begins at once, and greet is
// called. If the call already runs or has ended, the stream begins later: if the upstream refuses
// the call, the client can then still get the HTTP status of the refusal.
func (w *waiting) open(t task.Task, greet func() error) (err error) {
	w.registered.reserve()
	if w.stream, err = w.out.reply.Wait(); err != nil {
		return err
	}
	w.show = func() error {
		w.show = nil
		if err := w.stream.Send(nil); err != nil {
			return err
		}
		return greet()
	}
	if t.State == task.Approved || t.State == task.Executing || t.State.Terminal() {
		return nil
	}
	return w.show()
}

// greet sends a first progress notification, and the id with which the client can resume.
func (w *waiting) greet(t task.Task) error {
	if t.State.Terminal() {
		return nil // the answer follows
	}
	if err := w.mark(t.ID); err != nil {
		return err
	}
	w.status = w.out.dialect().StatusMessage(t)
	if n := w.out.gateway.held.shared(t.ID); n > 1 {
		w.status += " · runs once for " + strconv.Itoa(n) + " identical requests"
	}
	if !w.stream.CanSendEarly() || !w.token.Present() {
		return nil
	}
	return w.beat()
}

// mark sends the resume point to a client of 2025-11-25, the only version that can resume.
func (w *waiting) mark(id task.ID) error {
	if !w.stream.CanSendEarly() || w.out.era != mcp.Legacy || w.sender.client.Transport().Version != mcp.Version20251125 {
		return nil
	}
	ctx := w.out.reply.Context()
	resumePoint, err := w.sender.seal(ctx, useResume, string(id)+" "+string(w.out.id))
	if err != nil { // the client can still call again
		w.out.gateway.cfg.Log.WarnContext(ctx, "this stream cannot be resumed", "task_id", id, "err", err)
		return nil
	}
	return w.stream.SetResumePoint(resumePoint)
}

// notifyMeanwhile lets the client get status notifications on this stream while it waits for the
// result of a task.
func (w *waiting) notifyMeanwhile(id task.ID) (end func()) {
	if !w.stream.CanSendEarly() {
		return func() {}
	}
	l := Subscriber{sender: w.sender, out: w.out}
	_, end = w.out.gateway.streams.add(w.sender.peer(), &openStream{listening: l, stream: w.stream, about: id}, l.following())
	return end
}

// send returns the sender that runs calls for the waiting client. Questions of the upstream to
// the client go out on the stream. The client and the gate share the session, so the client's
// answer reaches the upstream like any other message.
func (w *waiting) send() approval.Sender {
	c := w.sender.client.Caller()
	if w.out.era == mcp.Legacy && w.stream.CanSendEarly() {
		c.SendInterim(func(message []byte) { w.stream.Insert(writes(message)) })
	}
	return w.sender.sendBy(c, w.refused)
}

// A waitOutcome is the end of a wait for a task.
type waitOutcome struct {
	task task.Task
	err  error
}

var (
	errPanicked = errors.New("waiting for the task failed")
	errRevoked  = errors.New("the agent is no longer authenticated")
)

// wait waits until t has ended, for at most the given time, and returns its last known state. It
// returns errRevoked if the client is no longer authenticated, because the call must not run with
// its credentials then.
func (w *waiting) wait(ctx context.Context, t task.Task, holdTime time.Duration, send approval.Sender) (task.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	defer w.stream.Close() // no message may be inserted into the answer
	decided := w.inviter.whenDecided(ctx, t)
	done := w.startWait(ctx, t, send)
	beat := time.NewTicker(w.out.gateway.HeartbeatInterval())
	defer beat.Stop()
	recognition, revoked := w.sender.client.Authentication(), false
	changed := recognition.Changed()
	for {
		select {
		case e := <-done:
			//mutate:false internal/mcphttp.TestShortWaitFindsCall a wait without a read of the store seals no task
			if e.task.ID == "" { // the store could not be read meanwhile
				e.task = t
			}
			w.inviter.complete(w.stream, e.task)
			if revoked {
				e.err = errRevoked
			}
			return e.task, e.err
		case now := <-decided:
			w.inviter.complete(w.stream, now)
		case <-changed:
			//mutate:swap "!recognition.Valid()" "false" internal/app.TestReloadRevokes a revoked agent continues to wait
			if revoked = !recognition.Valid(); revoked {
				changed = nil
				cancel()
			} else {
				changed = recognition.Changed()
			}
		case <-w.refused.isAsking:
			cancel()
			if e := <-done; e.err == nil {
				return e.task, nil
			}
			return t, w.refused.asking
		case <-beat.C:
			if err := w.shows(); err != nil {
				cancel()
				<-done // then the approval service knows that the client has left
				return t, err
			}
			beat.Reset(w.out.gateway.HeartbeatInterval()) // the setting may have changed
		}
	}
}

// startWait waits for t in a goroutine. The returned channel gets the outcome.
func (w *waiting) startWait(ctx context.Context, t task.Task, send approval.Sender) <-chan waitOutcome {
	done := make(chan waitOutcome, 1) // lets the goroutine end if the receiver has returned
	if t.State.Terminal() {
		done <- waitOutcome{task: t}
		return done
	}
	go func() {
		e := waitOutcome{err: errPanicked}
		defer func() { done <- e }()
		defer w.out.gateway.recoverPanic(ctx, t.ID)
		e.task, e.err = w.out.gateway.cfg.Approvals.Wait(ctx, task.OwnedBy(t.Owner).Ref(t.ID), send)
	}()
	return done
}

// recoverPanic is deferred by goroutines that serve a task, because a panic would end the
// process.
func (g *Gateway) recoverPanic(ctx context.Context, id task.ID) {
	if cause := recover(); cause != nil {
		g.cfg.Log.ErrorContext(ctx, "panic", "task_id", id, "panic", cause, "stack", string(debug.Stack()))
	}
}

// shows begins the stream, or sends a heartbeat.
func (w *waiting) shows() error {
	if w.show != nil {
		return w.show()
	}
	return w.beat()
}

// beat sends a progress notification or a heartbeat.
func (w *waiting) beat() error {
	w.beats++
	if w.stream.CanSendEarly() && w.token.Present() {
		return w.stream.Send(w.progress())
	}
	if !w.stream.Heartbeat("waiting for approval") {
		return ErrGone
	}
	return nil
}

func (w *waiting) progress() []byte {
	return join(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`, string(w.token.Bytes),
		`,"progress":`, strconv.Itoa(w.beats), `,"message":`, string(jsonrpc.AppendString(nil, w.status)), `}}`)
}

// progressToken returns the token of progress notifications. Only strings and numbers are valid
// tokens.
func progressToken(m *jsonrpc.Message) jsonrpc.Value {
	token := m.Params.Meta.Member("progressToken")
	switch {
	case token.IsObject(), token.IsArray(), token.IsNull(), token.IsTrue(), string(token.Bytes) == "false":
		return jsonrpc.Value{}
	default:
		return token
	}
}

// deliver answers with the outcome of t, which shown formats. It records the delivery only if the
// outcome can be sent.
func (w *waiting) deliver(ctx context.Context, t task.Task, shown func(task.Task) (mcptask.Outcome, error)) error {
	w.sent = true
	if r := w.refusalOf(t); r != nil {
		return w.refuse(r)
	}
	answer, err := shown(w.explained(t))
	if err == nil {
		text := w.out.outcomeText(t, answer)
		err = w.stream.Compose(
			func(to io.Writer) error { return text.Compose(to, w.payload(ctx, t)) },
			func() { w.sender.delivered(ctx, &t) },
		)
	}
	if errors.Is(err, approval.ErrTruncated) { // before anything was sent
		if t, err = w.out.gateway.cfg.Approvals.Get(ctx, task.OwnedBy(t.Owner).Ref(t.ID)); err == nil && t.State.Terminal() {
			return w.deliver(ctx, t, shown)
		}
		if err == nil {
			return w.endLater()
		}
	}
	if unsent(err) {
		return w.end(w.out.failure(err))
	}
	return err
}

// explained returns t with the reason for which the gate has no token for its call. It may have the link of a
// sign-in, which is not stored.
func (w *waiting) explained(t task.Task) task.Task {
	r := w.refused.ofCall.Load()
	if r == nil || r.Cause == nil || t.Failure == nil || t.Failure.Stage != lifecycle.StageSessionGone {
		return t
	}
	failure := *t.Failure
	failure.Reason = r.Cause.Error()
	t.Failure = &failure
	return t
}

// payload returns the upstream's answer to the call of t. If several requests waited for t and
// the answer is small, a text block is added which says that the call ran once.
func (w *waiting) payload(ctx context.Context, t task.Task) io.Reader {
	n := w.out.gateway.held.shared(t.ID)
	if n < 2 || t.State != task.Completed || t.Result == nil || len(t.Result.Inline) == 0 {
		return w.out.gateway.cfg.Approvals.Open(ctx, t)
	}
	content := jsonrpc.Value{Bytes: t.Result.Inline}.Member("content")
	if !content.IsArray() {
		return w.out.gateway.cfg.Approvals.Open(ctx, t)
	}
	text := fmt.Sprintf("This call ran once, for %d identical requests that waited at the same time. If it was meant to run more often, call it again.", n)
	block := append(append([]byte(`{"type":"text","text":`), jsonrpc.AppendString(nil, text)...), '}')
	var blocks [][]byte
	for element := range content.Elements() {
		blocks = append(blocks, element.Bytes)
	}
	var patch jsonrpc.Patch
	patch.Replace(content, jsonrpc.Array(append(blocks, block)))
	return bytes.NewReader(patch.Apply(t.Result.Inline))
}

// endLater answers a client whose answer broke off while the upstream still has it.
func (w *waiting) endLater() error {
	return w.end(w.out.problemMessage(&mcp.Problem{
		Type: mcp.UpstreamInvalid, Cause: approval.ErrTruncated, RetryAfter: 1, Hint: "the task is still running; ask again",
	}))
}

// end ends the stream with a message.
func (w *waiting) end(message []byte) error {
	return w.stream.Compose(writes(message), func() {})
}

// fail answers a request whose wait has failed.
func (w *waiting) fail(err error) error {
	if failed := refusalIn(err); failed != nil && !w.stream.Started() {
		return w.refuse(failed.Refusal)
	}
	return w.end(waitFailed(w.out, err))
}

// waitFailed returns the answer to a request whose wait has failed.
func waitFailed(out responder, err error) []byte {
	if failed := refusalIn(err); failed != nil {
		return out.problemMessage(unasked(failed))
	}
	if !errors.Is(err, errRevoked) {
		return out.failure(err)
	}
	return out.problemMessage(&mcp.Problem{Type: mcp.Unauthenticated, Detail: "the credentials of this request are no longer accepted", Cause: err})
}

// refusalOf returns the refusal of the call of t by the upstream, if the call used the
// credentials of this client and the client can still be told. Otherwise it returns nil.
func (w *waiting) refusalOf(t task.Task) *approval.Refusal {
	if t.Failure == nil || t.Result != nil || w.stream.Started() {
		return nil
	}
	if r := w.refused.ofCall.Load(); r != nil {
		return r
	}
	return w.sender.client.Caller().Refusal()
}

// refuse answers with the status with which the upstream refused the call.
func (w *waiting) refuse(r *approval.Refusal) error {
	w.sender.client.Caller().NoteAccepted() // its next request need not report the refusal again
	return w.out.reply.Refuse(Refused(r))
}

// writes returns a function that writes a message.
func writes(message []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := to.Write(message)
		return err
	}
}

// unsent reports whether err prevented an answer before any part of it was sent.
func unsent(err error) bool {
	return err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrBrokenOff)
}

// enterWaiting counts the request as waiting, unless a limit is reached. Waiting requests do not
// count as active, so slow approvers do not make the gate slow. The caller calls leave when the
// wait ends.
func enterWaiting(sender *sender) (leave func(), err error) {
	leave, err = enter(&sender.gateway.waiters, sender, sender.gateway.Waiting().PerOwner)
	if err != nil {
		return nil, err
	}
	if err = sender.envelope.BeginWaiting(); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// enter adds one to the counter of the sender's owner, unless that has reached the limit. Clients
// that cannot be told apart share an owner, so they have no limit here.
func enter(t *counter[string], sender *sender, most int) (leave func(), err error) {
	owner, shared := sender.owner()
	if shared {
		most = 0
	}
	if _, ok := t.add(owner, most); !ok {
		return nil, admission.ErrClient
	}
	return func() { t.remove(owner) }, nil
}
