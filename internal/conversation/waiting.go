package conversation

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A waiting is a request whose client is kept waiting. Signs of life go out until
// the answer does.
type waiting struct {
	*Request

	stream Stream
	token  jsonrpc.Value // the client wants to hear of progress
	beats  int
	status string // how the task stands that it waits for
	sent   bool   // the outcome was being sent when the client's wait ended
}

// begin begins the answer to a client that will have to wait for it.
func (w *waiting) begin() (err error) {
	w.claimAnswer()
	w.stream, err = w.reply.Wait()
	return err
}

// open begins the answer to a client that will have to wait for t, and sends it what
// it should see before.
func (w *waiting) open(t task.Task) error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.greet(t); err != nil {
		return err
	}
	return w.invite(t)
}

// greet sends a client at once what it waits for, if it wants to hear of progress,
// and how to come back to this stream.
func (w *waiting) greet(t task.Task) error {
	if t.State.Terminal() {
		return nil // the answer follows
	}
	if err := w.mark(t.ID); err != nil {
		return err
	}
	w.status = w.dialect().StatusMessage(t)
	if !w.stream.Early() || !w.token.Present() {
		return nil
	}
	return w.beat()
}

// mark gives a client that knows how to resume a stream, which is one of
// 2025-11-25, what it needs to come back to this one.
func (w *waiting) mark(id task.ID) error {
	if !w.stream.Early() || w.era != wire.Legacy || w.client.Transport().Version != wire.Version20251125 {
		return nil
	}
	ctx := w.reply.Context()
	place, err := w.seal(ctx, useResume, string(id)+" "+string(w.id))
	if err != nil { // the client can still call again
		w.hub.cfg.Log.WarnContext(ctx, "this stream cannot be resumed", "task_id", id, "cause", err)
		return nil
	}
	return w.stream.Mark(place)
}

// notifyMeanwhile lets the client hear, while it waits for the result of a task,
// how that stands. It returns what ends that.
func (w *waiting) notifyMeanwhile(id task.ID) (end func()) {
	if !w.stream.Early() {
		return func() {}
	}
	l := w.Listening()
	_, end = w.hub.listeners.add(w.peer(), &listener{Listening: l, stream: w.stream, about: id}, l.following())
	return end
}

// progressToken returns the token with which the client wants to hear of
// progress. Only texts and numbers are tokens.
func progressToken(m *jsonrpc.Message) jsonrpc.Value {
	token := m.Params.Meta.Member("progressToken")
	switch {
	case token.IsObject(), token.IsArray(), token.IsNull(), token.IsTrue(), string(token.Bytes) == "false":
		return jsonrpc.Value{}
	default:
		return token
	}
}

// A waitEnd is how the desk's wait for a task ended.
type waitEnd struct {
	task task.Task
	err  error
}

var (
	errPanicked = errors.New("waiting for the task failed")
	errRevoked  = errors.New("the agent is no longer recognised by what it showed")
)

// wait waits for t to end, at most as long as patience allows, and returns it
// as it was last seen. It returns errRevoked if the agent is no longer recognised:
// then it is not there for t to run either.
func (w *waiting) wait(ctx context.Context, t task.Task, patience time.Duration, send approval.Sender) (task.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer w.stream.Close() // nothing comes in between once the answer begins
	decided := w.whenDecided(ctx, t)
	done := w.atDesk(ctx, task.OwnedBy(t.Owner).Ref(t.ID), send)
	beat := time.NewTicker(w.hub.Beat())
	defer beat.Stop()
	recognition, revoked := w.client.Recognition(), false
	changed := recognition.Changed()
	for {
		select {
		case e := <-done:
			if e.task.ID == "" { // the store could not be read meanwhile
				e.task = t
			}
			w.completeInvitation(e.task)
			if revoked {
				e.err = errRevoked
			}
			return e.task, e.err
		case now := <-decided:
			w.completeInvitation(now)
		case <-changed:
			if revoked = !recognition.Valid(); revoked {
				changed = nil
				cancel()
			} else {
				changed = recognition.Changed()
			}
		case <-beat.C:
			if err := w.beat(); err != nil {
				cancel()
				<-done // the desk has noted that the client left
				return t, err
			}
			beat.Reset(w.hub.Beat()) // it may have been changed
		}
	}
}

// atDesk has the desk wait for a task, and returns a channel that gets the outcome.
func (w *waiting) atDesk(ctx context.Context, ref task.Ref, send approval.Sender) <-chan waitEnd {
	done := make(chan waitEnd, 1) // so that the waiter ends even if nobody is left to hear it
	go func() {
		e := waitEnd{err: errPanicked}
		defer func() { done <- e }()
		defer w.hub.surviving(ctx, ref.ID)
		e.task, e.err = w.hub.cfg.Desk.Wait(ctx, ref, send)
	}()
	return done
}

