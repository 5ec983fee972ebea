package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A waiter handles the contacts of owners with their tasks: owners that poll and owners that wait.
type waiter struct {
	env        *env
	background *background
	contacts   *contacts
	canceller  *canceller
	tasks      *tasks
	runner     *runner
	answers    *partialAnswers
}

// Contact records that the owner is present, and returns the task. If the task is approved and
// [StartOnContact] is set, it starts the call with send; the call keeps running when the owner
// disconnects. While the task is pending, send is kept for two poll intervals and used if the
// decision comes by then. If the upstream made a task of the call, Contact asks the upstream for
// its status with send. A [*SendError] means that this failed; the task is unchanged. If send is
// nil, Contact starts nothing and asks no upstream.
func (s *Service) Contact(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := s.waiter.contact(ctx, ref, send, s.waiter.pollContact)
	return s.env.withInterval(t), err
}

// Attend is [Service.Contact] for an owner that waits on a stream. Call it repeatedly, and call
// [Service.StopAttending] when the stream ends.
func (s *Service) Attend(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	if s.env.settings().Start == StartOnResult {
		return s.Contact(ctx, ref, send) // an open stream does not start the call
	}
	t, err := s.waiter.contact(ctx, ref, send, s.waiter.waitContact)
	return s.env.withInterval(t), err
}

// Collect is [Service.Contact] for an owner that asks for the result without waiting. It also
// starts an approved task if [StartOnResult] is set.
func (s *Service) Collect(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := s.waiter.contact(ctx, ref, send, s.waiter.pollContact)
	if err == nil && t.State == task.Approved && send != nil && s.env.settings().Start == StartOnResult {
		t, err = s.runner.launch(ctx, t, send)
	}
	return s.env.withInterval(t), err
}

// contact implements Contact. Due returns the contact to record. The result is the task as stored.
func (vs *waiter) contact(ctx context.Context, ref task.Ref, send Sender, due contactFunc) (task.Task, error) {
	t, err := vs.tasks.get(ctx, ref)
	if err != nil {
		return t, err
	}
	if !unstarted(t) {
		if send != nil {
			vs.canceller.cancelSoon(ctx, t, send)
		}
		if t, err = vs.runner.pollUpstream(ctx, t, send); err == nil {
			t, err = vs.runner.endIfFailed(ctx, t)
		}
		return t, err
	}
	starts := send != nil && vs.env.settings().Start == StartOnContact
	if starts {
		// Remember the sender before reading the task again: then either the decision finds the
		// sender, or this read finds the decision.
		vs.contacts.remember(t, send)
	}
	switch c := due(t); {
	case c != nil:
		t, err = vs.record(ctx, t, *c)
	case starts:
		t, err = vs.env.store.Get(ctx, ref)
	}
	if err == nil && starts && t.State == task.Approved {
		t, err = vs.runner.launch(ctx, t, send)
	}
	return t, err
}

// unstarted reports whether t has not started to run.
func unstarted(t task.Task) bool { return !t.State.Terminal() && t.State != task.Executing }

// A contactFunc returns the contact to record for the owner of t, or nil if a recent one is
// recorded.
type contactFunc func(t task.Task) *lifecycle.Contact

// pollContact returns the contact of an owner that polls.
func (vs *waiter) pollContact(t task.Task) *lifecycle.Contact {
	now := vs.env.now()
	interval := vs.env.settings().Polling.Interval(t.Remaining(now))
	if t.PollInterval >= interval && now.Sub(t.ContactAt) < interval/4 {
		return nil
	}
	return &lifecycle.Contact{PollInterval: interval}
}

// waitContact returns the contact of an owner that waits. It causes at most one write every few
// seconds, however soon t expires.
func (vs *waiter) waitContact(t task.Task) *lifecycle.Contact {
	now := vs.env.now()
	interval := max(vs.env.settings().Polling.Interval(t.Remaining(now)), waitPoll)
	if t.PollInterval == interval && t.WaitsUntil.Sub(now) > interval*3/2 {
		return nil
	}
	return &lifecycle.Contact{PollInterval: interval, WaitsUntil: now.Add(2 * interval)}
}

// record applies c to t and returns the updated task. If t has ended, it returns t as it is.
func (vs *waiter) record(ctx context.Context, t task.Task, c lifecycle.Contact) (task.Task, error) {
	after, err := lifecycle.Updater{Store: vs.env.store}.AdvanceFrom(ctx, t, c, vs.env.now())
	if errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired) {
		return vs.tasks.get(ctx, task.OwnedBy(t.Owner).Ref(t.ID))
	}
	return after, err
}

