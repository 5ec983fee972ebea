package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A waiting is a request whose client is kept waiting. Signs of life go out
// until the answer does: comments and progress on a stream of events, or white
// space in front of the JSON for a client that takes no streams.
type waiting struct {
	x      *exchange
	events bool
	token  jsonrpc.Value // the client wants to hear of progress
	beats  int
	relay  *eventRelay // what is written goes through it, if others write as well
}

// beginWaiting begins the answer to a client that will have to wait for it.
func (x *exchange) beginWaiting(m *jsonrpc.Message) (*waiting, error) {
	x.await()
	w := &waiting{
		x:      x,
		events: strings.Contains(strings.Join(x.r.Header["Accept"], ","), "text/event-stream"),
		token:  progressToken(m),
	}
	header := x.w.Header()
	header.Set("Content-Type", "application/json")
	if w.events {
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
	}
	header.Set("X-Accel-Buffering", "no")
	x.begin(http.StatusOK)
	return w, x.flush()
}

// prime gives a client that knows how to resume a stream, which is one of
// 2025-11-25, what it needs to come back to this one.
func (w *waiting) prime(owner string, id task.ID) error {
	x := w.x
	if !w.events || x.era != wire.Legacy || x.r.Header.Get("Mcp-Protocol-Version") != wire.Version20251125 {
		return nil
	}
	place, err := x.seal(x.ctx, "resume", owner, string(id)+" "+string(x.id))
	if err != nil { // it can still call again
		x.h.cfg.Log.WarnContext(x.ctx, "this stream cannot be resumed", "task_id", id, "cause", err)
		return nil
	}
	return x.sendNow(jsonrpc.AppendEvent(nil, jsonrpc.Event{ID: place, HasID: true, Data: []byte{}}))
}

// tellMeanwhile lets the client hear, while it waits for the result of a task,
// how that stands. It returns what ends that.
func (w *waiting) tellMeanwhile(id task.ID) (end func()) {
	if !w.events {
		return func() {}
	}
	w.relay = &eventRelay{x: w.x, about: id}
	return w.x.h.listeners.add(w.x.peer(), w.relay, w.x.hearing())
}

// send sends a whole event, or white space.
func (w *waiting) send(p []byte) error {
	if w.relay != nil {
		return w.relay.send(p)
	}
	return w.x.sendNow(p)
}

// comeBack takes up a client that lost the stream of a request which is held.
func (x *exchange) comeBack(ctx context.Context, place string) error {
	owner, _ := x.owner()
	text, err := x.unseal(ctx, "resume", owner, place)
	if errors.Is(err, keyring.ErrForeign) {
		return x.refuse(&wire.Problem{Type: wire.InvalidRequest, Detail: "Last-Event-ID was not issued to this client, or the gate's key was replaced"})
	}
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	id, request, _ := strings.Cut(text, " ")
	x.id = []byte(request)
	t, err := x.h.cfg.Desk.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id)))
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	return x.awaitTask(ctx, new(jsonrpc.Message), t, 0)
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

// wait waits for t to end, at most as long as patience allows, and returns it
// as it was last seen. It returns errRevoked if the agent is no longer recognised:
// then it is not there for t to run either.
func (w *waiting) wait(ctx context.Context, t task.Task, patience time.Duration, send approval.Sender) (task.Task, error) {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type ended struct {
		task task.Task
		err  error
	}
	done := make(chan ended, 1) // so that the waiter ends even if nobody is left to hear it
	go func() {
		e := ended{err: errPanicked}
		defer func() {
			if cause := recover(); cause != nil { // here it would end the process
				w.x.h.cfg.Log.ErrorContext(ctx, "panic", "task_id", ref.ID, "panic", cause, "stack", string(debug.Stack()))
			}
			done <- e
		}()
		e.task, e.err = w.x.h.cfg.Desk.Wait(ctx, ref, send)
	}()
	if w.relay != nil {
		defer w.relay.close() // nothing comes in between once the answer begins
	}
	beat := time.NewTicker(w.x.h.beat())
	defer beat.Stop()
	valid, changed, revoked := w.x.validity(), w.x.since.over.Done(), false
	for {
		select {
		case e := <-done:
			if e.task.ID == "" { // the store could not be read meanwhile
				e.task = t
			}
			if revoked {
				e.err = errRevoked
			}
			return e.task, e.err
		case <-changed:
			changed = w.x.h.current.Load().over.Done()
			if revoked = !valid(); revoked {
				changed = nil
				cancel()
			}
		case <-beat.C:
			if err := w.beat(); err != nil {
				return t, err
			}
			beat.Reset(w.x.h.beat()) // it may have been changed
		}
	}
}

var errPanicked = errors.New("waiting for the task failed")

// waiters counts the requests of each owner that wait.
type waiters struct {
	mu      sync.Mutex
	byOwner map[string]int
}

