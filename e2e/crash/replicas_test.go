package crash_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// In TestReplicas, three gates share a database, and one of them fails in each possible way.
func TestReplicas(t *testing.T) {
	over(t, func(t *testing.T, w *world) {
		p := newParty(t, "s-1")
		t.Run("each does a part", func(t *testing.T) { handOver(t, w, p) })
		t.Run("executor killed", func(t *testing.T) { killExecutor(t, w, p) })
		t.Run("partitioned", func(t *testing.T) { partition(t, w, p) })
		t.Run("executor partitioned", func(t *testing.T) { silenceExecutor(t, w, p, 4, testenv.Partition()) })
		t.Run("executor unheard", func(t *testing.T) {
			silenceExecutor(t, w, p, 5, testenv.Fault{Up: testenv.Way{Drop: true}, Down: testenv.Way{Drop: true}})
		})
		for n := 1; n <= 5; n++ {
			if ran := w.ledger.ran(n); ran != 1 {
				t.Errorf("call %d ran %d times", n, ran)
			}
		}
		w.t = t
		found := w.stored()
		found.agree(t)
		for _, of := range found.tasks {
			begun(t, of)
		}
	})
}

// over runs a test over each database that replicas can share.
func over(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, start := range map[string]backend{"PostgreSQL": postgres, "Redis": redis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if w := start(t); w != nil {
				test(t, w)
			}
		})
	}
}

// hold makes a call that is held, and returns the id of its task.
func (p *party) hold(t *testing.T, g *gate, n int, as string) string {
	t.Helper()
	created := p.ask(g, "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d,"as":%q},"task":{}}`, n, as))
	id := created.after(`"taskId":"`)
	if id == "" {
		t.Fatalf("call %d is not held: %+v", n, created)
	}
	return id
}

// approve approves a call, which must succeed.
func (p *party) approve(t *testing.T, g *gate, id string) {
	t.Helper()
	if decided := p.decide(g, id, "approve"); decided.status != 200 {
		t.Fatalf("not approved: %+v", decided)
	}
}

// later makes a request in the background, and returns a channel for the answer.
func later(ask func() answer) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- ask() }()
	return got
}

func handOver(t *testing.T, w *world, p *party) {
	a, b, c := w.gates[0], w.gates[1], w.gates[2]
	id := p.hold(t, a, 1, "quick")
	waits := []<-chan answer{
		later(func() answer { return p.about(c, "tasks/result", id) }),
		later(func() answer { return p.about(a, "tasks/result", id) }),
	}
	p.approve(t, b, id)
	for _, wait := range waits {
		if got := <-wait; !got.has(outcome(1, "quick")) {
			t.Errorf("tasks/result: %+v", got)
		}
	}
	for _, g := range w.gates {
		if got := p.about(g, "tasks/get", id); !got.has(`"status":"completed"`) {
			t.Errorf("tasks/get: %+v", got)
		}
		if got := p.decide(g, id, "approve"); got.status != 410 {
			t.Errorf("approved again: %+v", got)
		}
	}
}

// begin runs a call on the first gate, and returns once the tool runs.
func begin(t *testing.T, w *world, p *party, n int) string {
	t.Helper()
	id := p.hold(t, w.gates[0], n, "told")
	p.approve(t, w.gates[1], id)
	if got := p.about(w.gates[0], "tasks/get", id); !got.has(`"status":"working"`) {
		t.Fatalf("tasks/get: %+v", got)
	}
	select {
	case got := <-w.ledger.started:
		if got != n {
			t.Fatalf("call %d runs; want %d", got, n)
		}
	case <-time.After(patience):
		t.Fatal("the call did not run")
	}
	return id
}

// unknown waits until a gate reports that the outcome of a call is unknown.
func unknown(t *testing.T, p *party, g *gate, id string) {
	t.Helper()
	var got answer
	eventually(t, func() bool {
		got = p.about(g, "tasks/get", id)
		return got.has(`"status":"`) && !got.has(`"status":"working"`)
	})
	if !got.has(`"status":"failed"`) || !got.has("Outcome unknown") {
		t.Fatalf("tasks/get: %+v", got)
	}
}

