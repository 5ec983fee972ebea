package crash_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/netfault"
	"github.com/thoughtgate/thoughtgate-go/task"
)

var (
	crashTime = flag.Duration("crash", 8*time.Second, "how long TestKilled torments each store")
	crashSeed = flag.Uint64("seed", 0, "what TestKilled's choices follow from; 0 for others each time")
)

// TestKilled kills gates and databases, and breaks the network between them, at
// random moments while calls are held, decided, polled and run. In the end the
// ledger of the upstream and the trails of the tasks agree: no call ran twice,
// none ran that nobody approved, and nothing that was acknowledged is lost.
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

// A story is what happened, as agents and approvers know it.
type story struct {
	*world

	store string // which one it is
	seed  uint64

	mu       sync.Mutex
	calls    map[string]*call // by task
	troubles map[string]int
}

// A call is what is known of a held call.
type call struct {
	n        int
	session  string
	as       string       // how the tool behaves
	approval bool         // somebody tried to approve it, whatever came of it
	states   []task.State // those that were acknowledged, and cannot be taken back
}

func (s *story) dice(lane uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, lane)) }

// know notes what is known of a task.
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

// rampage lets agents live while everything breaks.
func (s *story) rampage(long time.Duration) {
	over := make(chan struct{})
	var busy sync.WaitGroup
	lane := uint64(0)
	live := func(step func(dice *rand.Rand)) {
		lane++
		dice := s.dice(lane)
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
		p, n := newParty(s.t, fmt.Sprint("s-", i)).within(5*time.Second), i
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
	live(func(dice *rand.Rand) { s.approveAll(approver, patient.session, dice) })
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
		s.t.Errorf("%s: too little happened to prove anything", s.store)
	}
}

// telling reports whether enough has happened to prove something.
func (s *story) telling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return len(s.calls) >= 50 && len(s.ledger.runs) >= 20 && s.ledger.jobs >= 3 && s.troubles["gates killed"] >= 3 &&
		(s.db == nil || s.troubles["crashes of the database"] > 0)
}

