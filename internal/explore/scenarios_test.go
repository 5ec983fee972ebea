package explore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A scenario is one course of a held call.
type scenario struct {
	settings settings
	begin    func(w *world)
	want     fate   // of the call "a" without faults
	reaches  string // a call that is a part of the course
}

// scenarios are all scenarios, by name.
var scenarios = map[string]scenario{
	"held-task":     {want: ran, begin: func(w *world) { w.approves(approval.Approve, 3*time.Second); w.agent("hold_x").asTasks() }},
	"held-request":  {want: ran, begin: func(w *world) { w.approves(approval.Approve, 3*time.Second); w.agent("hold_x").inRequests() }},
	"attach":        {want: ran, begin: func(w *world) { w.approves(approval.Approve, holding+5*time.Second); w.agent("hold_x").inRequests() }},
	"large-answer":  {want: ran, begin: func(w *world) { w.approves(approval.Approve, 3*time.Second); w.agent("hold_large").asTasks() }},
	"modern-task":   {want: ran, begin: func(w *world) { w.approves(approval.Approve, 3*time.Second); w.agent("hold_x").asModernTasks() }},
	"modern-rounds": {want: ran, settings: settings{several: true}, begin: func(w *world) { w.approves(approval.Approve, holding+5*time.Second); w.agent("hold_x").inRounds("") }},
	"asked-by-upstream": {want: ran, settings: settings{several: true}, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		w.agent("hold_asks").inRounds(`"elicitation":{}`)
	}},
	"nested-legacy": {want: ran, begin: func(w *world) { w.approves(approval.Approve, 3*time.Second); w.agent("hold_nested").asTasks() }},
	"several-tasks": {want: ran, settings: settings{several: true}, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		w.agent("hold_x").asModernTasks()
	}},
	"nested-modern": {want: ran, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		w.agent("hold_nested").asModernTasks()
	}},
	"rejected":      {want: notRun, begin: func(w *world) { w.approves(approval.Reject, 3*time.Second); w.agent("hold_x").asTasks() }},
	"rejected-held": {want: notRun, begin: func(w *world) { w.approves(approval.Reject, 3*time.Second); w.agent("hold_x").inRequests() }},
	"expired":       {want: notRun, begin: func(w *world) { w.agent("hold_x").asTasks() }},
	"misread": {want: notRun, begin: func(w *world) {
		a := &approver{w: w, home: 1, decision: approval.Approve, delay: 3 * time.Second, misreads: true}
		w.act(false, a.work)
		w.agent("hold_x").asTasks()
	}},
	"abandoned": {want: open, begin: func(w *world) {
		w.approves(approval.Approve, 15*time.Second)
		a := w.agent("hold_x")
		w.act(true, func() {
			ctx, leave := context.WithTimeout(w.ctx, 2*time.Second/w.pace)
			defer leave()
			a.legacy(ctx, "tools/call", a.params(""))
			_ = w.sleep(60 * time.Second)
			if len(w.server.runs()) > 0 {
				w.outcomes.told("a", "ran for an agent that had left")
			}
		})
	}},
	"withdrawn": {want: missing, begin: func(w *world) { cancelsAfter(w, "hold_x", 2*time.Second) }},
	"cancelled": {want: missing, begin: cancels},
	"cancelled-approved": {want: missing, begin: func(w *world) {
		w.approves(approval.Approve, 12*time.Second) // the agent is away by then
		cancelsAfter(w, "hold_x", 16*time.Second)
	}},
	"cancelled-nested":  {want: missing, reaches: "upstream.tasks/cancel", begin: func(w *world) { cancelsRunning(w, "hold_nested") }},
	"cancelled-running": {want: missing, reaches: "upstream.notifications/cancelled", begin: func(w *world) { cancelsRunning(w, "hold_slow") }},
	"whole-batch":       {want: ran, begin: batches},
	"standing":          {want: ran, begin: func(w *world) { standing(w, (*agent).holds) }},
	"several-standing":  {want: ran, settings: settings{several: true}, begin: func(w *world) { standing(w, func(a *agent) { a.rounds("") }) }},
	"policy-changed": {want: notRun, begin: func(w *world) {
		w.approves(approval.Approve, 15*time.Second) // the agent is away by then
		w.away(func(*agent) { w.outcomes.deny(); w.reload() })
	}},
	"tool-changed": {want: notRun, begin: func(w *world) {
		w.approves(approval.Approve, 15*time.Second) // the agent is away by then
		w.away(func(a *agent) {
			w.server.redefine()
			a.legacy(w.ctx, "tools/list", `"params":{}`)
		})
	}},
	"approval-too-old": {want: notRun, settings: settings{validity: 5 * time.Second}, begin: func(w *world) {
		w.approves(approval.Approve, 15*time.Second) // the agent is away by then
		w.away(func(*agent) {})
	}},
	"altered": {want: notRun, begin: func(w *world) {
		w.approves(approval.Approve, 15*time.Second) // the agent is away by then
		w.away(func(*agent) { w.alter() })
	}},
	"two-approvers": {want: ran, settings: settings{quorum: 2}, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		second := &approver{w: w, name: "bob", decision: approval.Approve, delay: 9 * time.Second}
		w.act(false, second.work)
		w.agent("hold_x").inRequests()
	}},
	"alone": {want: ran, settings: settings{alone: true, start: approval.StartOnApproval}, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		w.away(func(*agent) { _ = w.sleep(20 * time.Second) }) // the agent does not wake the gate
	}},
	"policies-differ": {want: notRun, settings: settings{start: approval.StartOnApproval}, begin: func(w *world) {
		w.outcomes.want = missing // with a fault, the gate that allows the call may be the first
		w.approves(approval.Approve, 3*time.Second)
		w.later(2*time.Second, func() { w.current()[1].(*process).configure(true) })
		w.agent("hold_slow").asTasks()
	}},
	"session-gone": {want: ran, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		a := w.agent("hold_x")
		w.act(true, func() {
			w.server.forget()
			a.holds() // approved, but the upstream refuses the session
			a.holds() // runs without another approval
			a.holds() // needs a new approval
		})
	}},
	"reload": {want: ran, begin: func(w *world) {
		w.approves(approval.Approve, 4*time.Second)
		w.later(2*time.Second, w.reload)
		w.later(5*time.Second, w.reload)
		w.agent("hold_x").inRequests()
	}},
	"shutdown": {want: ran, begin: func(w *world) {
		w.approves(approval.Approve, 4*time.Second)
		w.later(3*time.Second, func() { w.alive(0).shutdown() })
		w.agent("hold_x").inRequests()
	}},
	"shutdown-task": {want: ran, begin: func(w *world) {
		w.approves(approval.Approve, 3*time.Second)
		w.later(3*time.Second, func() { w.alive(0).shutdown() })
		w.agent("hold_x").asTasks()
	}},
	"channel": {want: ran, settings: settings{channel: true}, begin: func(w *world) {
		a := &approver{w: w, home: 1, decision: approval.Approve, delay: time.Second}
		a.reads = func() ([]review.Approval, error) { return w.channel.pending(), nil }
		w.act(false, a.work)
		w.agent("hold_x").inRequests()
		w.act(true, func() { // until the chat shows the call as ended
			for !w.channel.closed() && w.sleep(time.Second) == nil && time.Since(w.start) < patience {
			}
		})
	}},
}

