// Package explore tries every point at which a held call can fail, one by one.
//
// A world is one process in which everything is real except the edges. Two gates (the handler,
// the conversation, the approvals and the upstream client) share one store, one upstream,
// agents and approvers. Each call of a gate to the store, the upstream, a channel or a client
// stops at a point. The world decides which of the stopped calls continues and how it ends.
// The rest is deterministic: time is the fake clock of testing/synctest, and the calls of a
// scenario have the same order in every run.
//
// A run is named by its scenario and its faults: held-task/7:lost+12:die is the scenario
// held-task in which the answer to the 7th call is lost and the gate dies at the 12th.
//
//	go test ./internal/explore -run TestNamedRun -v -name held-task/7:lost+12:die
package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/failpoint"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A fault is a way in which a call ends.
type fault string

// The faults. A process that dies is started again after a while.
const (
	none     fault = ""
	die      fault = "die"       // the process dies before the call
	dieAfter fault = "die-after" // the call takes effect and the process dies before the answer
	lost     fault = "lost"      // the call takes effect and its answer is lost
	fail     fault = "fail"      // the call fails and has no effect
	late     fault = "late"      // the answer comes after the lease of a run
	overdue  fault = "overdue"   // the answer comes after the deadline of the task
	deaf     fault = "deaf"      // a watch is opened and never wakes
	between  fault = "between"   // the other gate, its agents and approvers act before the call
	freeze   fault = "freeze"    // the process stands still before the call, for longer than a lease; its clients leave
	cut      fault = "cut"       // the call fails, and every call of the process to the store for a while
	cutAfter fault = "cut-after" // the call takes effect, its answer is lost, and the store cannot be reached for a while
)

// How late an answer is.
const (
	lateness    = lease + time.Second
	overdueness = patience + execution + retrieval + time.Second
)

// outage is how long a store cannot be reached. It ends after a gate has tried for the last time
// to find out what became of a change, and before the gate acts on its doubt.
const outage = 2800 * time.Millisecond

// The errors of faults.
var (
	errLost   = errors.New("explore: the answer was lost")
	errFail   = errors.New("explore: the call failed")
	errFrozen = errors.New("explore: the process does not answer")
	errDead   = fmt.Errorf("explore: the process is dead: %w", task.ErrClosed)
)

// horizon is when a run ends: every task has ended by then.
const horizon = 8 * time.Minute

// A call is a call of a gate that has stopped at its point.
type call struct {
	by     *process
	op     string // such as store.Swap
	about  string // details for the story
	chain  string // the functions that make the call
	order  int    // in which it stopped
	number int    // of the calls of this name that the gate has made
	answer chan fault
}

// A world has all participants of a run.
type world struct {
	t        *testing.T
	plan     plan
	store    gatestore.Store
	server   *server
	gates    [2]replica
	pace     time.Duration // divides the times of a scenario
	start    time.Time
	over     chan struct{} // closed when dead processes may end
	stop     context.CancelFunc
	ctx      context.Context // of everything that acts in this world
	actors   sync.WaitGroup
	outcomes outcomes
	channel  *chat
	settings settings

	mu      sync.Mutex
	stopped []*call
	arrived chan struct{} // receives when a call has stopped
	seen    int           // calls that have stopped so far
	free    bool          // calls no longer stop
	active  int           // agents that have not finished
	points  []point       // the calls that went on, in their order
	story   []string

	changes int            // the number of changing calls so far
	made    map[string]int // calls so far, by gate and name
	read    map[string]int // the number of changes at the last read, by gate and function
}

// A point is a call that continued, and how it ended.
type point struct {
	op, about, gate string
	number          int // of the calls of this name that the gate has made
	fault           fault
	others          int // the number of other stopped calls at that time
}

// newWorld starts both gates.
func newWorld(t *testing.T, p plan, s settings) *world {
	w := emptyWorld(t, p)
	w.settings, w.store = s, memstore.New(memstore.Options{})
	w.gates[0] = startProcess(w, "A")
	if w.gates[1] = w.gates[0]; !s.alone {
		w.gates[1] = startProcess(w, "B")
	}
	return w
}

