package crash_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

var (
	crashTime = flag.Duration("crash", 8*time.Second, "how long TestKilled torments each store")
	crashSeed = flag.Uint64("seed", 0, "what TestKilled's choices follow from; 0 for others each time")
)

// TestKilled kills gates and databases, and interrupts the network between them, at random
// moments while calls are held, decided, polled and run. At the end, the ledger of the
// upstream and the trails of the tasks agree: no call ran twice or without an approval, and
// all acknowledged changes are kept.
func TestKilled(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for name, start := range map[string]backend{"SQLite": sqlite, "Desk": desk, "PostgreSQL": postgres, "Redis": redis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("to repeat: go test ./e2e/crash -run TestKilled/%s -seed %d -crash %v", name, seed, *crashTime)
			w := start(t)
			if w == nil {
				return
			}
			s := &story{world: w, store: name, seed: seed, calls: make(map[string]*call), troubles: make(map[string]int)}
			s.rampage(*crashTime)
			s.settle()
			s.audit(s.told())
		})
	}
}

// A story is the record of all events that agents and approvers have seen.
type story struct {
	*world

	store string // its kind
	seed  uint64

	mu       sync.Mutex
	calls    map[string]*call // by task
	troubles map[string]int
}

// A call is the record of a held call.
type call struct {
	n        int
	session  string
	as       string       // the behaviour of the tool
	approval bool         // an approver tried to approve it
	states   []task.State // the acknowledged states, which must be kept
}

func (s *story) dice(worker uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, worker)) }

// know changes the record of a task.
func (s *story) know(id string, note func(c *call)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[id] == nil {
		s.calls[id] = new(call)
	}
	note(s.calls[id])
}

func (s *story) acknowledged(id string, state task.State) {
	s.know(id, func(c *call) { c.states = append(c.states, state) })
}

// rampage runs agents while faults occur.
func (s *story) rampage(long time.Duration) {
	over := make(chan struct{})
	var busy sync.WaitGroup
	worker := uint64(0)
	live := func(step func(dice *rand.Rand)) {
		worker++
		dice := s.dice(worker)
		busy.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					step(dice)
				}
			}
		})
	}
	for i := range 4 {
		p, n := newParty(s.t, []string{"s-0", "s-1", "s-2", ofSeveral}[i]).within(5*time.Second), i
		live(func(dice *rand.Rand) {
			n += 4
			s.live(p, n, dice)
		})
	}
	patient, approver, n := newParty(s.t, "s-patient").within(time.Second), newParty(s.t, "").within(2*time.Second), 1_000_000
	live(func(dice *rand.Rand) {
		n++
		s.insist(patient, n, dice)
	})
	refused, refusedN := newParty(s.t, "s-refused").within(time.Second), 2_000_000
	refused.key = s.ledger.key()
	live(func(dice *rand.Rand) {
		refusedN++
		s.signIn(refused, refusedN, dice)
	})
	live(func(dice *rand.Rand) {
		s.approveAll(approver, map[string]string{"hold_y": patient.session, "hold_z": refused.session}, dice)
	})
	pause := func(dice *rand.Rand, least, most int) {
		select {
		case <-over:
		case <-time.After(time.Duration(least+dice.IntN(most-least)) * time.Millisecond):
		}
	}
	live(func(dice *rand.Rand) {
		pause(dice, 100, 400)
		g := s.gates[dice.IntN(len(s.gates))]
		g.kill()
		g.start()
		s.suffered("gates killed")
	})
	live(func(dice *rand.Rand) {
		pause(dice, 10, 200)
		s.ledger.restart()
		s.suffered("restarts of the upstream")
	})
	if s.db != nil {
		live(func(dice *rand.Rand) {
			pause(dice, 800, 2500)
			s.crashDatabase()
		})
		live(func(dice *rand.Rand) {
			pause(dice, 100, 800)
			link, fault := s.links[dice.IntN(len(s.links))], faults[dice.IntN(len(faults))]
			link.Set(fault)
			pause(dice, 50, 600)
			link.Heal()
			if dice.IntN(3) == 0 {
				link.Cut()
			}
			s.suffered("faults of the network")
		})
	}
	<-time.After(long)
	for late := time.Now().Add(4*long + 2*patience); !s.telling() && time.Now().Before(late); {
		<-time.After(50 * time.Millisecond) // a machine may be slow
	}
	close(over)
	busy.Wait()
	if !s.telling() {
		s.t.Errorf("%s: too few events for a conclusion", s.store)
	}
}

