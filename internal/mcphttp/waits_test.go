package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// waitingFixture starts a gate with the given waiting settings.
func waitingFixture(t *testing.T, adjust func(*conversation.Waiting)) *fixture {
	t.Helper()
	return newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) {
		w.Page = func(id task.ID) string { return "https://desk.example/approvals/" + string(id) }
		adjust(w)
	})
}

// meetAs announces a host in the session of the tests.
func (h *fixture) meetAs(host string) { h.meetIn("s-1", host) }

// meetIn announces a host in a session.
func (h *fixture) meetIn(session, host string) {
	h.catalog.LearnHandshake(h.t.Context(), catalog.Client{Upstream: "test", Key: catalog.ClientKey(policy.Principal{Anonymous: true}, session, "")},
		catalog.Handshake{Session: policy.Session{Client: host, Protocol: "2025-11-25"}})
}

// A legacy client's model reads every outcome of a tool call: denial with its reason, rejection
// with its comment, expiry, cancellation, and the limit on pending calls. A setting selects
// errors as the seeds have them.
func TestOutcomesAreToolResults(t *testing.T) {
	for _, tt := range []struct {
		name, tool string
		end        func(h *fixture, id task.ID)
		text, code string
	}{
		{"denied", "drop", nil, "Denied by policy: the default denies it. It did not run.", "-32003"},
		{"rejected", "hold_x", func(h *fixture, id task.ID) { h.reject(id, "not today") }, `not today\". The tool did not run.`, "-32007"},
		{"expired", "hold_x", func(h *fixture, id task.ID) { h.expire(id) }, "Nobody decided in time. The tool did not run.", "-32008"},
		{"cancelled", "hold_x", func(h *fixture, id task.ID) { h.cancelTask(id) }, "Cancelled by the requestor. The tool did not run.", "-32602"},
	} {
		for _, literal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/literal %v", tt.name, literal), func(t *testing.T) {
				h := waitingFixture(t, func(w *conversation.Waiting) { w.Errors = literal })
				r := h.send(toolCall("7", tt.tool, ""))
				if tt.end != nil {
					tt.end(h, h.pending(1)[0])
				}
				answer := r.wait(t)
				if literal {
					wantText(t, "error", answer, `"id":7,"error":{"code":`+tt.code, tt.text)
					return
				}
				wantText(t, "result", answer, `"id":7,"result":{"content":[{"type":"text","text":"`, tt.text, `"isError":true`,
					`"thoughtgate/error":{"code":`+tt.code+`,"error_type":"`, `"correlation_id":"`)
			})
		}
	}
}

func TestTooManyPendingIsToolResult(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) { c.Limits.PerOwner = 1 })
	first := h.send(toolCall("1", "hold_x", ""))
	h.pending(1)
	wantText(t, "one too many", h.ask(toolCall("2", "hold_y", "")), `"id":2,"result":{`, "Too many calls are pending. This one did not run.", `"code":-32009`)
	first.cancel()
}

func (h *fixture) expire(id task.ID) {
	h.t.Helper()
	t, err := h.store.Get(context.Background(), task.AnyOwner().Ref(id))
	if err == nil {
		_, err = lifecycle.Advance(h.t.Context(), h.store, task.OwnedBy(t.Owner).Ref(id), lifecycle.Expire{By: "test"}, t.ExpiresAt)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *fixture) cancelTask(id task.ID) {
	h.t.Helper()
	h.ask(legacyAbout("tasks/cancel", string(id)))
}

// The client of an ended call gets the answer once when it resumes, without a new event ID.
// Then it is refused, because some clients reconnect every second forever.
func TestEndedCallIsResumedOnce(t *testing.T) {
	h := waitingFixture(t, func(*conversation.Waiting) {})
	place, leave := h.beginResumable("7")
	leave()
	h.reject(h.pending(1)[0], "no")
	back := h.resume(place)
	wantText(t, "resumed", back.wait(t), `"id":7,"result":{`, "Rejected by an approver")
	if strings.Contains(back.body, "id: tg1.") {
		t.Errorf("the answer has an event ID: %q", back.body)
	}
	for range 3 {
		again := h.resume(place)
		if again.wait(t); again.status != http.StatusMethodNotAllowed {
			t.Errorf("resumed again: %d %s; want 405", again.status, again.body)
		}
	}
}

// beginResumable makes a held call, and returns its event ID and a function that disconnects.
func (h *fixture) beginResumable(id string) (place string, leave func()) {
	h.t.Helper()
	resp := h.begin(h.t, toolCall(id, "hold_x", ""), "Mcp-Session-Id", "s-1", "MCP-Protocol-Version", "2025-11-25")
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if place, found := strings.CutPrefix(lines.Text(), "id: "); found {
			return place, func() { resp.Body.Close() }
		}
	}
	h.t.Fatal("the stream cannot be resumed")
	return "", nil
}