// emptyWorld returns a world without a store and gates.
func emptyWorld(t *testing.T, p plan) *world {
	w := &world{t: t, plan: p, pace: 1, start: time.Now(), over: make(chan struct{}), arrived: make(chan struct{}, 1), read: map[string]int{}, made: map[string]int{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.server = newServer(w)
	w.channel = &chat{w: w}
	w.outcomes.w, w.outcomes.want, w.outcomes.withdrawn = w, scenarios[p.scenario].want, -1
	return w
}

// A replica is a gate from the view of its agents and approvers.
type replica interface {
	fmt.Stringer

	serves() bool
	shutdown() // in order, like a deployment; a successor is started
	send(ctx context.Context, header http.Header, message string) answer
	pending() ([]review.Approval, error)
	show(id task.ID) (review.Approval, error)
	decide(name string, id task.ID, r approval.Ruling) error
}

// tell adds a line to the story.
func (w *world) tell(format string, args ...any) {
	line := fmt.Sprintf("%8s  ", time.Since(w.start).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, line)
}

// stopAt stops a call at its point, and returns the fault with which it ends.
func (w *world) stopAt(ctx context.Context, by *process, op, about string) fault {
	by.awaitThaw()
	w.mu.Lock()
	free := w.free
	w.mu.Unlock()
	if free && !by.isDead() {
		return none
	}
	from, chain := failpoint.Caller()
	w.mu.Lock()
	if by.isDead() {
		w.mu.Unlock()
		<-w.over
		return die
	}
	full := failpoint.Name("", about, from)
	w.made[by.name+op+full]++
	number := w.made[by.name+op+full]
	if w.free || w.repeats(by.name+op+chain, reads(op) || renews(op, about) || op == "client.Write") {
		w.mu.Unlock()
		return none
	}
	w.seen++
	c := &call{by: by, op: op, about: full, chain: chain, order: w.seen, number: number, answer: make(chan fault, 1)}
	w.stopped = append(w.stopped, c)
	w.mu.Unlock()
	select {
	case w.arrived <- struct{}{}:
	default:
	}
	select {
	case f := <-c.answer:
		return f
	case <-ctx.Done():
		by.awaitThaw()
	case <-by.died:
	}
	w.mu.Lock()
	w.stopped = slices.DeleteFunc(w.stopped, func(other *call) bool { return other == c })
	dead := by.isDead()
	w.mu.Unlock()
	if dead {
		<-w.over
		return die
	}
	select {
	case f := <-c.answer:
		return f
	default:
		return none // the effect returns the error of the context
	}
}

// repeats reports whether a function of a gate repeats a read, and nothing has changed since
// the last one. Such a call is not a point, because housekeeping and waiting agents make many
// of them. The caller holds the lock.
func (w *world) repeats(key string, quiet bool) bool {
	if !quiet {
		w.changes++
		return false
	}
	at, ok := w.read[key]
	w.read[key] = w.changes
	return ok && at == w.changes
}

// do makes a call that has an effect, unless a fault prevents the effect.
func do[T any](ctx context.Context, by *process, op, about string, effect func(context.Context) (T, error)) (T, error) {
	var zero T
	w := by.w
	store := strings.HasPrefix(op, "store.")
	if store && by.isCut() {
		return zero, &task.Error{Kind: task.ErrUnavailable, NotAttempted: true, Err: errFail}
	}
	failed := func(err error) error {
		if store { // as package steadystore does
			return &task.Error{Kind: task.ErrUnavailable, Err: err}
		}
		return err
	}
	switch f := w.stopAt(ctx, by, op, about); f {
	case die:
		by.die()
		<-w.over
		return zero, errDead
	case dieAfter:
		_, _ = effect(context.WithoutCancel(ctx))
		by.die()
		<-w.over
		return zero, errDead
	case lost, cutAfter:
		_, _ = effect(ctx)
		return zero, failed(errLost)
	case fail, cut:
		return zero, failed(errFail)
	case deaf:
		return zero, failpoint.ErrDeaf
	case late, overdue:
		v, err := effect(ctx)
		if by.sleep(ctx, map[fault]time.Duration{late: lateness, overdue: overdueness}[f]) != nil {
			return zero, ctx.Err()
		}
		return v, err
	default:
		return effect(ctx)
	}
}

// run lets the calls of the world continue, one at a time, until all agents have finished and
// every task has had time to end.
func (w *world) run() {
	n := 0
	for time.Since(w.start) < horizon {
		synctest.Wait()
		waiting := w.waiting()
		w.thawDue(false)
		w.outcomes.step()
		if len(waiting) == 0 {
			if w.idle() && !w.frozen() {
				break
			}
			w.await(time.Second)
			continue
		}
		n++
		w.resume(n, waiting)
	}
	w.thawDue(true)
	w.release()
	for time.Since(w.start) < horizon {
		time.Sleep(10 * time.Second)
		w.outcomes.step()
	}
	synctest.Wait()
}

// await waits until a call stops, or for a limited time.
func (w *world) await(d time.Duration) {
	select {
	case <-w.arrived:
	case <-time.After(d):
	}
}

// waiting returns the stopped calls in an order that does not depend on the scheduling of
// goroutines.
func (w *world) waiting() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(w.stopped), func(c *call) bool { return c.by.isDead() || c.by.isFrozen() })
	slices.SortStableFunc(list, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.by.name, b.by.name), cmp.Compare(a.op, b.op), cmp.Compare(a.about, b.about), cmp.Compare(a.chain, b.chain), cmp.Compare(a.order, b.order))
	})
	return list
}