// telling reports whether enough events occurred for a conclusion.
func (s *story) telling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return len(s.calls) >= 50 && len(s.ledger.runs) >= 20 && s.ledger.jobs >= 3 && s.troubles["gates killed"] >= 3 && s.troubles["requests refused by the upstream"] >= 3 &&
		(s.db == nil || s.troubles["crashes of the database"] > 0)
}

var faults = []testenv.Fault{
	testenv.Partition(),
	{Up: testenv.Way{Drop: true}, Down: testenv.Way{Drop: true}},
	{Down: testenv.Way{Drop: true}}, // the request is executed, and its answer is lost
	{Down: testenv.Way{Hold: true}},
	{Up: testenv.Way{Hold: true}},
	{Up: testenv.Way{Delay: 30 * time.Millisecond}, Down: testenv.Way{Delay: 30 * time.Millisecond}},
	{Down: testenv.Way{Truncate: 1000}, Up: testenv.Way{Reset: 3000}},
	{Refuse: true},
}

func (s *story) suffered(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles[what]++
}

func (s *story) crashDatabase() {
	if err := s.db.Crash(); err != nil {
		s.t.Error(err)
	}
	if err := s.db.Start(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	s.suffered("crashes of the database")
}

// live makes one call, and sometimes decides on it, cancels it or polls it.
func (s *story) live(p *party, n int, dice *rand.Rand) {
	anyGate := func() *gate { return s.gates[dice.IntN(len(s.gates))] }
	tool, as := "hold_x", []string{"quick", "slow", "large", "quick", jobs, howToAnswer(dice)}[dice.IntN(6)]
	switch {
	case p.several && as == jobs: // the ledger has no tasks of 2026-07-28
		as = "quick"
	case as == jobs:
		tool = "hold_job"
	case as == "quick" && dice.IntN(2) == 0 && !p.several:
		tool = "hold_task"
	}
	id := p.ask(anyGate(), "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"n":%d,"as":%q},"task":{}}`, tool, n, as)).after(`"taskId":"`)
	if id == "" {
		<-time.After(5 * time.Millisecond) // do not poll a closed port in a busy loop
		return
	}
	s.know(id, func(c *call) { c.n, c.session, c.as = n, p.session, as })
	switch dice.IntN(8) {
	case 0: // no decision
	case 1:
		if p.decide(anyGate(), id, "reject").status == 200 {
			s.acknowledged(id, task.Rejected)
		}
	case 2:
		s.cancel(p, anyGate(), id)
	default:
		s.know(id, func(c *call) { c.approval = true })
		if p.decide(anyGate(), id, "approve").status == 200 {
			s.acknowledged(id, task.Approved)
		}
	}
	for range dice.IntN(4) {
		if got := p.about(anyGate(), "tasks/get", id); got.has(`"status":"completed"`) && !got.has(`"isError":true`) {
			s.acknowledged(id, task.Completed)
		}
	}
	if as == jobs { // it ends only when it is cancelled
		s.cancel(p, anyGate(), id)
	}
}

// jobs is the behaviour of calls that become nested tasks and run until they are cancelled.
const jobs = "job"

// cancel cancels a call.
func (s *story) cancel(p *party, g *gate, id string) {
	if p.about(g, "tasks/cancel", id).has(`"status":"cancelled"`) {
		s.acknowledged(id, task.Cancelled)
	}
}

// insist repeats a call without a task until it gets the outcome.
func (s *story) insist(p *party, n int, dice *rand.Rand) {
	for range 5 {
		g := s.gates[dice.IntN(len(s.gates))]
		if p.ask(g, "tools/call", fmt.Sprintf(`{"name":"hold_y","arguments":{"n":%d,"as":"slow"}}`, n)).has(outcome(n, "slow")) {
			return
		}
	}
}

// signIn repeats a call until it gets the outcome, and changes its key when it is refused,
// because the upstream is sometimes restarted between the approval and the run.
func (s *story) signIn(p *party, n int, dice *rand.Rand) {
	for range 8 {
		g := s.gates[dice.IntN(len(s.gates))]
		got := p.ask(g, "tools/call", fmt.Sprintf(`{"name":"hold_z","arguments":{"n":%d,"as":"quick"}}`, n))
		switch {
		case got.has(outcome(n, "quick")):
			return
		case got.status == http.StatusUnauthorized:
			p.key = s.ledger.key()
			s.suffered("requests refused by the upstream")
		}
	}
}

// approveAll approves the calls of clients that wait in a request. sessions has their sessions
// by tool.
func (s *story) approveAll(p *party, sessions map[string]string, dice *rand.Rand) {
	g := s.gates[dice.IntN(len(s.gates))]
	var inbox struct {
		Approvals []struct {
			ID        string         `json:"id"`
			Tool      string         `json:"tool"`
			Arguments jsontext.Value `json:"arguments"`
		} `json:"approvals"`
	}
	if err := json.Unmarshal([]byte(p.inbox(g).body), &inbox); err != nil {
		return
	}
	for _, a := range inbox.Approvals {
		session := sessions[a.Tool]
		if session == "" {
			continue
		}
		s.know(a.ID, func(c *call) { c.n, c.session, c.approval = numberOf(string(a.Arguments)), session, true })
		if p.decide(g, a.ID, "approve").status == 200 {
			s.acknowledged(a.ID, task.Approved)
		}
	}
	<-time.After(10 * time.Millisecond) // a person needs a moment
}

// settle waits until every acknowledged task is pending or has ended.
func (s *story) settle() {
	var asking sync.WaitGroup
	ids := make(chan string)
	for i := range 8 {
		asking.Go(func() {
			for id := range ids {
				s.await(newParty(s.t, s.calls[id].session), s.gates[i%len(s.gates)], id)
			}
		})
	}
	for id := range s.calls {
		ids <- id
	}
	close(ids)
	asking.Wait()
}

// await waits until a task is pending or has ended, and checks the answer of a completed one.
func (s *story) await(p *party, g *gate, id string) {
	var last answer
	eventually(s.t, func() bool {
		last = p.about(g, "tasks/get", id)
		status := last.after(`"status":"`)
		if s.calls[id].as == jobs && status == "working" {
			s.cancel(p, g, id)
		}
		waits := status == "working" && last.has(`"server.approval":{"state":"pending"`)
		return waits || status == "completed" || status == "failed" || status == "cancelled" || last.has("task_not_found")
	})
	if c := s.calls[id]; last.after(`"status":"`) == "completed" && !last.has(`"isError":true`) { // as of a rejected call in 2026-07-28
		got := last
		eventually(s.t, func() bool { // the store may be slow for a moment
			if p.several { // which has the result already
				return true
			}
			got = p.about(g, "tasks/result", id)
			return !got.has("store_unavailable")
		})
		if !got.has(outcome(c.n, c.as) + `"`) {
			s.t.Errorf("call %d: %s has the result of another call: %.300s", c.n, id, got.body)
		}
	}
}

