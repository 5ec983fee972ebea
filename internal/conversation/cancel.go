package conversation

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// lateCancel is how long after its client left a held request can still be
// cancelled: clients close their request first and then say that they mean it.
const lateCancel = 10 * time.Second

// heldRequests are the requests that are kept waiting, by the client and the id
// it gave them, so that it can cancel them.
type heldRequests struct {
	mu  sync.Mutex
	all map[heldKey]*heldRequest

	waits map[task.ID]int // how many there are for each task
}

type heldKey struct{ peer, id string }

// A heldRequest is one whose call becomes a task, for which it may be kept waiting.
type heldRequest struct {
	host      Host
	since     time.Time
	cancelled atomic.Bool // the client has cancelled it
	gaveUp    atomic.Bool // the host's time for it is up
	stop      func()      // ends the wait

	stored chan struct{} // closed once the store has the task, or has refused it
	ref    task.Ref      // of the task, from then on; zero if there is none
}

// bind says which task the request waits for; zero if the call was not held.
func (h *heldRequest) bind(ref task.Ref) {
	h.ref = ref
	close(h.stored)
}

// task returns the task of the request as soon as the store has it, and false if
// there is none.
func (h *heldRequest) task(ctx context.Context) (task.Ref, bool) {
	select {
	case <-h.stored:
		return h.ref, h.ref.ID != ""
	case <-ctx.Done():
		return task.Ref{}, false
	}
}

// add takes a request in and returns what takes it out again.
func (h *heldRequests) add(peer string, id []byte, held *heldRequest) (remove func()) {
	key := heldKey{peer, string(id)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[heldKey]*heldRequest)
	}
	h.all[key] = held
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.all[key] == held { // else the client has used the id again
			delete(h.all, key)
		}
	}
}

func (h *heldRequests) find(peer string, id []byte) (*heldRequest, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.all[heldKey{peer, string(id)}]
	return held, ok
}

// of returns the requests of a client that are kept waiting.
func (h *heldRequests) of(peer string) []*heldRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*heldRequest
	for key, held := range h.all {
		if key.peer == peer {
			all = append(all, held)
		}
	}
	return all
}

// addWaiter counts one more request that waits for a task.
func (h *heldRequests) addWaiter(id task.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits == nil {
		h.waits = make(map[task.ID]int)
	}
	h.waits[id]++
}

