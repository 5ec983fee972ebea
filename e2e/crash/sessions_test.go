package crash_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestSessionWorksOnEveryReplica sends each request of a legacy session to another replica, as
// a load balancer may. The session belongs to the upstream, and the gate's record of it is in
// the store. docs/operations.md lists the exceptions.
func TestSessionWorksOnEveryReplica(t *testing.T) {
	over(t, func(t *testing.T, w *world) {
		w.t = t
		w.share()
		t.Run("tasks", func(t *testing.T) { shareTasks(t, w) })
		t.Run("retry", func(t *testing.T) { retryElsewhere(t, w) })
		t.Run("resume", func(t *testing.T) { resumeElsewhere(t, w) })
		t.Run("cancel", func(t *testing.T) { cancelElsewhere(t, w) })
	})
}

// share starts gates with the same settings, like replicas, so that each accepts what another
// gives to a client.
func (w *world) share() {
	w.t.Helper()
	for i := range w.gates {
		w.gates[i].kill()
		w.gates[i] = startGate(w.t, w.ledger.url, withStore(w.db.URL()))
	}
}

// A task can be listed, read and cancelled at every replica, and belongs to its client on all
// of them.
func shareTasks(t *testing.T, w *world) {
	a, b, c := w.gates[0], w.gates[1], w.gates[2]
	p, stranger := newParty(t, "s-tasks"), newParty(t, "s-stranger")
	const many = 25 // more than fit on a page
	var ids []string
	for n := range many {
		ids = append(ids, p.hold(t, w.gates[n%3], 100+n, "quick"))
	}
	first := p.ask(a, "tasks/list", "{}")
	second := p.ask(b, "tasks/list", `{"cursor":"`+first.after(`"nextCursor":"`)+`"}`)
	for _, id := range ids {
		if first.has(id) == second.has(id) {
			t.Errorf("task %s is not on one of two pages", id)
		}
	}
	if got := p.about(c, "tasks/get", ids[0]); !got.has(`"status":"working"`) {
		t.Errorf("tasks/get: %+v", got)
	}
	if got := p.about(b, "tasks/cancel", ids[0]); !got.has(`"status":"cancelled"`) {
		t.Errorf("tasks/cancel: %+v", got)
	}
	if got := p.about(a, "tasks/get", ids[0]); !got.has(`"status":"cancelled"`) {
		t.Errorf("tasks/get: %+v", got)
	}
	p.approve(t, c, ids[1])
	if got := p.about(b, "tasks/result", ids[1]); !got.has(outcome(101, "quick")) {
		t.Errorf("tasks/result: %+v", got)
	}
	if got := stranger.about(b, "tasks/get", ids[1]); !got.has("-32602") {
		t.Errorf("another session: %+v", got)
	}
}

// waiting is a held request, whose answer has begun but not ended.
type waiting struct {
	events *bufio.Scanner
	leave  context.CancelFunc
}

// wait sends a request as a client of 2025-11-25, and returns once it is held.
func (p *party) wait(t *testing.T, g *gate, method, body, lastEvent string) waiting {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), patience)
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.agents+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Session-Id": p.session, "Mcp-Protocol-Version": "2025-11-25", "Last-Event-ID": lastEvent,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, data)
	}
	return waiting{bufio.NewScanner(resp.Body), leave}
}

// until reads up to a line with a prefix, and returns the rest of the line.
func (w waiting) until(t *testing.T, prefix string) string {
	t.Helper()
	for w.events.Scan() {
		if rest, ok := strings.CutPrefix(w.events.Text(), prefix); ok {
			return rest
		}
	}
	t.Fatalf("the answer ended without %q: %v", prefix, w.events.Err())
	return ""
}

func held(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_y","arguments":{"n":%d,"as":"quick"}}}`, n)
}

// theOnly returns the id of the only pending call with a number.
func (p *party) theOnly(t *testing.T, g *gate, n int) string {
	t.Helper()
	inbox := p.inbox(g)
	if strings.Count(inbox.body, fmt.Sprintf(`"n":%d,`, n)) != 1 {
		t.Fatalf("call %d is not listed exactly once: %s", n, inbox.body)
	}
	before, _, _ := strings.Cut(inbox.body, fmt.Sprintf(`"n":%d,`, n))
	return answer{body: before[strings.LastIndex(before, `"id":"`):]}.after(`"id":"`)
}