// agent returns an agent at the first gate with the call "a".
func (w *world) agent(tool string) *agent { return &agent{w: w, tool: tool, arg: "a"} }

func (a *agent) asTasks()                { a.w.act(true, a.tasks) }
func (a *agent) inRequests()             { a.w.act(true, a.holds) }
func (a *agent) asModernTasks()          { a.w.act(true, a.modernTasks) }
func (a *agent) inRounds(capable string) { a.w.act(true, func() { a.rounds(capable) }) }

// approves starts an approver at the second gate.
func (w *world) approves(d approval.Decision, delay time.Duration) {
	a := &approver{w: w, home: 1, decision: d, delay: delay}
	w.act(false, a.work)
}

// later calls a function after a while.
func (w *world) later(d time.Duration, f func()) {
	w.act(true, func() {
		if w.sleep(d) == nil {
			f()
		}
	})
}

// reload applies the policy again on all gates.
func (w *world) reload() {
	w.tell("the policy is read again")
	for _, g := range w.current() {
		if p, ok := g.(*process); ok {
			p.configure(w.outcomes.denies())
		} else {
			w.t.Error("the policy of a real gate cannot be changed here")
		}
	}
}

// configure applies a policy that may deny all calls.
func (p *process) configure(denies bool) {
	p.gate.Configure(&catalog.Settings{Policy: p.w.policyNow(denies), Upstreams: []string{"test", "other"}})
}