// Wait is for an owner that waits in its own request. It returns the task once it has ended, or
// when the upstream asks the client for input (see InputRequests). If a large result starts to
// arrive at this replica, Wait returns the task in its expected final state; see [Service.Open].
// Wait starts the call with send as soon as it is approved; a nil send starts nothing. While an
// upstream task runs, Wait polls the upstream and fetches the result.
//
// If ctx ends first, Wait returns the last known task and [task.ErrNotReady], which wraps the
// context's error. A canceled context means that the client disconnected; an exceeded deadline
// does not. If the service closes first, the error is [task.ErrClosed]. Wait survives a
// temporarily unavailable store.
func (s *Service) Wait(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := s.waiter.await(ctx, ref, send)
	if err != nil && ctx.Err() != nil {
		err = s.env.notReady(ref.ID, t, ctx.Err())
	}
	return s.env.withInterval(t), err
}

// await implements Wait. It returns the error that ended the wait.
func (vs *waiter) await(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	v := wait{ref: ref, send: send, answerBegun: vs.answers.begun(), changes: storekit.WatchChanges(ctx, vs.env.store, waitPoll, ref)}
	defer v.changes.Close()
	next, err := vs.begin(ctx, &v)
	defer vs.end(ctx, &v)
	//mutate:swap "|| errors.Is(err, task.ErrUnavailable) " "" TestWaitBeginsDuringStoreOutage a wait that begins while the store is unavailable ends
	for err == nil || errors.Is(err, task.ErrUnavailable) {
		soon := storeRetry // the store is unavailable; the owner keeps waiting
		if err == nil {
			if v.last = vs.answers.withAnswer(next); waitedFor(v.last) {
				break
			}
			soon = vs.nextCheck(v.last)
		}
		v.changes.PollIn(soon)
		next, err = vs.next(ctx, &v)
	}
	return v.last, err
}

// begin reads the task and records the contact.
func (vs *waiter) begin(ctx context.Context, v *wait) (task.Task, error) {
	// A caller whose deadline has passed still counts as present.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx = context.WithoutCancel(ctx)
	}
	t, err := vs.tasks.get(ctx, v.ref)
	if err == nil {
		v.last = t
	}
	if err != nil && !errors.Is(err, task.ErrUnavailable) || v.last.State.Terminal() {
		return t, err // poll the upstream: it may no longer ask for input
	}
	vs.contacts.join(v.ref.ID)
	v.joined = true
	if err != nil {
		return t, err
	}
	return vs.check(ctx, v, func(ctx context.Context, _ task.Ref) (task.Task, error) { return vs.poll(ctx, t, v.send) })
}

// end ends a wait. The client may have disconnected before begin counted it.
func (vs *waiter) end(ctx context.Context, v *wait) {
	switch {
	case v.joined:
		vs.leave(ctx, v.ref, v.last)
	case errors.Is(ctx.Err(), context.Canceled):
		vs.clientLeft(ctx, v.ref)
	}
}

// waitedFor reports whether the owner of t can act now.
func waitedFor(t task.Task) bool {
	return t.State.Terminal() || t.AwaitsInput() && t.Execution.InputRequests != nil
}

// A wait is one request of an owner that waits.
type wait struct {
	ref         task.Ref
	send        Sender
	last        task.Task // the last known task; zero if it was not read yet
	changes     *storekit.Changes
	answerBegun <-chan struct{} // closed when a result starts to arrive
	tried       bool            // a fetch of the result was already tried
	joined      bool            // counted in [contacts.waiting]
}

// next waits for a change or a poll, and checks the task.
func (vs *waiter) next(ctx context.Context, v *wait) (task.Task, error) {
	reason, err := v.changes.Next(ctx, v.answerBegun, vs.background.closing)
	if err != nil {
		return task.Task{}, err
	}
	switch reason {
	case storekit.Ended:
		return task.Task{}, closedError(v.ref.ID, action.Watch)
	case storekit.Polled:
		v.tried = false
		return vs.check(ctx, v, vs.polling(v))
	case storekit.Woken:
		v.answerBegun = vs.answers.begun()
	case storekit.Changed:
	}
	return vs.check(ctx, v, vs.tasks.get)
}

