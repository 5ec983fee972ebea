package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An agent is a client that makes one call and continues until it knows the outcome: after a
// broken connection it tries again, at a gate that runs.
type agent struct {
	w    *world
	home int // the gate for its first request
	tool string
	arg  string
	id   int
}

const tasksExtension = `"extensions":{"io.modelcontextprotocol/tasks":{}}`

func (a *agent) params(more string) string {
	return `"params":{"name":"` + a.tool + `","arguments":{"x":"` + a.arg + `"}` + more + `}`
}

func modernMeta(capabilities string) string {
	return `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{` + capabilities + `}}`
}

// legacy sends a request of 2025-11-25.
func (a *agent) legacy(ctx context.Context, method, params string) answer {
	h := a.header("2025-11-25")
	h.Set("Mcp-Session-Id", "s-1")
	return a.post(ctx, h, method, params)
}

// modern sends a request of 2026-07-28 about the named tool or task.
func (a *agent) modern(ctx context.Context, method, name, params string) answer {
	h := a.header("2026-07-28")
	h.Set("Mcp-Method", method)
	h.Set("Mcp-Name", name)
	return a.post(ctx, h, method, params)
}

func (a *agent) header(version string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("Authorization", "Bearer agent")
	h.Set("MCP-Protocol-Version", version)
	return h
}

func (a *agent) post(ctx context.Context, h http.Header, method, params string) answer {
	a.id++
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,%s}`, a.id, method, params)
	return a.send(ctx, h, method, message)
}

func (a *agent) send(ctx context.Context, h http.Header, method, message string) answer {
	p := a.w.alive(a.home)
	a.w.tell("the agent asks %s for %s", p, method)
	before := a.w.outcomes.stored()
	got := p.send(ctx, h, message)
	a.w.outcomes.answered(a, message, before, got)
	if got.err != nil {
		a.w.tell("the agent's connection breaks: %v", got.err)
	} else {
		a.w.tell("the agent gets %d %s", got.status, short(got.text()))
	}
	return got
}

func short(text string) string {
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return text
}

// A fate is the outcome of a call as the client knows it.
type fate string

const (
	open        fate = ""    // nothing final
	ran         fate = "ran" // the client got the result
	notRun      fate = "did not run"
	unsure      fate = "may have run"
	uncollected fate = "ran, and its result is gone"
	missing     fate = "is unknown to the gate"
)

// fateIn returns the fate according to an answer.
func fateIn(text string) fate {
	switch {
	case strings.Contains(text, `"text":"done `):
		return ran
	case strings.Contains(text, "may have run"):
		return unsure
	case strings.Contains(text, "It ran, but its result was not fetched in time.") || strings.Contains(text, "Interrupted while it ran."):
		return uncollected
	case strings.Contains(text, "approval_pending") || strings.Contains(text, "store_unavailable") || strings.Contains(text, "shutting_down"):
		return open
	case strings.Contains(text, "did not run"):
		return notRun
	case strings.Contains(text, "task_not_found"):
		return missing
	}
	return open
}

// patiently repeats a step until it returns the outcome of the call.
func (a *agent) patiently(step func() fate) {
	a.w.outcomes.wanted(a.arg)
	for pause := 2 * time.Second; ; pause = min(2*pause, 16*time.Second) {
		if f := step(); f != open {
			a.w.outcomes.told(a.arg, f)
			return
		}
		if a.w.sleep(pause) != nil {
			return
		}
	}
}

// holds makes the call without a task, and waits in the request.
func (a *agent) holds() {
	a.patiently(func() fate {
		got := a.legacy(a.w.ctx, "tools/call", a.params(""))
		return fateOf(got)
	})
}

func fateOf(got answer) fate {
	if got.err != nil {
		return open
	}
	return fateIn(got.text())
}

// rounds makes the call as a modern client without tasks, which repeats the call with the
// returned state.
func (a *agent) rounds(capabilities string) {
	state := ""
	a.patiently(func() fate {
		got := a.modern(a.w.ctx, "tools/call", a.tool, a.params(state+modernMeta(capabilities)))
		if got.err != nil {
			return open
		}
		if next, ok := cutOut(got.text(), `"requestState":"`); ok {
			state = `,"requestState":"` + next + `"`
			if strings.Contains(got.text(), "elicitation/create") {
				key := "q"
				state += `,"inputResponses":{"` + key + `":{"action":"accept","content":{}}}`
			}
			return open
		}
		state = ""
		return fateOf(got)
	})
}