// The executor is killed while the tool runs: the other gates report an unknown outcome, and
// never run the call again.
func killExecutor(t *testing.T, w *world, p *party) {
	id := begin(t, w, p, 2)
	w.gates[0].kill()
	unknown(t, p, w.gates[2], id)
	close(w.ledger.release)
	w.gates[0].start()
	for _, g := range w.gates {
		unknown(t, p, g, id)
		if got := p.about(g, "tasks/result", id); !got.has(`"error"`) {
			t.Errorf("tasks/result: %+v", got)
		}
		eventually(t, func() bool { return p.inbox(g).status == 200 }) // at a desk, another gate must take over first
		if got := p.decide(g, id, "approve"); got.status != 410 {
			t.Errorf("approved again: %+v", got)
		}
	}
}

// One gate cannot reach the database. It refuses requests that need the store, and forwards
// calls that need no approval. The other gates work normally, and the gate catches up
// afterwards.
func partition(t *testing.T, w *world, p *party) {
	a, b, c := w.gates[0], w.gates[1], w.gates[2]
	id := p.hold(t, b, 3, "quick")
	patient := *p
	patient.began = make(chan struct{})
	waiting := later(func() answer { return patient.about(a, "tasks/result", id) })
	<-patient.began
	w.links[0].Set(testenv.Partition())
	hasty := p.within(20 * time.Second)
	refused := []<-chan answer{
		later(func() answer { return hasty.decide(a, id, "approve") }),
		later(func() answer {
			return hasty.ask(a, "tools/call", `{"name":"hold_x","arguments":{"n":33,"as":"quick"},"task":{}}`)
		}),
		later(func() answer { return hasty.about(a, "tasks/get", id) }),
	}
	for i := range 20 {
		if got := p.ask(a, "tools/call", fmt.Sprintf(`{"name":"free_x","arguments":{"n":%d}}`, 300+i)); !got.has(outcome(300+i, "")) {
			t.Errorf("a call that needs no approval: %+v", got)
		}
	}
	for i, answers := range refused {
		if got := <-answers; !got.has("store_unavailable") {
			t.Errorf("request %d is not refused: %+v", i, got)
		}
	}
	if got := p.ready(a); got.status != 503 {
		t.Errorf("readiness: %+v", got)
	}
	for _, g := range []*gate{b, c} {
		if got := p.about(g, "tasks/get", id); !got.has(`"status":"working"`) || w.ledger.ran(3) != 0 {
			t.Errorf("at another gate: %+v; the call ran %d times", got, w.ledger.ran(3))
		}
	}
	p.approve(t, c, id)
	if got := p.about(b, "tasks/result", id); !got.has(outcome(3, "quick")) {
		t.Errorf("tasks/result: %+v", got)
	}

	w.links[0].Heal()
	got := <-waiting
	eventually(t, func() bool { return p.ready(a).status == 200 })
	if got.has("store_unavailable") { // the network failed before the gate had read the task
		got = p.about(a, "tasks/result", id)
	}
	if !got.has(outcome(3, "quick")) {
		t.Errorf("the waiting client got %+v", got)
	}
	p.hold(t, a, 34, "quick")
}

// The executor cannot reach the database while the tool runs, until long after its lease has
// expired. The other gates report an unknown outcome. When the executor can record its answer,
// the outcome stays unknown, and no gate runs the call again.
func silenceExecutor(t *testing.T, w *world, p *party, n int, fault testenv.Fault) {
	w.ledger.release = make(chan struct{})
	id := begin(t, w, p, n)
	w.links[0].Set(fault)
	unknown(t, p, w.gates[2], id)
	close(w.ledger.release) // the executor gets an answer, and tries to record it
	eventually(t, func() bool { return strings.Contains(w.gates[0].log.String(), `"answer not kept"`) })
	w.links[0].Heal()
	for _, g := range slices.Backward(w.gates) {
		unknown(t, p, g, id)
	}
	eventually(t, func() bool { return p.ready(w.gates[0]).status == 200 })
	p.hold(t, w.gates[0], 40+n, "quick") // all delayed writes have arrived by now
	unknown(t, p, w.gates[0], id)
}