// enterWaiting lets the exchange wait, unless its owner, its client or all of
// them have too many that do. Exchanges that wait take no place of requests that
// are being served, or slow approvers would make the gate slow. A stream keeps
// the place that it has. The result ends the wait.
func (x *exchange) enterWaiting() (leave func(), err error) {
	leave, err = x.h.waiters.enter(x, x.h.settings().Waiting.PerOwner)
	if err != nil {
		return nil, err
	}
	if x.place == x.h.requests {
		err = x.moveTo(x.h.waiting)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// enter counts one more for the owner of x, unless that has as many as it may.
// Clients that nobody can tell apart share an owner, so that limits nothing.
func (w *waiters) enter(x *exchange, most int) (leave func(), err error) {
	owner, shared := x.owner()
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

// beat shows the client that the gate is still there.
func (w *waiting) beat() error {
	w.beats++
	switch {
	case !w.events:
		return w.send([]byte(" "))
	case w.token.Present():
		return w.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: w.progress()}))
	default:
		return w.send(jsonrpc.AppendComment(nil, "waiting for approval"))
	}
}

func (w *waiting) progress() []byte {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`)
	b.Write(w.token.Bytes)
	b.WriteString(`,"progress":` + strconv.Itoa(w.beats) + `,"message":"Waiting for approval"}}`)
	return b.Bytes()
}

// end sends an answer of the gate's own.
func (w *waiting) end(message []byte) error {
	if w.events {
		message = jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message})
	}
	return w.x.sendNow(message)
}

// lateCancel is how long after its client left a held request can still be
// cancelled: clients close their request first and then say that they mean it.
const lateCancel = 10 * time.Second

// heldRequests are the requests that are kept waiting, by the client and the id
// it gave them, so that it can cancel them.
type heldRequests struct {
	mu  sync.Mutex
	all map[heldKey]*task.Ref

	waits map[task.ID]int // how many there are for each task
}

type heldKey struct{ peer, id string }

// add takes a request in and returns what takes it out again.
func (h *heldRequests) add(peer string, id []byte, ref task.Ref) (remove func()) {
	key := heldKey{peer, string(id)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[heldKey]*task.Ref)
	}
	h.all[key] = &ref
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.all[key] == &ref { // else the client has used the id again
			delete(h.all, key)
		}
	}
}

func (h *heldRequests) find(peer string, id []byte) (task.Ref, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ref, ok := h.all[heldKey{peer, string(id)}]
	if !ok {
		return task.Ref{}, false
	}
	return *ref, true
}

// join counts one more request that waits for a task.
func (h *heldRequests) join(id task.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits == nil {
		h.waits = make(map[task.ID]int)
	}
	h.waits[id]++
}

// leave counts one less, and reports whether there is none any more.
func (h *heldRequests) leave(id task.ID) (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[id]--; h.waits[id] > 0 {
		return false
	}
	delete(h.waits, id)
	return true
}

// release takes a held request out that has been answered, or whose client is
// gone and has had time to cancel it.
func (x *exchange) release(remove func()) {
	if x.ctx.Err() == nil {
		remove()
		return
	}
	time.AfterFunc(lateCancel, remove)
}

// planCancel returns the plan of a notification that cancels a request which the
// gate holds, or nil if it is about none.
func (x *exchange) planCancel(m *jsonrpc.Message) *plan {
	ref, ok := x.heldBy(m)
	if !ok {
		return nil
	}
	return answered(func(ctx context.Context) error {
		x.withdrawHeld(ctx, ref)
		return x.accept()
	})
}

// heldBy returns the held call that m, if it is such a notification, says the
// client no longer waits for. The upstream has never seen the id of such a call.
func (x *exchange) heldBy(m *jsonrpc.Message) (task.Ref, bool) {
	_, shared := x.owner()
	if m.Method != "notifications/cancelled" || shared || x.era == wire.Modern {
		return task.Ref{}, false // ids may be another client's; a modern one closes its stream
	}
	return x.h.held.find(x.peer(), m.Params.Member("requestId").Bytes)
}

// withdrawHeld withdraws a held call that its client has cancelled.
func (x *exchange) withdrawHeld(ctx context.Context, ref task.Ref) {
	owner, _ := x.owner()
	if _, err := x.h.cfg.Desk.Cancel(ctx, ref, approval.Withdrawal{By: owner, Reason: "cancelled by the client", Send: x.send()}); err != nil {
		x.h.cfg.Log.DebugContext(ctx, "held request not cancelled", "task_id", ref.ID, "cause", err)
	}
}

// cancelsHeld withdraws the held call that m, a message of a batch, cancels, and
// reports whether it is about one.
func (x *exchange) cancelsHeld(ctx context.Context, m *jsonrpc.Message) bool {
	ref, ok := x.heldBy(m)
	if ok {
		x.withdrawHeld(ctx, ref)
	}
	return ok
}

// cancellable lets the client cancel t by the id of one of this exchange's
// requests, until the exchange has ended.
func (x *exchange) cancellable(id []byte, t task.Task) {
	owner, _ := x.owner()
	x.holds = append(x.holds, x.h.held.add(x.peer(), id, task.OwnedBy(owner).Ref(t.ID)))
}