var faults = []netfault.Fault{
	netfault.Partition(),
	{Up: netfault.Way{Drop: true}, Down: netfault.Way{Drop: true}},
	{Down: netfault.Way{Drop: true}}, // what is asked for is done, and nobody hears of it
	{Down: netfault.Way{Hold: true}},
	{Up: netfault.Way{Hold: true}},
	{Up: netfault.Way{Delay: 30 * time.Millisecond}, Down: netfault.Way{Delay: 30 * time.Millisecond}},
	{Down: netfault.Way{Truncate: 1000}, Up: netfault.Way{Reset: 3000}},
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

// live makes one call, and sees to some part of what should become of it.
func (s *story) live(p *party, n int, dice *rand.Rand) {
	anyGate := func() *gate { return s.gates[dice.IntN(len(s.gates))] }
	tool, as := "hold_x", []string{"quick", "slow", "large", "quick", jobs, howToAnswer(dice)}[dice.IntN(6)]
	switch {
	case as == jobs:
		tool = "hold_job"
	case as == "quick" && dice.IntN(2) == 0:
		tool = "hold_task"
	}
	id := p.ask(anyGate(), "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"n":%d,"as":%q},"task":{}}`, tool, n, as)).after(`"taskId":"`)
	if id == "" {
		<-time.After(5 * time.Millisecond) // whoever is not there cannot be had by asking faster
		return
	}
	s.know(id, func(c *call) { c.n, c.session, c.as = n, p.session, as })
	switch dice.IntN(8) {
	case 0: // nobody decides
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
		if p.about(anyGate(), "tasks/get", id).has(`"status":"completed"`) {
			s.acknowledged(id, task.Completed)
		}
	}
	if as == jobs { // which ends in no other way
		s.cancel(p, anyGate(), id)
	}
}

// jobs is how calls behave that become tasks of the upstream's own, and go on
// until they are cancelled.
const jobs = "job"

// cancel withdraws a call.
func (s *story) cancel(p *party, g *gate, id string) {
	if p.about(g, "tasks/cancel", id).has(`"status":"cancelled"`) {
		s.acknowledged(id, task.Cancelled)
	}
}

// insist makes a call without a task, again and again until it has the outcome.
func (s *story) insist(p *party, n int, dice *rand.Rand) {
	for range 5 {
		g := s.gates[dice.IntN(len(s.gates))]
		if p.ask(g, "tools/call", fmt.Sprintf(`{"name":"hold_y","arguments":{"n":%d,"as":"slow"}}`, n)).has(outcome(n, "slow")) {
			return
		}
	}
}

// approveAll approves the calls of those who wait in a request.
func (s *story) approveAll(p *party, session string, dice *rand.Rand) {
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
		if a.Tool != "hold_y" {
			continue
		}
		s.know(a.ID, func(c *call) { c.n, c.session, c.approval = numberOf(string(a.Arguments)), session, true })
		if p.decide(g, a.ID, "approve").status == 200 {
			s.acknowledged(a.ID, task.Approved)
		}
	}
	<-time.After(10 * time.Millisecond) // a person needs a moment
}

// settle asks for every task that was acknowledged until it stands still.
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

// await waits until a task stands still, and checks the answer of one that has
// completed.
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
	if c := s.calls[id]; last.after(`"status":"`) == "completed" {
		var got answer
		eventually(s.t, func() bool { // a store that is slow for a moment is no loss
			got = p.about(g, "tasks/result", id)
			return !got.has("store_unavailable")
		})
		if !got.has(outcome(c.n, c.as) + `"`) {
			s.t.Errorf("call %d: the result of %s is not its own: %.300s", c.n, id, got.body)
		}
	}
}

// told returns what the store knows once no upstream is owed anything: whatever
// was killed, all that was cancelled while it ran is cancelled there too.
func (s *story) told() (found state) {
	first := true
	eventually(s.t, func() bool {
		if !first { // give the gates some time to do it
			for _, g := range s.gates {
				g.start()
			}
			<-time.After(3 * time.Second)
		}
		first = false
		found = s.stored()
		return !slices.ContainsFunc(slices.Collect(maps.Values(found.tasks)), task.Task.Owes)
	})
	return found
}

// stopped checks that the upstream heard that t was cancelled, and reports
// whether it had to.
func (s *story) stopped(t task.Task) bool {
	if t.State != task.Cancelled || t.Execution == nil || t.Execution.UpstreamTask == "" || t.Execution.Cancellation == nil {
		return false
	}
	if n := numberOf(t.Call.Arguments); !s.ledger.halted(n) {
		s.t.Errorf("call %d, %s, was cancelled, and the upstream never heard of it: %+v", n, t.ID, t.Execution.Cancellation)
	}
	return true
}

// An account is what the tasks of one call say of it.
type account struct{ tasks, pending, begun, completed, unrun int }

// audit compares what was acknowledged, what is stored and what ran.
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

// add counts one task of the call, whose trail must be one.
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

// compare checks a task against what is known of it.
func (s *story) compare(t task.Task) {
	c := s.calls[string(t.ID)]
	if c == nil {
		c = new(call) // nobody was told of it, so that nobody can have approved it
	}
	approved := slices.ContainsFunc(t.Transitions, func(x task.Transition) bool { return x.To == task.Approved })
	if approved && !c.approval {
		s.t.Errorf("call %d, %s, was approved by nobody: %+v", c.n, t.ID, t.Transitions)
	}
	for _, state := range c.states {
		if t.State != state && (state != task.Approved || !approved) {
			s.t.Errorf("call %d, %s, was said to be %s and is %s: %+v", c.n, t.ID, state, t.State, t.Transitions)
		}
	}
}

// begun checks that a trail is one and reports whether the call was begun.
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
