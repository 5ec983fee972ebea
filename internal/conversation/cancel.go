package conversation

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A canceller cancels held calls for their client.
type canceller struct {
	sender *sender
	out    responder
}

// plan returns the plan of a notification that cancels a held request, or nil for any other
// message.
func (c canceller) plan(ctx context.Context, m *jsonrpc.Message) *Plan {
	held, ok := c.find(ctx, m)
	if !ok {
		return nil
	}
	return answers(func(ctx context.Context) error {
		c.cancel(ctx, held, m)
		return c.out.answer(nil)
	})
}

// cancels handles m, a message of a batch, if it cancels a held call, and reports whether it
// does.
func (c canceller) cancels(ctx context.Context, m *jsonrpc.Message) bool {
	held, ok := c.find(ctx, m)
	if ok {
		c.cancel(ctx, held, m)
	}
	return ok
}

// find returns the held call that the notification m cancels. The upstream has never seen the id
// of such a call.
func (c canceller) find(ctx context.Context, m *jsonrpc.Message) (*heldRequest, bool) {
	closes := c.out.era == mcp.Modern && !c.sender.client.Transport().Pipe // a modern client cancels by closing its stream
	if m.Method != mcpname.NotifyCancelled || closes {
		return nil, false
	}
	if _, shared := c.sender.owner(); shared {
		return nil, false // the id may belong to another client
	}
	id := m.Params.Member("requestId").Bytes
	if held, ok := c.out.gateway.held.find(c.sender.peer(), id); ok {
		return held, true
	}
	return c.findElsewhere(ctx, id)
}

// findElsewhere returns the held call of a request that waits at another replica.
func (c canceller) findElsewhere(ctx context.Context, id []byte) (*heldRequest, bool) {
	owner, _ := c.sender.owner()
	t, err := c.out.gateway.cfg.Approvals.FindByRequest(ctx, owner, c.sender.client.Identity().Key, id)
	if err != nil {
		c.out.gateway.cfg.Log.WarnContext(ctx, "cannot look up the cancelled call at other replicas", "err", err)
	}
	if t.ID == "" {
		return nil, false
	}
	host, _ := c.sender.host(new(jsonrpc.Message))
	held := &heldRequest{host: host, since: t.CreatedAt, stop: func() {}, stored: make(chan struct{})}
	held.bind(c.sender.ref(t.ID))
	return held, true
}

// cancel handles a cancellation. If a user stopped the call, it is withdrawn. If only the time
// limit of the host has passed, the call stays pending, so that an identical call can attach to
// it.
func (c canceller) cancel(ctx context.Context, held *heldRequest, m *jsonrpc.Message) {
	reason, _ := m.Params.Member("reason").Text()
	reason = safetext.Line(reason, maxReason)
	age := time.Since(held.since)
	ref, ok := held.task(ctx)
	if !ok {
		return // the request itself is answered with the error
	}
	log := c.out.gateway.cfg.Log.With("task_id", ref.ID, "reason", reason, "held", age.Round(time.Second).String())
	if held.host.timedOut(reason, age) {
		log.InfoContext(ctx, "host timed out; the call stays pending")
		c.out.gateway.timedOut.set(requestName(ref.ID, m.Params.Member("requestId").Bytes), struct{}{})
		c.out.gateway.held.timeOut(held)
		held.stop() // some hosts leave the request open
		if err := c.out.gateway.cfg.Approvals.RecordClientLeft(ctx, ref, "the host timed out after "+human.Duration(age)+quoted(reason)); err != nil {
			log.WarnContext(ctx, "cannot record that the host timed out", "err", err)
		}
		return
	}
	held.cancelled.Store(true)
	if _, err := c.out.gateway.cfg.Approvals.Cancel(ctx, ref, c.sender.withdrawal("cancelled by the client"+quoted(reason))); err != nil {
		log.DebugContext(ctx, "held call not cancelled", "err", err)
	}
}

// requestName names one of the requests that wait for a task.
func requestName(id task.ID, request []byte) string { return string(id) + " " + string(request) }

// maxReason is how many bytes of a client's reason are kept.
const maxReason = 200

// quoted returns a client's reason as a suffix for other text.
func quoted(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strconv.Quote(reason)
}

// EndSession withdraws the calls of requests that wait in the session. If only the session
// identifies the client, it withdraws all of its calls, because no other client can get their
// results. A call that already runs goes on, as after a disconnect.
func (r *Request) EndSession(ctx context.Context) {
	c := canceller{sender: &r.sender, out: r.out}
	c.out.gateway.resumable.forget(c.sender.peer())
	if !c.out.gateway.Holds() {
		return
	}
	for _, held := range c.out.gateway.held.of(c.sender.peer()) {
		ref, ok := held.task(ctx)
		if !ok {
			continue
		}
		if t, err := c.out.gateway.cfg.Approvals.Get(ctx, ref); err == nil && t.State != task.Executing {
			held.cancelled.Store(true)
			c.endCall(ctx, ref)
		}
	}
	owner, shared := c.sender.owner()
	if !c.sender.ownsBySession() || shared {
		return
	}
	for t, err := range c.out.gateway.cfg.Approvals.Unstarted(ctx, owner) {
		if err != nil {
			c.out.gateway.cfg.Log.WarnContext(ctx, "cannot withdraw the calls of an ended session; they stay pending", "err", err)
			return
		}
		c.endCall(ctx, c.sender.ref(t.ID))
	}
}