// check reads the task with at, and starts it or fetches its result if possible.
func (vs *waiter) check(ctx context.Context, v *wait, at func(context.Context, task.Ref) (task.Task, error)) (task.Task, error) {
	t, err := at(ctx, v.ref)
	switch {
	case err != nil || v.send == nil:
		return t, err
	case t.State == task.Approved:
		return vs.runner.launch(ctx, t, v.send)
	case !nested(t) || v.tried:
		return t, nil
	case t.Execution.Upstream.Ended():
		v.tried = true
		return vs.runner.fetch(ctx, t, v.send)
	case t.AwaitsInput() && t.Execution.InputRequests == nil:
		v.tried = true
		return vs.runner.attend(ctx, t, v.send)
	default:
		return t, nil
	}
}

// polling returns a function that reads the task and calls [waiter.poll].
func (vs *waiter) polling(v *wait) func(context.Context, task.Ref) (task.Task, error) {
	return func(ctx context.Context, ref task.Ref) (task.Task, error) {
		t, err := vs.tasks.get(ctx, ref)
		if err != nil {
			return t, err
		}
		return vs.poll(ctx, t, v.send)
	}
}

// poll records the contact, asks the upstream for its status, and returns the updated task. An
// upstream that cannot be reached is asked again later.
func (vs *waiter) poll(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	if unstarted(t) {
		if c := vs.waitContact(t); c != nil {
			var err error
			if t, err = vs.record(ctx, t, *c); err != nil {
				return t, err
			}
		}
	}
	after, err := vs.runner.pollUpstream(ctx, t, send)
	if _, unasked := errors.AsType[*SendError](err); unasked {
		return t, nil
	}
	return after, err
}

// storeRetry is the interval of retries while the store is unavailable.
const storeRetry = time.Second

// waitPoll is the longest time that a waiting request relies on notifications of the store.
const waitPoll = 5 * time.Second

// nextCheck returns when to poll: when t expires, often enough for the owner to count as present,
// and soon if another replica, whose clock may be ahead, has recorded that the owner left it.
func (vs *waiter) nextCheck(t task.Task) time.Duration {
	now := vs.env.now()
	due := t.Due().Sub(now) + time.Microsecond
	if due <= 0 {
		due = storeRetry // its run is active in this process; the end is about to be stored
	}
	if unstarted(t) {
		due = min(due, t.WaitsUntil.Sub(now))
	}
	return max(time.Millisecond, min(waitPoll, vs.env.withInterval(t).PollInterval, due))
}

// noPollsExpected is the poll interval of an owner that is not expected to poll.
const noPollsExpected = time.Microsecond

// leave ends a wait. The last wait for a task at this replica records that the owner no longer
// waits here. If the client disconnected, it also records that the owner is not expected to poll.
func (vs *waiter) leave(ctx context.Context, ref task.Ref, t task.Task) {
	if !vs.contacts.leave(ref.ID) || ctx.Err() == nil || t.ID == "" || !unstarted(t) {
		return
	}
	var polls time.Duration // zero keeps the last interval
	if errors.Is(ctx.Err(), context.Canceled) {
		polls = vs.pollsWithoutClient(ref.ID)
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), waitPoll)
	defer stop()
	if err := vs.recordLeft(ctx, t, polls); err != nil {
		vs.env.log.WarnContext(LogContext(ctx, t), "departure not noted", "err", err)
	}
}

// recordLeft records that the owner no longer waits at this replica, and the owner's poll
// interval; 0 keeps the last one.
func (vs *waiter) recordLeft(ctx context.Context, t task.Task, polls time.Duration) error {
	_, err := vs.record(ctx, t, lifecycle.Contact{PollInterval: polls, WaitsUntil: vs.env.now()})
	return err
}

// pollsWithoutClient returns the poll interval of an owner whose client disconnected. The owner is
// not expected to poll unless it polled recently.
func (vs *waiter) pollsWithoutClient(id task.ID) time.Duration {
	if vs.contacts.recentSender(id) != nil {
		return 0
	}
	return noPollsExpected
}

// ClientLeft records that a client disconnected before it could wait for a task, unless another
// client waits for it. The context may have ended.
func (s *Service) ClientLeft(ctx context.Context, ref task.Ref) { s.waiter.clientLeft(ctx, ref) }

// clientLeft implements [Service.ClientLeft].
func (vs *waiter) clientLeft(ctx context.Context, ref task.Ref) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), waitPoll)
	defer stop()
	t, err := vs.tasks.get(ctx, ref)
	if err == nil && unstarted(t) && !vs.contacts.awaited(ref.ID) {
		err = vs.recordLeft(ctx, t, vs.pollsWithoutClient(ref.ID))
	}
	if err != nil && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrOwnerMismatch) {
		vs.env.log.WarnContext(ctx, "departure not noted", "task_id", ref.ID, "err", err)
	}
}

// takeover is how long another replica has to record that the owner of a task waits there.
const takeover = 3 * time.Second

