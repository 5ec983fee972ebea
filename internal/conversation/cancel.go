package conversation

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
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
func (r *Request) release(remove func()) {
	if !r.gone() {
		remove()
		return
	}
	time.AfterFunc(lateCancel, remove)
}

// planCancel returns the plan of a notification that cancels a request which the
// gate holds, or nil if it is about none.
func (r *Request) planCancel(m *jsonrpc.Message) *Plan {
	ref, ok := r.heldBy(m)
	if !ok {
		return nil
	}
	return answers(func(ctx context.Context) error {
		r.withdrawHeld(ctx, ref)
		return r.answer(nil)
	})
}

// heldBy returns the held call that m, if it is such a notification, says the
// client no longer waits for. The upstream has never seen the id of such a call.
func (r *Request) heldBy(m *jsonrpc.Message) (task.Ref, bool) {
	_, shared := r.owner()
	if m.Method != "notifications/cancelled" || shared || r.era == wire.Modern {
		return task.Ref{}, false // ids may be another client's; a modern one closes its stream
	}
	return r.hub.held.find(r.peer(), m.Params.Member("requestId").Bytes)
}

// withdrawal returns the wish of this client that a call is not made.
func (r *Request) withdrawal(reason string) approval.Withdrawal {
	owner, _ := r.owner()
	return approval.Withdrawal{By: owner, Reason: reason, Send: r.send()}
}

// withdrawHeld withdraws a held call that its client has cancelled.
func (r *Request) withdrawHeld(ctx context.Context, ref task.Ref) {
	if _, err := r.hub.cfg.Desk.Cancel(ctx, ref, r.withdrawal("cancelled by the client")); err != nil {
		r.hub.cfg.Log.DebugContext(ctx, "held request not cancelled", "task_id", ref.ID, "cause", err)
	}
}

// cancelsHeld withdraws the held call that m, a message of a batch, cancels, and
// reports whether it is about one.
func (r *Request) cancelsHeld(ctx context.Context, m *jsonrpc.Message) bool {
	ref, ok := r.heldBy(m)
	if ok {
		r.withdrawHeld(ctx, ref)
	}
	return ok
}

// cancellable lets the client cancel t by the id of one of these requests,
// until they have been answered.
func (r *Request) cancellable(id []byte, t task.Task) {
	r.state.holds = append(r.state.holds, r.hub.held.add(r.peer(), id, r.ref(t.ID)))
}