// told returns the content of the store after all cancellations have reached the upstream,
// even after processes were killed.
func (s *story) told() (found state) {
	first := true
	eventually(s.t, func() bool {
		if !first { // give the gates time to send the cancellations
			for _, g := range s.gates {
				g.start()
			}
			<-time.After(3 * time.Second)
		}
		first = false
		found = s.stored()
		return !slices.ContainsFunc(slices.Collect(maps.Values(found.tasks)), task.Task.OwesCancellation)
	})
	return found
}

// stopped checks that the upstream got the cancellation of t, and reports whether it had to.
func (s *story) stopped(t task.Task) bool {
	if t.State != task.Cancelled || t.Execution == nil || t.Execution.UpstreamTask == "" || t.Execution.Cancellation == nil {
		return false
	}
	if n := numberOf(t.Call.Arguments); !s.ledger.halted(n) {
		s.t.Errorf("call %d, %s, was cancelled, but not at the upstream: %+v", n, t.ID, t.Execution.Cancellation)
	}
	return true
}

// An account counts the tasks of one call.
type account struct{ tasks, pending, begun, completed, unrun int }

// audit compares the acknowledged changes, the stored tasks and the ledger.
func (s *story) audit(found state) {
	found.agree(s.t)
	accounts := make(map[int]*account)
	states, nested, stopped := make(map[task.State]int), 0, 0
	for _, t := range found.tasks {
		n := numberOf(t.Call.Arguments)
		if accounts[n] == nil {
			accounts[n] = new(account)
		}
		accounts[n].add(s.t, t)
		states[t.State]++
		if t.Execution != nil && t.Execution.UpstreamTask != "" {
			nested++
		}
		if s.stopped(t) {
			stopped++
		}
		if t.Failure != nil && t.Failure.Stage == lifecycle.StageSessionGone {
			s.troubles["approved calls refused by the upstream"]++
		}
		s.compare(t)
	}
	for id, c := range s.calls {
		if _, ok := found.tasks[task.ID(id)]; !ok {
			s.t.Errorf("call %d was acknowledged as %s and is lost", c.n, id)
		}
	}
	for n, a := range accounts {
		if ran := s.ledger.ran(n); ran < a.completed || ran > a.begun-a.unrun || a.pending > 1 {
			s.t.Errorf("call %d ran %d times; its tasks say %+v", n, ran, *a)
		}
	}
	for n := range s.ledger.runs {
		if accounts[n] == nil {
			s.t.Errorf("call %d ran without a task", n)
		}
	}
	s.t.Logf("%s: %d calls acknowledged, %d ran, %d as tasks of the upstream, %d of which were cancelled there; %v; %v",
		s.store, len(s.calls), len(s.ledger.runs), nested, stopped, states, s.troubles)
}