// resume resumes a stream.
func (h *fixture) resume(place string) *request {
	return h.sendAs(http.MethodGet, "", "Last-Event-Id", place, "MCP-Protocol-Version", "2025-11-25", "Content-Type", "")
}

// Several requests that wait for one call each get their answer when they resume, even if the
// stream breaks during the answer.
func TestEachRequestIsResumed(t *testing.T) {
	h := waitingFixture(t, func(*conversation.Waiting) {})
	large := strings.Repeat("x", 32<<20) // more than connections hold
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, textResult(id, large+"end"))
	}
	lost, leave := h.beginResumable("7")
	leave()
	also, leave := h.beginResumable("8")
	leave()
	waits := h.send(toolCall("9", "hold_x", ""))
	h.approve(h.pending(1)[0])
	wantText(t, "the one that waited", waits.wait(t)[:200], `"id":9`)
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Accept": asEvents, "Mcp-Session-Id": "s-1", "Last-Event-Id": lost, "MCP-Protocol-Version": "2025-11-25"} {
			r.Header.Set(name, value)
		}
		resp, err := h.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := resp.Body.Read(make([]byte, 10)); n == 0 || resp.StatusCode != http.StatusOK {
			t.Fatalf("resumed: %s, %v", resp.Status, err)
		}
		resp.Body.Close()
		eventually(t, "the gate has noticed that the stream broke", func() bool { return h.handler.Used()["requests"]+h.handler.Used()["waiting"] == 0 })
	}
	for id, place := range map[string]string{"7": lost, "8": also} {
		back := h.resume(place)
		if back.wait(t); back.status != http.StatusOK || !strings.Contains(back.body, `"id":`+id) || !strings.Contains(back.body, "xend") {
			t.Errorf("request %s: %d %.200s", id, back.status, back.body)
		}
		if back = h.resume(place); back.wait(t) != "" && back.status != http.StatusMethodNotAllowed {
			t.Errorf("request %s, resumed again: %d %.200s; want 405", id, back.status, back.body)
		}
	}
}

// A known host waits almost as long as its own limit. Other clients wait briefly, or longer if
// they show progress.
func TestHostsWaitAsLongAsKnown(t *testing.T) {
	const token = `,"_meta":{"progressToken":1}`
	for _, tt := range []struct {
		name, host, more string
		waits            bool // longer than the test
	}{
		{"unknown", "nobody", "", false},
		{"unknown, with progress", "nobody", token, true},
		{"built in, no limit", "claude-code", "", true},
		{"built in, through a bridge", "opencode (via mcp-remote 0.15.1)", "", true},
		{"built in, a minute", "@cline/core", token, true},
		{"configured", "hasty-7", token, false},
		{"configured instead of built in", "codex-mcp-client", token, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := waitingFixture(t, func(w *conversation.Waiting) {
				w.Hold, w.HoldWithProgress, w.HoldUnlimited = 10*time.Millisecond, time.Hour, time.Hour
				w.Hosts = []conversation.Host{{Name: "hasty-*", Limit: 20 * time.Millisecond}, {Name: "codex-mcp-client", Limit: 20 * time.Millisecond}}
			})
			h.meetAs(tt.host)
			r := h.send(toolCall("7", "hold_x", tt.more))
			id := h.pending(1)[0]
			if !tt.waits {
				wantText(t, "pending", r.wait(t), "has not run")
				return
			}
			select {
			case <-r.done:
				t.Fatalf("answered at once: %s", r.body)
			case <-time.After(200 * time.Millisecond): // much longer than the others are held
			}
			h.approve(id)
			wantText(t, "approved", r.wait(t), "done hold_x")
		})
	}
}