// Withdraw cancels the task of a client that has closed its request, in the background. A client
// may repeat its request at another replica before this one notices that its connection is gone.
// So if the task has not started, Withdraw first waits for a moment, and leaves the task alone if
// its owner still waits for it, here or elsewhere.
func (s *Service) Withdraw(ctx context.Context, ref task.Ref, w Withdrawal) {
	if !s.background.enter() {
		return
	}
	go func() {
		defer s.background.running.Done()
		if s.waiter.awaitedElsewhere(ctx, ref) {
			return
		}
		if _, err := s.Cancel(ctx, ref, w); err != nil {
			s.env.log.DebugContext(ctx, "task not cancelled", "task_id", ref.ID, "err", err)
		}
	}()
}

// awaitedElsewhere reports whether the owner of a task waits for it although a wait here has ended.
// If the task cannot be read or the service closes, it reports true.
func (vs *waiter) awaitedElsewhere(ctx context.Context, ref task.Ref) bool {
	t, err := vs.env.store.Get(ctx, ref)
	if err == nil && !unstarted(t) {
		return false
	}
	select {
	case <-time.After(takeover):
	case <-vs.background.closing:
		return true
	}
	t, err = vs.env.store.Get(ctx, ref)
	return err != nil || !unstarted(t) || vs.contacts.awaited(ref.ID) || vs.env.now().Before(t.WaitsUntil)
}

// StopAttending records that the owner of a task no longer waits on a stream; see
// [Service.Attend].
func (s *Service) StopAttending(ctx context.Context, ref task.Ref) error {
	t, err := s.tasks.get(ctx, ref)
	if err != nil || !unstarted(t) || s.contacts.awaited(ref.ID) {
		return err
	}
	return s.waiter.recordLeft(ctx, t, 0)
}

// Contacts are the owners that are present at this replica: those that polled recently, and those
// that wait in a request.
type contacts struct {
	env *env

	mu      sync.Mutex
	closed  bool
	present map[task.ID]presence // owners that polled recently
	waiting map[task.ID]int      // the number of requests that wait for each task
}

func newContacts(e *env) *contacts {
	return &contacts{env: e, present: make(map[task.ID]presence), waiting: make(map[task.ID]int)}
}

// A presence is an owner that polled recently and is expected to poll again.
type presence struct {
	send  Sender
	until time.Time
}

func (c *contacts) join(id task.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id]++
}

// leave ends one wait for a task. It returns true if it was the last one.
func (c *contacts) leave(id task.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id]--
	if c.waiting[id] > 0 {
		return false
	}
	delete(c.waiting, id)
	return true
}

// awaited reports whether a request waits for a task at this replica.
func (c *contacts) awaited(id task.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[id] > 0
}

func (c *contacts) remember(t task.Task, send Sender) {
	until := c.env.now().Add(2 * c.env.withInterval(t).PollInterval)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.present[t.ID] = presence{send, until}
	}
}

// recentSender returns the sender of an owner that polled recently, or nil.
func (c *contacts) recentSender(id task.ID) Sender {
	c.mu.Lock()
	p, ok := c.present[id]
	c.mu.Unlock()
	if !ok || c.env.now().After(p.until) {
		return nil
	}
	//mutate:swap ".Revoked()" " == nil" TestRevokedOwnerStartsNoCall a revoked agent counts as present
	if r, ok := p.send.(Revocable); ok && r.Revoked() {
		return nil
	}
	return p.send
}

// anySender returns a sender that can reach the upstream of t now, or nil: the sender of an
// owner that polled recently, or one with the gate's configured credentials.
func (c *contacts) anySender(t task.Task) Sender {
	if send := c.recentSender(t.ID); send != nil {
		return send
	}
	if c.env.send == nil {
		return nil
	}
	return c.env.send(t)
}

// senderFor returns the sender that may start t without a request of its owner, or nil.
func (c *contacts) senderFor(t task.Task) Sender {
	switch c.env.settings().Start {
	case StartOnApproval:
		return c.env.send(t)
	case StartOnContact:
		return c.recentSender(t.ID)
	default:
		return nil
	}
}

func (c *contacts) forget(id task.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.present, id)
}

// prune removes owners that have not polled again.
func (c *contacts) prune() {
	now := c.env.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.present {
		if now.After(p.until) {
			delete(c.present, id)
		}
	}
}

// none reports whether no owner polled recently.
func (c *contacts) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.present) == 0
}

// close removes all owners. Later calls of remember have no effect.
func (c *contacts) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	clear(c.present)
}