// tasks makes the call as a legacy task, polls it until it has ended, and fetches the result.
func (a *agent) tasks() { a.asTask(func(context.Context) bool { return true }) }

// asTask is like tasks. It calls between when the task has been created; between reports
// whether to go on polling.
func (a *agent) asTask(between func(context.Context) bool) {
	id := ""
	a.patiently(func() fate {
		if id == "" {
			got := a.legacy(a.w.ctx, "tools/call", a.params(`,"task":{}`))
			if got.err != nil {
				return open
			}
			id, _ = cutOut(got.text(), `"taskId":"`)
			if id == "" {
				return fateOf(got)
			}
			if !between(a.w.ctx) {
				return missing
			}
		}
		got := a.legacy(a.w.ctx, "tasks/get", `"params":{"taskId":"`+id+`"}`)
		if got.err != nil || strings.Contains(got.text(), `"status":"working"`) {
			return open
		}
		if f := fateOf(got); f == missing {
			return f
		}
		if !strings.Contains(got.text(), `"status":"`) {
			return open
		}
		if strings.Contains(got.text(), `"status":"cancelled"`) {
			return missing
		}
		got = a.legacy(a.w.ctx, "tasks/result", `"params":{"taskId":"`+id+`"}`)
		return fateOf(got)
	})
}

// modernTasks makes the call as a modern task.
func (a *agent) modernTasks() {
	id := ""
	a.patiently(func() fate {
		if id == "" {
			got := a.modern(a.w.ctx, "tools/call", a.tool, a.params(modernMeta(tasksExtension)))
			if got.err != nil {
				return open
			}
			if id, _ = cutOut(got.text(), `"taskId":"`); id == "" {
				return fateOf(got)
			}
		}
		got := a.modern(a.w.ctx, "tasks/get", id, `"params":{"taskId":"`+id+`"`+modernMeta(tasksExtension)+`}`)
		if got.err != nil || strings.Contains(got.text(), `"status":"working"`) {
			return open
		}
		if strings.Contains(got.text(), `"status":"input_required"`) {
			a.modern(a.w.ctx, "tasks/update", id, `"params":{"taskId":"`+id+`","inputResponses":{"q":{"action":"accept","content":{}}}`+modernMeta(tasksExtension)+`}`)
			return open
		}
		return fateOf(got)
	})
}

// cutOut returns the text between a prefix and the next quotation mark.
func cutOut(text, prefix string) (string, bool) {
	_, rest, ok := strings.Cut(text, prefix)
	value, _, _ := strings.Cut(rest, `"`)
	return value, ok
}

// grantUses is the number of calls that a standing approval covers.
const grantUses = 1

// An approver decides on all pending calls, at one of the gates.
type approver struct {
	w        *world
	name     string
	home     int
	decision approval.Decision
	delay    time.Duration // before the first look
	gives    bool          // gives a standing approval with an approval
	misreads bool          // sends another digest than the shown one
	reads    func() ([]review.Approval, error)
}

// work polls for pending calls until the world ends.
func (a *approver) work() {
	if a.w.sleep(a.delay) != nil {
		return
	}
	for pause := 3 * time.Second; ; pause = min(2*pause, 12*time.Second) {
		list, err := a.pending()
		if err == nil {
			for _, one := range list {
				a.decide(one)
			}
		}
		if a.w.sleep(pause) != nil {
			return
		}
	}
}

func (a *approver) pending() ([]review.Approval, error) {
	if a.reads != nil {
		return a.reads()
	}
	return a.w.alive(a.home).pending()
}

func (a *approver) decide(one review.Approval) {
	p := a.w.alive(a.home)
	shown, err := p.show(one.ID)
	if err != nil {
		return
	}
	ruling := approval.Ruling{Decision: a.decision, Shown: shown.ShownDigest}
	if a.misreads {
		ruling.Shown = strings.Repeat("0", len(shown.ShownDigest))
	}
	if a.gives {
		ruling.Gives = &gatetask.GrantTerms{Until: a.w.start.Add(time.Hour), Uses: grantUses}
	}
	if !a.misreads {
		a.w.outcomes.decides(one.ID, a.decision)
	}
	name := cmp.Or(a.name, "alice")
	err = p.decide(name, one.ID, ruling)
	a.w.tell("%s decides at %s: %s, %v", name, p, a.decision, err)
	var given *approval.GrantFailedError
	if err == nil || errors.As(err, &given) {
		a.w.outcomes.decided(one.ID, a.decision)
	}
}