// alter changes the calls in the store.
func (w *world) alter() {
	page, err := w.store.List(w.ctx, task.Query{Scope: task.AnyOwner(), Limit: 10})
	for _, one := range page.Tasks {
		t, getErr := w.store.Get(w.ctx, task.AnyOwner().Ref(one.ID))
		t.Call.Message = strings.Replace(t.Call.Message, `"x":"a"`, `"x":"b"`, 1)
		t.Version++
		err = errors.Join(err, getErr, w.store.Swap(w.ctx, t))
	}
	if err != nil {
		w.t.Error(err)
	}
}

// away makes a call as a task, and polls it again only after the call was approved and a
// function was called.
func (w *world) away(meanwhile func(*agent)) {
	a := w.agent("hold_x")
	w.act(true, func() {
		a.asTask(func(context.Context) bool {
			if w.sleep(25*time.Second) != nil { // the client has left
				return false
			}
			meanwhile(a)
			return true
		})
	})
}

// cancels makes a call as a task, and cancels it while approvers decide.
func cancels(w *world) {
	w.approves(approval.Approve, 4*time.Second)
	cancelsAfter(w, "hold_x", 4*time.Second)
}

// cancelsRunning makes a call as a task, and cancels it while it runs.
func cancelsRunning(w *world, tool string) {
	w.approves(approval.Approve, time.Second)
	cancelsAfter(w, tool, 3*time.Second)
}

func cancelsAfter(w *world, tool string, after time.Duration) {
	a := w.agent(tool)
	w.act(true, func() {
		id := ""
		a.patiently(func() fate {
			if id == "" {
				got := a.legacy(w.ctx, "tools/call", a.params(`,"task":{}`))
				if id, _ = cutOut(got.text(), `"taskId":"`); id == "" || got.err != nil {
					id = ""
					return fateOf(got)
				}
				_ = w.sleep(after)
			}
			got := a.legacy(w.ctx, "tasks/cancel", `"params":{"taskId":"`+id+`"}`)
			switch {
			case got.err != nil:
				return open
			case strings.Contains(got.text(), `"status":"cancelled"`):
				w.outcomes.cancelled()
				return missing
			case strings.Contains(got.text(), "-32602"): // the task has ended, or was deleted
				return missing
			}
			return open
		})
		_ = w.sleep(10 * time.Second) // until the upstream has the cancellation
	})
}

// batches makes two calls in a batch as an agent of 2025-03-26.
func batches(w *world) {
	w.approves(approval.Approve, 3*time.Second)
	a := w.agent("hold_x")
	b := &agent{w: w, tool: "hold_x", arg: "b"}
	w.act(true, func() {
		a.patiently(func() fate {
			h := a.header("2025-03-26")
			h.Set("Mcp-Session-Id", "s-1")
			message := fmt.Sprintf(`[{"jsonrpc":"2.0","id":1,"method":"tools/call",%s},{"jsonrpc":"2.0","id":2,"method":"tools/call",%s}]`, a.params(""), b.params(""))
			return fateOf(a.send(w.ctx, h, "batch", message))
		})
	})
}

// standing makes a call that gets a standing approval, and then repeats the call.
func standing(w *world, call func(*agent)) {
	who := &approver{w: w, home: 1, decision: approval.Approve, delay: 3 * time.Second, gives: true}
	w.act(false, who.work)
	a := w.agent("hold_x")
	w.act(true, func() {
		call(a) // approved with a standing approval
		call(a) // runs with the standing approval
		call(a) // needs a new approval
	})
}