// A client without tasks loses its request, and makes the call again at another replica: it
// gets the same task.
func retryElsewhere(t *testing.T, w *world) {
	p := newParty(t, "s-retry")
	first := p.wait(t, w.gates[0], http.MethodPost, held(201), "")
	id := p.theOnly(t, w.gates[1], 201)
	first.leave()
	second := p.wait(t, w.gates[1], http.MethodPost, held(201), "")
	if again := p.theOnly(t, w.gates[2], 201); again != id {
		t.Errorf("the second try is %s, the first was %s", again, id)
	}
	p.approve(t, w.gates[2], id)
	second.until(t, `data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`+outcome(201, "quick"))
	if ran := w.ledger.ran(201); ran != 1 {
		t.Errorf("the call ran %d times", ran)
	}
}

// A client that can resume a stream does so at another replica.
func resumeElsewhere(t *testing.T, w *world) {
	p := newParty(t, "s-resume")
	first := p.wait(t, w.gates[0], http.MethodPost, held(202), "")
	place := first.until(t, "id: ")
	id := p.theOnly(t, w.gates[1], 202)
	first.leave()
	second := p.wait(t, w.gates[1], http.MethodGet, "", place)
	p.approve(t, w.gates[2], id)
	second.until(t, `data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`+outcome(202, "quick"))
}

// A client that cancels its request at another replica cancels the call. Another client with a
// request of the same id does not.
func cancelElsewhere(t *testing.T, w *world) {
	p, stranger := newParty(t, "s-cancel"), newParty(t, "s-stranger")
	p.wait(t, w.gates[0], http.MethodPost, held(203), "")
	id := p.theOnly(t, w.gates[1], 203)
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	stranger.post("http://"+w.gates[1].agents+"/mcp", cancelled)
	if got := p.theOnly(t, w.gates[1], 203); got != id {
		t.Errorf("the call is %s", got)
	}
	p.post("http://"+w.gates[1].agents+"/mcp", cancelled)
	eventually(t, func() bool { return !p.inbox(w.gates[1]).has(id) })
	if ran := w.ledger.ran(203); ran != 0 {
		t.Errorf("the call ran %d times", ran)
	}
}

// The upstream is restarted between the approval of a call and its run, and then the gates are
// killed. The client gets the instruction to initialize again at any replica, and the call
// runs once with the earlier approval.
func TestUpstreamRestartsBetweenHoldAndRun(t *testing.T) {
	over(t, func(t *testing.T, w *world) {
		w.t = t
		for i := range w.gates {
			w.gates[i].kill()
			w.gates[i] = startGate(t, w.ledger.url, withStore(w.db.URL())+"\nidentity: {anonymous: true, proxy: {from: [127.0.0.1/32], header: X-User}}")
		}
		a, b, c := w.gates[0], w.gates[1], w.gates[2]
		p, stranger := newParty(t, ""), newParty(t, "")
		p.user, stranger.user = "ann", "bob"
		const initialize = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
		begin := func(g *gate) {
			t.Helper()
			p.session = ""
			if got := p.ask(g, "initialize", initialize); got.status != http.StatusOK {
				t.Fatalf("initialize: %+v", got)
			}
			p.session = "begun-" + w.ledger.key()
		}
		begin(a)
		for n := 300; n < 303; n++ {
			id := p.hold(t, b, n, "quick")
			stranger.session = p.session
			if got := stranger.about(c, "tasks/get", id); got.status != http.StatusNotFound {
				t.Errorf("another client in the session: %+v", got)
			}
			w.ledger.restart()
			p.approve(t, c, id)
			// The gate that begins the call refuses the session. Another gate may still show
			// the task.
			eventually(t, func() bool {
				got := p.about(a, "tasks/get", id)
				return got.status == http.StatusNotFound || got.has(`"status":"failed"`)
			})
			eventually(t, func() bool {
				return p.send(http.MethodGet, "http://"+b.operators+"/api/approvals/"+id, "").has(`"session_gone"`)
			})
			for _, g := range w.gates {
				g.kill()
				g.start()
			}
			if got := p.ask(b, "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d,"as":"quick"},"task":{}}`, n)); got.status != http.StatusNotFound {
				t.Errorf("after the gates were killed, in the session that has ended: %+v", got)
			}
			begin(c)
			if got := p.about(a, "tasks/get", id); !got.has(`"status":"failed"`) || !got.has("did not run") {
				t.Errorf("tasks/get: %+v", got)
			}
			again := p.hold(t, b, n, "quick")
			if got := p.about(a, "tasks/result", again); !got.has(outcome(n, "quick")) {
				t.Errorf("tasks/result: %+v", got)
			}
			if inbox := p.inbox(a); inbox.has(again) || w.ledger.ran(n) != 1 {
				t.Errorf("the call ran %d times; pending: %+v", w.ledger.ran(n), inbox)
			}
		}
	})
}