// removeWaiter counts one less, and reports whether there is none any more.
func (h *heldRequests) removeWaiter(id task.ID) (last bool) {
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
func (r *Request) release(remove func()) {
	if !r.gone() {
		remove()
		return
	}
	time.AfterFunc(lateCancel, remove)
}

// planCancel returns the plan of a notification that cancels a request which the
// gate holds, or nil if it is about none.
func (r *Request) planCancel(ctx context.Context, m *jsonrpc.Message) *Plan {
	held, ok := r.heldBy(ctx, m)
	if !ok {
		return nil
	}
	return answers(func(ctx context.Context) error {
		r.cancel(ctx, held, m)
		return r.answer(nil)
	})
}

// heldBy returns the held call that m, if it is such a notification, says the
// client no longer waits for. The upstream has never seen the id of such a call.
func (r *Request) heldBy(ctx context.Context, m *jsonrpc.Message) (*heldRequest, bool) {
	closes := r.era == wire.Modern && !r.client.Transport().Pipe // a modern client closes its stream
	if m.Method != "notifications/cancelled" || closes {
		return nil, false
	}
	if _, shared := r.owner(); shared {
		return nil, false // the id may be another client's
	}
	id := m.Params.Member("requestId").Bytes
	if held, ok := r.hub.held.find(r.peer(), id); ok {
		return held, true
	}
	return r.heldElsewhere(ctx, id)
}

// heldElsewhere returns the held call that was made in the request with the given
// id if another replica keeps that request waiting.
func (r *Request) heldElsewhere(ctx context.Context, id []byte) (*heldRequest, bool) {
	owner, _ := r.owner()
	t, err := r.hub.cfg.Desk.MadeBy(ctx, owner, r.client.From().Key, id)
	if err != nil {
		r.hub.cfg.Log.WarnContext(ctx, "a cancellation may be for a call that another replica holds", "cause", err)
	}
	if t.ID == "" {
		return nil, false
	}
	host, _ := r.host(new(jsonrpc.Message))
	held := &heldRequest{host: host, since: t.CreatedAt, stop: func() {}, stored: make(chan struct{})}
	held.bind(r.ref(t.ID))
	return held, true
}

// withdrawal returns the wish of this client that a call is not made.
func (s *sender) withdrawal(reason string) approval.Withdrawal {
	owner, _ := s.owner()
	return approval.Withdrawal{By: owner, Reason: reason, Send: s.send()}
}

// cancel does what a client means that cancels a held call: a user who stops a call
// withdraws it. A host whose own time is up does not: its call stays pending, and
// an identical one attaches to it.
func (r *Request) cancel(ctx context.Context, held *heldRequest, m *jsonrpc.Message) {
	said, _ := m.Params.Member("reason").Text()
	said = plain.Line(said, maxSaid)
	age := time.Since(held.since)
	ref, ok := held.task(ctx)
	if !ok {
		return // its request is answered with why it was not held
	}
	log := r.hub.cfg.Log.With("task_id", ref.ID, "reason", said, "held", age)
	if held.host.gaveUp(said, age) {
		log.InfoContext(ctx, "the host's time for the call is up: the call stays pending")
		r.hub.givenUp.add(requestOf(ref.ID, m.Params.Member("requestId").Bytes))
		held.gaveUp.Store(true)
		held.stop() // there are hosts that leave the request open
		if err := r.hub.cfg.Desk.Left(ctx, ref, "the host's time was up after "+age.Round(time.Second).String()+quoted(said)); err != nil {
			log.WarnContext(ctx, "not noted in the journal", "cause", err)
		}
		return
	}
	held.cancelled.Store(true)
	if _, err := r.hub.cfg.Desk.Cancel(ctx, ref, r.withdrawal("cancelled by the client"+quoted(said))); err != nil {
		log.DebugContext(ctx, "held request not cancelled", "cause", err)
	}
}

// requestOf names one of the requests that wait for a task.
func requestOf(id task.ID, request []byte) task.ID { return id + " " + task.ID(request) }

// maxSaid is how much of a client's reason is kept.
const maxSaid = 200

// quoted returns a client's reason as it follows other words.
func quoted(said string) string {
	if said == "" {
		return ""
	}
	return ": " + strconv.Quote(said)
}

// cancelsHeld does what m, a message of a batch, says of a held call, and reports
// whether it is about one.
func (r *Request) cancelsHeld(ctx context.Context, m *jsonrpc.Message) bool {
	held, ok := r.heldBy(ctx, m)
	if ok {
		r.cancel(ctx, held, m)
	}
	return ok
}

// expect lets the client cancel the call in m from now on, even while the store
// still takes it in, until its request ends. The context that it returns ends when
// nobody waits for the call any more.
func (r *Request) expect(ctx context.Context, m *jsonrpc.Message, ids ...[]byte) (context.Context, *heldRequest) {
	host, _ := r.host(m)
	ctx, stop := context.WithCancel(ctx)
	held := &heldRequest{host: host, since: time.Now(), stop: stop, stored: make(chan struct{})}
	for _, id := range ids {
		r.state.holds = append(r.state.holds, r.hub.held.add(r.peer(), id, held))
	}
	return ctx, held
}

// EndSession withdraws the calls for which the client waits in its requests, and
// if the session alone shows who the client is, all of its calls: nobody can ask
// for them any more. A call that runs already goes on, as after a disconnect.
func (r *Request) EndSession(ctx context.Context) {
	r.hub.resumable.forget(r.peer())
	if !r.hub.Holds() {
		return
	}
	for _, held := range r.hub.held.of(r.peer()) {
		ref, ok := held.task(ctx)
		if !ok {
			continue
		}
		if t, err := r.hub.cfg.Desk.Get(ctx, ref); err == nil && t.State != task.Executing {
			held.cancelled.Store(true)
			r.endCall(ctx, ref)
		}
	}
	owner, shared := r.owner()
	if !r.ownsBySession() || shared {
		return
	}
	for t, err := range r.hub.cfg.Desk.Unstarted(ctx, owner) {
		if err != nil {
			r.hub.cfg.Log.WarnContext(ctx, "the calls of a session that ended stay pending", "cause", err)
			return
		}
		r.endCall(ctx, r.ref(t.ID))
	}
}

// endCall withdraws a call whose session has ended.
func (r *Request) endCall(ctx context.Context, ref task.Ref) {
	_, err := r.hub.cfg.Desk.Cancel(ctx, ref, r.withdrawal("the client ended its session"))
	if err != nil && !errors.Is(err, task.ErrAlreadyTerminal) {
		r.hub.cfg.Log.WarnContext(ctx, "held call not withdrawn", "task_id", ref.ID, "cause", err)
	}
}