// resume lets one of the waiting calls continue, as number n.
func (w *world) resume(n int, waiting []*call) {
	c := waiting[0]
	if i := w.plan.switches[n]; i > 0 && i < len(waiting) {
		c = waiting[i]
	}
	f := w.plan.faults[n]
	if f == between {
		w.resumeLater(n, c)
		return
	}
	if f == freeze && c.by.thaws.IsZero() { // a process stands still only once
		w.record(n, c, f, len(waiting)-1)
		c.by.freeze(c)
		return
	}
	w.finish(n, c, f, len(waiting)-1)
}

// resumeLater lets everything but c continue, as long as the other calls follow each other
// within a few seconds, and then c.
func (w *world) resumeLater(n int, c *call) {
	w.tell("#%d %s %s %s waits while others act", n, c.by.name, c.op, c.about)
	w.thawDue(true)
	until := time.Now().Add(10 * time.Second)
	for time.Now().Before(until) {
		synctest.Wait()
		others := slices.DeleteFunc(w.waiting(), func(other *call) bool { return other == c })
		if len(others) == 0 {
			w.await(time.Second)
			continue
		}
		w.answer(others[0], none)
	}
	w.finish(n, c, between, 0)
}

// thawDue lets processes that stand still go on, if it is time or now is true.
func (w *world) thawDue(now bool) {
	for _, p := range w.allProcesses() {
		if p.isFrozen() && (now || p.replaced.Load() || !time.Now().Before(p.thaws)) {
			w.tell("%s goes on", p.name)
			close(p.thawed)
			synctest.Wait() // it notices that its clients have left
			w.answer(p.at, none)
		}
	}
}

// taken lets the process go on that stands still while another one takes over its run.
func (w *world) taken(executor string) {
	for _, p := range w.allProcesses() {
		if p.isFrozen() && strings.HasPrefix(executor, p.name+"#") {
			p.replaced.Store(true)
		}
	}
}

// current returns the gates.
func (w *world) current() []replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gates[:])
}

// frozen reports whether a process stands still.
func (w *world) frozen() bool {
	return slices.ContainsFunc(w.allProcesses(), (*process).isFrozen)
}

// finish lets a call continue, and records it.
func (w *world) finish(n int, c *call, f fault, others int) {
	w.record(n, c, f, others)
	if f == between || f == freeze {
		f = none
	}
	w.answer(c, f)
}