// After a host's timeout the same call attaches. If the user stops the call, it is withdrawn
// and gets no answer. The journal records which of the two it was.
func TestHostTimeoutKeepsCall(t *testing.T) {
	for _, tt := range []struct {
		name, host, reason string
		withdrawn          bool
		journal            string
	}{
		{"TypeScript SDK", "nobody", "McpError: MCP error -32001: Request timed out", false, "left"},
		{"at the limit of the host", "codex-mcp-client", "MCP response future dropped", false, "left"},
		{"Esc", "nobody", "AbortError: user-cancel", true, "cancelled"},
		{"Esc before the limit", "gemini-cli-mcp-client", "MCP response future dropped", true, "cancelled"},
		{"no reason", "nobody", "", true, "cancelled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := waitingFixture(t, func(w *conversation.Waiting) {
				w.HoldWithProgress, w.HoldUnlimited = time.Hour, time.Hour
				w.Hosts = []conversation.Host{{Name: "codex-mcp-client", Limit: 4 * time.Second}} // short enough to expire in the test
			})
			h.meetAs(tt.host)
			first, leave := h.greeted(t, "7")
			id := h.pending(1)[0]
			h.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"` + tt.reason + `"}}`)
			if tt.withdrawn {
				rest, err := io.ReadAll(first)
				if err != nil || strings.Contains(string(rest), `"id":7`) {
					t.Errorf("a cancelled request was answered: %s, %v", rest, err)
				}
				h.pending(0)
			} else {
				leave()
				w := h.waiting
				w.Hosts = nil // from now on the built-in limit of minutes
				h.conversations.Configure(w)
				again, _ := h.greeted(t, "8")
				h.pending(1)
				h.approve(id)
				rest, err := io.ReadAll(again)
				wantText(t, "attached", string(rest), `"id":8`, "done hold_x")
				if err != nil {
					t.Error(err)
				}
			}
			steps := h.steps(id)
			wantText(t, "journal", steps, tt.journal)
			if tt.reason != "" {
				wantText(t, "journal", steps, strings.Fields(tt.reason)[0])
			}
		})
	}
}

// greeted makes a held call, waits until the client is told the reason, and returns the rest of
// the stream and a function that disconnects.
func (h *fixture) greeted(t *testing.T, id string) (rest io.Reader, leave func()) {
	t.Helper()
	resp := h.begin(t, toolCall(id, "hold_x", `,"_meta":{"progressToken":1}`), "Mcp-Session-Id", "s-1")
	in := bufio.NewReader(resp.Body)
	for line := ""; !strings.Contains(line, "Waiting for approval"); {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return in, func() { resp.Body.Close() }
}

// steps returns the journal entries of a task.
func (h *fixture) steps(id task.ID) string {
	h.t.Helper()
	entries, err := h.store.Entries(context.Background(), auditlog.Query{Task: id})
	if err != nil {
		h.t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Step + " " + e.Reason + "\n")
	}
	return b.String()
}

func TestSessionEndWithdrawsCalls(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	h.get = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }
	h.ask(toolCall("1", "hold_x", ""))                              // was told to call again
	h.ask(toolCall("2", "hold_y", ""), "Mcp-Session-Id", "s-other") // another session
	id := h.pending(2)
	h.sendAs(http.MethodDelete, "", "Content-Type", "").wait(t)
	h.pending(1)
	gone := 0
	for _, one := range id {
		if h.state(one) == task.Cancelled {
			gone++
			wantText(t, "journal", h.steps(one), "the client ended its session")
		}
	}
	if gone != 1 {
		t.Errorf("%d calls were withdrawn; want the one of the session", gone)
	}
}

// The pending answer says that there is no error, who approves, how long, and to call again.
// The third one ends the model's turn.
func TestThirdPendingAnswerEndsTurn(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	for i := range 4 {
		answer := h.ask(toolCall(fmt.Sprint(i), "hold_x", ""))
		id := string(h.pending(1)[0])
		wantText(t, "pending", answer, `"isError":true`, "approval by default ("+id[:16]+", 5", " left)", "It has not run.")
		if i < 2 {
			wantText(t, "at first", answer, "Nothing is wrong with this call: do not change it.", "exactly the same arguments")
			continue
		}
		wantText(t, "then", answer, "Do not call the tool again now. Tell the user that the call waits for approval at https://desk.example/approvals/"+id)
	}
}

// A client with a progress token is told at once why it waits.
func TestProgressBeginsAtOnce(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Heartbeat = time.Hour })
	next := h.stream(t, http.MethodPost, toolCall("7", "hold_x", `,"_meta":{"progressToken":"p"}`))
	progress := next()
	id := string(h.pending(1)[0])
	wantText(t, "progress", progress, `"method":"notifications/progress"`, `"progressToken":"p"`, `"progress":1`,
		"Waiting for approval by default · "+id[:16]+" · 5", " left · https://desk.example/approvals/"+id)
}

// The next call after that is a new one.
func TestUnseenExpiryIsReportedOnce(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	h.ask(toolCall("1", "hold_x", ""))
	h.expire(h.pending(1)[0])
	wantText(t, "told", h.ask(toolCall("2", "hold_x", "")), "Nobody decided in time. The tool did not run.")
	h.pending(0)
	wantText(t, "a new call", h.ask(toolCall("3", "hold_x", "")), "Nothing is wrong with this call")
	h.pending(1)
}

// Some bridges omit Mcp-Name in task requests. The gate accepts this for its own tasks, but
// refuses a wrong name.
func TestTaskRequestWithoutNameHeader(t *testing.T) {
	h := waitingFixture(t, func(*conversation.Waiting) {})
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	message, headers := about("tasks/get", id)
	without := append([]string(nil), headers...)
	without[4], without[5] = "X-Other", "1" // in place of Mcp-Name
	wantText(t, "without", h.ask(message, without...), `"status":"working"`)
	headers[5] = "tg_other"
	wantText(t, "wrong", h.ask(message, headers...), `"header_mismatch"`)
	foreign, headers := about("tasks/get", "theirs")
	headers[4], headers[5] = "X-Other", "1"
	wantText(t, "of the upstream", h.ask(foreign, headers...), `"header_mismatch"`)
}

func TestUnrecognisableClientLearnsWithdrawal(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	headers := modernHeaders("hold_x")
	headers = headers[:len(headers)-2] // without its credential
	answer := h.ask(modernCall("hold_x", ""), headers...)
	for strings.Contains(answer, `"input_required"`) {
		answer = h.ask(toolCall("26", "hold_x", `,"requestState":"`+stateIn(t, answer)+`",`+modernMeta("")), headers...)
	}
	wantText(t, "last answer", answer, "the request for approval is withdrawn", "It has not run.")
	h.pending(0)
}

// Keep-alives are comments, progress notifications, or white space before JSON.
func TestHeartbeatsReachWaitingClient(t *testing.T) {
	h := newFixture(t, nil)
	tests := []struct{ name, accept, more, want string }{
		{"comments", "text/event-stream", "", ": waiting for approval\n\n"},
		{"progress", "text/event-stream", `,"_meta":{"progressToken":"p-1"}`, `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p-1","progress":2,"message":"Waiting for approval by default · tg_`},
		{"white space", "application/json", "", "  "},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/mcp", strings.NewReader(toolCall("1", fmt.Sprintf("hold_%d", i), tt.more)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", tt.accept)
			r.Header.Set("Mcp-Session-Id", "s-1")
			resp, err := h.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var seen strings.Builder
			in := bufio.NewReader(resp.Body)
			for !strings.Contains(seen.String(), tt.want) {
				c, err := in.ReadByte()
				if err != nil {
					t.Fatalf("after %q: %v", seen.String(), err)
				}
				seen.WriteByte(c)
			}
		})
	}
}

// An anonymous modern client on the user's machine is identified by the name of its host, so
// its call is found again. A proxied client is not.
func TestLocalHostAttaches(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	ask := func(name string, more ...string) string {
		meta := strings.Replace(modernMeta(""), `{"io`, `{"io.modelcontextprotocol/clientInfo":{"name":"`+name+`","version":"1"},"io`, 1)
		headers := modernHeaders("hold_x")
		headers = append(headers[:len(headers)-2:len(headers)-2], more...) // without its credential
		return h.ask(toolCall("26", "hold_x", ","+meta), headers...)
	}
	for range 2 {
		wantText(t, "waits", ask("ai-sdk"), `"input_required"`)
		h.pending(1)
	}
	ask("another")
	h.pending(2)
	ask("ai-sdk", "X-Forwarded-For", "192.0.2.1")
	h.pending(3)
	h.reject(h.pendingOf("ai-sdk"), "no")
	wantText(t, "told", ask("ai-sdk"), "Rejected by an approver")
}

// pendingOf returns the one pending call of a host.
func (h *fixture) pendingOf(host string) task.ID {
	h.t.Helper()
	for t, err := range h.approvals.Unstarted(h.t.Context(), `test credentials local host "`+host+`"`) {
		if err == nil {
			return t.ID
		}
	}
	h.t.Fatal("there is no such call")
	return ""
}

// sendHeld is send that returns once the client is waiting, so that it can cancel.
func (h *fixture) sendHeld(message string) *request {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	h.t.Cleanup(cancel)
	resp := h.beginUntil(ctx, h.t, message, "Mcp-Session-Id", "s-1")
	req := &request{done: make(chan struct{}), status: resp.StatusCode, cancel: cancel}
	go func() {
		defer close(req.done)
		body, err := io.ReadAll(resp.Body)
		if req.body = string(body); err != nil {
			req.body += err.Error()
		}
	}()
	return req
}

// Calls that an identified agent may repeat in another session also stay.
func TestSessionEndKeepsRunningCalls(t *testing.T) {
	t.Run("a running call", func(t *testing.T) {
		h := waitingFixture(t, func(*conversation.Waiting) {})
		runs, resume := make(chan struct{}), make(chan struct{})
		h.answer = func(w http.ResponseWriter, id string) {
			close(runs)
			<-resume
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
		}
		h.sendHeld(toolCall("1", "hold_x", ""))
		id := h.pending(1)[0]
		h.approve(id)
		<-runs
		h.sendAs(http.MethodDelete, "", "Content-Type", "").wait(t)
		if state := h.state(id); state != task.Executing {
			t.Errorf("the running call is %s", state)
		}
		close(resume)
		eventually(t, "its result is kept", func() bool { return h.state(id) == task.Completed })
	})
	t.Run("a call of an identified agent", func(t *testing.T) {
		h := newReplayFixture(t, nil)
		as := []string{"Authorization", "Bearer " + ann.token}
		wantText(t, "pending", h.ask(toolCall("1", "hold_x", ""), as...), "has not run")
		id := h.pending(1)[0]
		h.sendAs(http.MethodDelete, "", append(as, "Content-Type", "")...).wait(t)
		if state := h.state(id); state != task.InputRequired {
			t.Fatalf("the call is %s", state)
		}
		h.approve(id)
		h.askUntil(`"text":"done"`, func() string { return h.ask(toolCall("2", "hold_x", ""), append(as, "Mcp-Session-Id", "s-9")...) })
	})
}