// add counts one task of the call, and checks that its trail is consistent.
func (a *account) add(t *testing.T, of task.Task) {
	t.Helper()
	a.tasks++
	if begun(t, of) {
		a.begun++
		if of.Failure != nil && of.Failure.Ran == task.RanNo {
			a.unrun++
		}
	}
	switch {
	case of.State == task.Completed:
		a.completed++
	case !of.State.Terminal():
		a.pending++
	}
}

// compare compares a stored task with its record.
func (s *story) compare(t task.Task) {
	c := s.calls[string(t.ID)]
	if c == nil {
		c = new(call) // its id was never sent, so it cannot have been approved
	}
	if t.Approval.Grant() != "" { // left by a call that was approved and refused by the upstream
		for _, other := range s.calls {
			c.approval = c.approval || other.n == numberOf(t.Call.Arguments) && other.approval
		}
	}
	approved := slices.ContainsFunc(t.Transitions, func(x task.Transition) bool { return x.To == task.Approved })
	if approved && !c.approval {
		s.t.Errorf("call %d, %s, was approved without an approver: %+v", c.n, t.ID, t.Transitions)
	}
	for _, state := range c.states {
		if t.State != state && (state != task.Approved || !approved) {
			s.t.Errorf("call %d, %s, was acknowledged as %s and is %s: %+v", c.n, t.ID, state, t.State, t.Transitions)
		}
	}
}

// begun checks that a trail is consistent, and reports whether the call was begun.
func begun(t *testing.T, of task.Task) bool {
	t.Helper()
	at, times := task.Working, 0
	for _, x := range of.Transitions {
		if x.From != at {
			t.Errorf("%s went from %s to %s without leaving %s", of.ID, x.From, x.To, at)
		}
		if at = x.To; at == task.Executing {
			times++
		}
	}
	if at != of.State || times > 1 {
		t.Errorf("%s is %s and began %d times: %+v", of.ID, of.State, times, of.Transitions)
	}
	return times > 0
}