// record records how a call ends.
func (w *world) record(n int, c *call, f fault, others int) {
	if f != none {
		w.tell("#%d %s %s %s: %s", n, c.by.name, c.op, c.about, f)
	} else {
		w.tell("#%d %s %s %s", n, c.by.name, c.op, c.about)
	}
	w.outcomes.faulted(c, f)
	w.mu.Lock()
	w.points = append(w.points, point{op: c.op, about: c.about, gate: c.by.name, number: c.number, fault: f, others: others})
	w.mu.Unlock()
	c.by.suffer(f)
}

func (w *world) answer(c *call, f fault) {
	w.mu.Lock()
	w.stopped = slices.DeleteFunc(w.stopped, func(other *call) bool { return other == c })
	w.mu.Unlock()
	c.answer <- f
}

// idle reports whether all agents have finished.
func (w *world) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active == 0
}

// release lets all calls continue without stopping from now on.
func (w *world) release() {
	w.mu.Lock()
	w.free = true
	list := w.stopped
	w.stopped = nil
	w.mu.Unlock()
	for _, c := range list {
		if !c.by.isDead() {
			c.answer <- none
		}
	}
}

// act runs the actions of an agent or an approver. The world continues until all agents have
// finished.
func (w *world) act(agent bool, f func()) {
	w.mu.Lock()
	if agent {
		w.active++
	}
	w.mu.Unlock()
	w.actors.Go(func() {
		f()
		w.mu.Lock()
		defer w.mu.Unlock()
		if agent {
			w.active--
		}
	})
}

// alive returns the gate with the given index if it runs, and otherwise the other one. If both
// are dead, alive waits until one has been started again.
func (w *world) alive(i int) replica {
	for {
		w.mu.Lock()
		first, second := w.gates[i], w.gates[1-i]
		w.mu.Unlock()
		if first.serves() {
			return first
		}
		if second.serves() {
			return second
		}
		if w.sleep(time.Second) != nil {
			return first
		}
	}
}

// sleep waits, and returns an error if the world ends first.
func (w *world) sleep(d time.Duration) error {
	select {
	case <-time.After(d / w.pace):
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// end stops everything and waits until all goroutines have ended.
func (w *world) end() {
	w.stop()
	close(w.over)
	for _, p := range w.allProcesses() {
		p.close()
	}
	w.actors.Wait()
	_ = w.store.Close()
	time.Sleep(2 * time.Minute) // longer than all remaining timeouts
}

func (w *world) allProcesses() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*process
	for _, gate := range w.gates {
		for p := gate.(*process); p != nil && !slices.Contains(all, p); p = p.before {
			all = append(all, p)
		}
	}
	return all
}

// A plan has the faults and choices of a run.
type plan struct {
	scenario string
	faults   map[int]fault // by the number of the call
	switches map[int]int   // which of several waiting calls continues, if not the first
}

// name returns p in the form that parsePlan accepts.
func (p plan) name() string {
	var parts []string
	for _, n := range sortedKeys(p.faults) {
		parts = append(parts, fmt.Sprintf("%d:%s", n, p.faults[n]))
	}
	for _, n := range sortedKeys(p.switches) {
		parts = append(parts, fmt.Sprintf("%d@%d", n, p.switches[n]))
	}
	return p.scenario + "/" + strings.Join(parts, "+")
}

// parsePlan returns the plan with the given name.
func parsePlan(name string) (plan, error) {
	scenario, rest, _ := strings.Cut(name, "/")
	p := plan{scenario: scenario, faults: map[int]fault{}, switches: map[int]int{}}
	for part := range strings.SplitSeq(rest, "+") {
		if part == "" {
			continue
		}
		var n, which int
		var f fault
		if _, err := fmt.Sscanf(part, "%d@%d", &n, &which); err == nil {
			p.switches[n] = which
		} else if _, err := fmt.Sscanf(strings.Replace(part, ":", " ", 1), "%d %s", &n, &f); err == nil {
			p.faults[n] = f
		} else {
			return plan{}, fmt.Errorf("explore: %q is not of the form NUMBER:FAULT or NUMBER@CHOICE", part)
		}
	}
	return p, nil
}

func sortedKeys[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