// endCall withdraws a call whose session has ended.
func (c canceller) endCall(ctx context.Context, ref task.Ref) {
	_, err := c.out.gateway.cfg.Approvals.Cancel(ctx, ref, c.sender.withdrawal("the client ended its session"))
	if err != nil && !errors.Is(err, task.ErrAlreadyTerminal) {
		c.out.gateway.cfg.Log.WarnContext(ctx, "held call not withdrawn", "task_id", ref.ID, "err", err)
	}
}

// heldRequests has the requests that wait for a held call, so that their clients can cancel them.
type heldRequests struct {
	mu  sync.Mutex
	all map[requestKey]*heldRequest

	waits map[task.ID]*sharedWait
}

type requestKey struct{ peer, id string }

// A heldRequest is a request whose call becomes a task.
type heldRequest struct {
	host      Host
	since     time.Time
	cancelled atomic.Bool // by the client
	timedOut  atomic.Bool // the host's time limit has passed; set by [heldRequests.timeOut]
	stop      func()      // ends the wait
	waits     *requestKey // its key in sharedWait.requests; guarded by heldRequests.mu

	stored chan struct{} // closed when the store has the task, or has refused it
	ref    task.Ref      // of the task, set before stored is closed; zero if the call was not held
}

// bind sets the task of the request. It is zero if the call was not held.
func (h *heldRequest) bind(ref task.Ref) {
	h.ref = ref
	close(h.stored)
}

// task waits until the store has the task of the request, and returns it. It returns false if the
// call was not held.
func (h *heldRequest) task(ctx context.Context) (task.Ref, bool) {
	select {
	case <-h.stored:
		return h.ref, h.ref.ID != ""
	//mutate:swap "case <-ctx.Done()" "default" internal/mcphttp.TestCancelWhileStored a cancellation does not wait for the store
	case <-ctx.Done():
		return task.Ref{}, false
	}
}

// add adds a request, and returns a function that removes it.
func (h *heldRequests) add(peer string, id []byte, held *heldRequest) (remove func()) {
	key := requestKey{peer, jsonrpc.IDKey(id)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[requestKey]*heldRequest)
	}
	h.all[key] = held
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.all[key] == held { // otherwise the client has reused the id
			delete(h.all, key)
		}
	}
}

func (h *heldRequests) find(peer string, id []byte) (*heldRequest, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.all[requestKey{peer, jsonrpc.IDKey(id)}]
	return held, ok
}

// of returns the held requests of a client.
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

// A sharedWait counts the requests that wait for one task.
type sharedWait struct {
	requests map[requestKey]int // a resumed stream counts again for the same request
	most     int                // the maximum at one time, without requests whose clients have left
}

// addWaiter counts one more request that waits for its task, and returns their number.
func (h *heldRequests) addWaiter(held *heldRequest, request requestKey) (requests int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held.timedOut.Load() {
		return 0
	}
	if h.waits == nil {
		h.waits = make(map[task.ID]*sharedWait)
	}
	w := h.waits[held.ref.ID]
	if w == nil {
		w = &sharedWait{requests: make(map[requestKey]int)}
		h.waits[held.ref.ID] = w
	}
	held.waits = &request
	w.requests[request]++
	w.most = max(w.most, len(w.requests))
	return len(w.requests)
}

// timeOut notes that the host's time limit for a request has passed. Its client has left, even if
// its wait has not ended yet.
func (h *heldRequests) timeOut(held *heldRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held.timedOut.Store(true)
	//mutate:drop internal/mcphttp.TestCallThatTimedOutIsNotCounted a request whose host gave up counts until its wait has ended
	h.drop(held)
}

// removeWaiter counts one request less.
func (h *heldRequests) removeWaiter(held *heldRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(held)
}

// dropWaiter is removeWaiter for a request whose client has left: it no longer counts among the
// requests that have waited. It reports whether it was the last one.
func (h *heldRequests) dropWaiter(held *heldRequest) (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drop(held)
}

// drop is dropWaiter for a caller that holds the lock.
func (h *heldRequests) drop(held *heldRequest) (last bool) {
	if held.waits == nil {
		return false
	}
	rest := h.remove(held)
	if rest == nil {
		return true
	}
	rest.most = len(rest.requests)
	return false
}

// remove removes a request, and returns the wait of the others for the same task, or nil.
func (h *heldRequests) remove(held *heldRequest) *sharedWait {
	if held.waits == nil {
		return nil
	}
	w := h.waits[held.ref.ID]
	if w.requests[*held.waits]--; w.requests[*held.waits] == 0 {
		delete(w.requests, *held.waits)
	}
	held.waits = nil
	if len(w.requests) > 0 {
		return w
	}
	delete(h.waits, held.ref.ID)
	return nil
}

// shared returns how many requests have waited for a task at the same time.
func (h *heldRequests) shared(id task.ID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.waits[id]; w != nil {
		return w.most
	}
	return 0
}