// surviving is deferred by goroutines that serve a task: a panic there would end
// the process.
func (h *Hub) surviving(ctx context.Context, id task.ID) {
	if cause := recover(); cause != nil {
		h.cfg.Log.ErrorContext(ctx, "panic", "task_id", id, "panic", cause, "stack", string(debug.Stack()))
	}
}

// beat shows the client that the gate is still there.
func (w *waiting) beat() error {
	w.beats++
	if w.stream.Early() && w.token.Present() {
		return w.stream.Send(w.progress())
	}
	if !w.stream.Beat("waiting for approval") {
		return ErrGone
	}
	return nil
}

func (w *waiting) progress() []byte {
	return join(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`, string(w.token.Bytes),
		`,"progress":`, strconv.Itoa(w.beats), `,"message":`, string(jsonrpc.AppendString(nil, w.status)), `}}`)
}

// sender returns what reaches the upstream in the name of a client that waits. If
// the upstream asks the client something meanwhile, the client is asked on the
// stream on which it waits. The two share a session, so the id of the question is
// good for both, and the client's answer reaches the upstream like any other
// message.
func (w *waiting) sender() approval.Sender {
	c := w.client.Caller()
	if w.era == wire.Legacy && w.stream.Early() {
		c.SendInterim(func(message []byte) { w.stream.Insert(writes(message)) })
	}
	return w.sendBy(c)
}

// writes returns what writes a message.
func writes(message []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := to.Write(message)
		return err
	}
}

// end sends an answer of the gate's own.
func (w *waiting) end(message []byte) error {
	return w.stream.Compose(writes(message), func() {})
}

// waitFailed returns the answer to a request whose wait has failed.
func (r *Request) waitFailed(err error) []byte {
	if !errors.Is(err, errRevoked) {
		return r.failure(err)
	}
	return r.problemMessage(&wire.Problem{Type: wire.Unauthenticated, Detail: "the credentials of this request are no longer accepted", Cause: err})
}

// deliver answers a client that has waited with what became of t, as shown says
// it, and notes that only if it can be sent.
func (w *waiting) deliver(ctx context.Context, t task.Task, shown func(task.Task) (mcptask.Answer, error)) error {
	w.sent = true
	answer, err := shown(t)
	if err == nil {
		text := w.outcomeText(t, answer)
		err = w.stream.Compose(
			func(to io.Writer) error { return text.Compose(to, w.hub.cfg.Desk.Open(ctx, t)) },
			func() { w.delivered(ctx, &t) },
		)
	}
	if errors.Is(err, approval.ErrBrokenOff) { // before anything of it was sent
		if t, err = w.hub.cfg.Desk.Get(ctx, task.OwnedBy(t.Owner).Ref(t.ID)); err == nil && t.State.Terminal() {
			return w.deliver(ctx, t, shown)
		}
		if err == nil {
			return w.endLater()
		}
	}
	if unsent(err) {
		return w.end(w.failure(err))
	}
	return err
}

// unsent reports whether err kept an answer from being sent. Once part of an
// answer was sent, err is why it was broken off.
func unsent(err error) bool {
	return err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrBrokenOff)
}

// endLater answers a client whose answer broke off that the upstream still has it.
func (w *waiting) endLater() error {
	return w.end(w.problemMessage(&wire.Problem{
		Type: wire.UpstreamInvalid, Cause: approval.ErrBrokenOff, RetryAfter: 1, Hint: "the task is still running; ask again",
	}))
}

// waiters counts the requests of each owner that wait.
type waiters struct {
	mu      sync.Mutex
	byOwner map[string]int
}

// EnterWaiting lets the request wait, unless its owner, its client or all of
// them have too many that do. Requests that wait take no place of those that are
// being served, or slow approvers would make the gate slow. The result ends the
// wait.
func (s *sender) EnterWaiting() (leave func(), err error) {
	leave, err = s.hub.waiters.enter(s, s.hub.Waiting().PerOwner)
	if err != nil {
		return nil, err
	}
	if err = s.reply.Park(); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// enter counts one more for the owner of s, unless that has as many as it may.
// Clients that cannot be distinguished share an owner, so that limits nothing.
func (w *waiters) enter(s *sender, most int) (leave func(), err error) {
	owner, shared := s.owner()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !shared && most > 0 && w.byOwner[owner] >= most {
		return nil, admission.ErrClient
	}
	if w.byOwner == nil {
		w.byOwner = make(map[string]int)
	}
	w.byOwner[owner]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.byOwner[owner]--; w.byOwner[owner] == 0 {
			delete(w.byOwner, owner)
		}
	}, nil
}
