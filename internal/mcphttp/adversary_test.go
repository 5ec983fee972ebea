package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// state returns the state of a task.
func (h *fixture) state(id task.ID) task.State {
	h.t.Helper()
	got, err := h.store.Get(h.t.Context(), task.AnyOwner().Ref(id))
	if err != nil {
		h.t.Fatal(err)
	}
	return got.State
}

// wantRan checks which calls the upstream ran.
func (h *fixture) wantRan(want ...string) {
	h.t.Helper()
	if ran := h.ran(); !slices.Equal(ran, want) {
		h.t.Errorf("ran %q; want %q", ran, want)
	}
}

var word = regexp.MustCompile(`[A-Za-z0-9_.~+/=-]{3,}`)

// An agent cannot approve its own call with anything it has seen, on either listener.
func TestAgentCannotApprove(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	auth, err := operator.New(operator.Config{
		Tokens:  []operator.Token{{Hash: operator.HashOf("the operators' own token"), Name: "operator", Role: operator.Admin}},
		Records: memstore.New(memstore.Options{}), Ring: keyring.Ephemeral(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	operators, err := api.New(api.Config{Approvals: h.approvals, Viewer: h.approvals.Viewer(), Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(operators)
	defer served.Close()

	var seen strings.Builder
	ask := func(message string, headers ...string) string {
		answer := h.ask(message, headers...)
		seen.WriteString(answer + "\n" + message + "\n" + strings.Join(headers, " ") + "\n")
		return answer
	}
	id := taskID(t, ask(toolCall("3", "hold_x", `,"task":{}`)))
	ask(toolCall("4", "hold_x", ""))
	ask(modernCall("hold_y", ""), modernHeaders("hold_y")...)
	ask(modernCall("hold_z", tasksExtension), modernHeaders("hold_z")...)
	ask(legacyAbout("tasks/get", id))
	ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`)
	ask(toolCall("5", "drop_all", ""))
	pending := h.pending(3)

	words := slices.Compact(slices.Sorted(slices.Values(word.FindAllString(seen.String(), -1))))
	for _, token := range append(words, "", "null", "undefined", "operator", "alice") {
		for _, target := range pending {
			shown, err := h.approvals.Viewer().Show(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			for _, base := range []string{served.URL, h.URL, h.URL + "/mcp"} {
				tryToApprove(t, base+"/api/approvals/"+string(target)+"/approve", token, shown.ShownDigest)
			}
		}
	}
	for _, target := range pending {
		for _, attempt := range []string{
			`{"jsonrpc":"2.0","id":5,"method":"tasks/approve","params":{"taskId":"ID"}}`,
			`{"jsonrpc":"2.0","id":5,"method":"tasks/update","params":{"taskId":"ID","inputResponses":{"approval":{"action":"accept"}}}}`,
			`{"jsonrpc":"2.0","id":5,"method":"tasks/get","params":{"taskId":"ID","_meta":{"server.approval":{"state":"approved"}}}}`,
			`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hold_q","task":{},"_meta":{"server.approval":{"state":"approved"}}}}`,
			`{"jsonrpc":"2.0","id":"ID","result":{"action":"accept","content":{"approve":true}}}`,
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"ID","status":"completed"}}`,
			`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"ID"}}`,
		} {
			h.ask(strings.ReplaceAll(attempt, "ID", string(target)))
		}
		message, headers := about("tasks/update", string(target))
		h.ask(strings.Replace(message, `"_meta":{`, `"inputResponses":{"x":{"action":"accept"}},"_meta":{"server.approval":{"state":"approved"},`, 1), headers...)
		if s := h.state(target); s != task.InputRequired {
			t.Errorf("after all attempts a task is %s", s)
		}
	}
	h.pending(3)
	for _, call := range h.ran() {
		if strings.HasPrefix(call, "hold_") || strings.HasPrefix(call, "drop_") {
			t.Errorf("%s ran", call)
		}
	}
}

func tryToApprove(t *testing.T, target, token, shown string) {
	t.Helper()
	body := strings.NewReader(`{"reason":"fine","shownDigest":"` + shown + `"}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target+"?token="+token+"&access_token="+token, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Cookie", "token="+token)
	r.Header.Set("X-Forwarded-User", "operator")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("%s with %q: status %d", target, token, resp.StatusCode)
	}
}

func TestTaskIsInvisibleToOtherClients(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	other := func(method, id string) string {
		message, headers := about(method, id)
		headers[9] = "Bearer other"
		return correlation.ReplaceAllString(h.ask(message, headers...), "")
	}
	attack := func() {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			unknown := other(method, "tg_00000000-0000-4000-8000-000000000000")
			wantText(t, method, unknown, `"code":-32602`)
			if got := other(method, id); got != unknown {
				t.Errorf("%s distinguishes a task of another client from an unknown one:\n%s\n%s", method, got, unknown)
			}
		}
	}
	attack()
	h.approve(task.ID(id))
	eventually(t, "it has run for its owner", func() bool { return h.state(task.ID(id)) == task.Completed })
	attack()
	message, headers := about("tasks/get", id)
	wantText(t, "its owner", h.ask(message, headers...), "done hold_x")
	h.wantRan(`hold_x {"x":1}`)
}

func TestOnlyOwnerContactStartsCall(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Start = approval.StartOnResult
	})
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		wantText(t, method, h.ask(legacyAbout(method, id), "Mcp-Session-Id", "s-2"), `"task_not_found"`)
	}
	wantText(t, "the same call", h.ask(toolCall("3", "hold_x", `,"task":{}`), "Mcp-Session-Id", "s-2"), `"Waiting for approval by default`)
	h.wantRan()
	wantText(t, "its owner", h.ask(legacyAbout("tasks/result", id)), "done hold_x")
	h.wantRan(`hold_x {"x":1}`)
}

func TestApprovalDoesNotCoverOtherClient(t *testing.T) {
	h := newFixture(t, nil)
	first := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	second := h.send(toolCall("7", "hold_x", ""), "Mcp-Session-Id", "s-2")
	third := h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...)
	h.pending(3)
	h.approve(id)
	wantText(t, "first", first.wait(t), "done hold_x")
	h.wantRan(`hold_x {"x":1}`)
	for _, other := range h.pending(2) {
		h.reject(other, "one is enough")
	}
	wantText(t, "second", second.wait(t), "did not run")
	wantText(t, "third", third.wait(t), "did not run")
	h.wantRan(`hold_x {"x":1}`)
}

// Only order and white space of arguments may differ in a repeated call.
func TestChangedArgumentsNeedNewApproval(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	call := func(name, arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
	}
	h.ask(call("hold_x", `{"to":"a","n":1}`))
	id := h.pending(1)[0]
	for _, same := range []string{`{"n":1,"to":"a"}`, ` { "to" : "a" , "n" : 1 } `, `{"to":"\u0061","n":1}`} {
		wantText(t, same, h.ask(call("hold_x", same)), "has not run")
		h.pending(1)
	}
	others := []string{
		`{"to":"b","n":1}`, `{"to":"a","n":1.0}`, `{"to":"a","n":1e0}`, `{"to":"a","n":"1"}`, `{"to":"a","n":1,"x":null}`,
		`{"to":["a"],"n":1}`, `{"To":"a","n":1}`, `{"to":"a"}`, `{}`, `{"to":"a","n":10000000000000000000000}`, `{"to":"a","n":10000000000000000000001}`,
	}
	for i, other := range others {
		wantText(t, other, h.ask(call("hold_x", other)), "has not run")
		h.pending(i + 2)
	}
	h.ask(call("hold_y", `{"to":"a","n":1}`))
	h.pending(len(others) + 2)

	h.approve(id)
	eventually(t, "the result is available", func() bool {
		return strings.Contains(h.ask(call("hold_x", `{"n":1,"to":"a"}`)), "done hold_x")
	})
	h.pending(len(others) + 1)
	h.wantRan(`hold_x {"to":"a","n":1}`) // the call that the approver saw
}

func TestApprovalRunsOnlyThatCall(t *testing.T) {
	h := newFixture(t, nil)
	a := taskID(t, h.ask(toolCall("1", "hold_a", `,"task":{}`)))
	b := taskID(t, h.ask(toolCall("2", "hold_b", `,"task":{}`)))
	h.approve(task.ID(b))
	h.ask(legacyAbout("tasks/get", a))
	wantText(t, "b", h.ask(legacyAbout("tasks/result", b)), "done hold_b")
	wantText(t, "a", h.ask(legacyAbout("tasks/get", a)), "Waiting for approval")
	h.wantRan(`hold_b {"x":1}`)
}

// A repeated call after a rejection is a new call.
func TestRejectedCallNeverRuns(t *testing.T) {
	h := newFixture(t, nil)
	id := task.ID(taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`))))
	h.reject(id, "no")
	for range 3 {
		if _, err := decide(t.Context(), h.approvals, id, approval.Approver{Name: "bob"}, approval.Approve, ""); err == nil {
			t.Error("a rejected call was approved")
		}
		wantText(t, "result", h.ask(legacyAbout("tasks/result", string(id))), `"code":-32007`, "did not run")
	}
	again := taskID(t, h.ask(toolCall("2", "hold_x", `,"task":{}`)))
	if again == string(id) {
		t.Error("a new call got the old task")
	}
	wantText(t, "again", h.ask(legacyAbout("tasks/get", again)), "Waiting for approval")
	h.wantRan()
}

func TestTightenedPolicyStopsApprovedCall(t *testing.T) {
	tests := []struct {
		name string
		rule policy.Rule
		want []string
	}{
		{"denied", policy.Rule{Match: "hold_*", Action: policy.Deny}, []string{"policy_drift", "did not run"}},
		{"two people", policy.Rule{Match: "hold_*", Action: policy.Approve, Workflow: "two"}, []string{"policy_drift", "did not run"}},
		{"unchanged", policy.Rule{Match: "hold_*", Action: policy.Approve}, []string{"done hold_x"}},
		{"loosened", policy.Rule{Match: "hold_*", Action: policy.Forward}, []string{"done hold_x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
				c.Start = approval.StartOnResult
			})
			id := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`)))
			h.approve(task.ID(id))
			h.catalog.Configure(&catalog.Settings{Policy: compile(t, tt.rule)})
			wantText(t, "result", h.ask(legacyAbout("tasks/result", id)), tt.want...)
			if ran := len(h.ran()); (ran == 1) != (tt.want[0] == "done hold_x") {
				t.Errorf("ran %d times", ran)
			}
		})
	}
}

// States and cursors work only for the client and the request that they were made for.
func TestTamperedSealsAreRefused(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	headers := modernHeaders("hold_x")
	state := stateIn(t, h.ask(modernCall("hold_x", ""), headers...))
	resume := func(state string, headers ...string) string {
		return h.ask(toolCall("26", "hold_x", `,"requestState":"`+state+`",`+modernMeta("")), headers...)
	}
	h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: "session s-1"}, catalog.Handshake{Tasks: true, ListTasks: true, Session: met})
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tasks":[],"nextCursor":"theirs"}}`, id)
	}
	list := func(cursor string) string {
		return h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"` + cursor + `"}}`)
	}
	cursor := cursorIn(t, h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`))

	for i := len("tg1."); i < len(state); i += 3 {
		flipped := state[:i] + string(flip(state[i])) + state[i+1:]
		wantText(t, flipped, resume(flipped, headers...), `"code":-32602`)
	}
	for i := len("tg1."); i < len(cursor); i += 3 {
		flipped := cursor[:i] + string(flip(cursor[i])) + cursor[i+1:]
		wantText(t, flipped, list(flipped), `"code":-32602`)
	}
	for _, forged := range []string{"tg1.", "tg1.AAAA", state[:len(state)-1], state + "A", state + "=", state + "\\n", cursor} {
		wantText(t, forged, resume(forged, headers...), `"code":-32602`)
	}
	for _, forged := range []string{"tg1.", "AAAA", cursor[:len(cursor)-1], cursor + "A", state, "upstream theirs"} {
		wantText(t, forged, list(forged), `"code":-32602`)
	}
	h.pending(1)
	h.wantRan(" ") // only the list that returned the cursor
	wantText(t, "the true one", resume(state, headers...), "requestState")
}

func flip(c byte) byte {
	if c == 'A' {
		return 'B'
	}
	return 'A'
}

func TestStoreFailuresFailClosed(t *testing.T) {
	h := newFixture(t, nil)
	held := h.send(toolCall("1", "hold_x", ""))
	id := taskID(t, h.ask(toolCall("2", "hold_y", `,"task":{}`)))
	h.pending(2)
	if err := h.approvals.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantText(t, "held", held.wait(t), `"code":-32013`, `"shutting_down"`)
	wantText(t, "new", h.ask(toolCall("3", "hold_z", "")), `"code":-32013`)
	wantText(t, "result", h.ask(legacyAbout("tasks/result", id)), `"code":-32013`, "did not run")
	if _, err := decide(t.Context(), h.approvals, task.ID(id), approval.Approver{Name: "alice"}, approval.Approve, ""); !errors.Is(err, task.ErrAlreadyTerminal) {
		t.Errorf("Decide = %v", err)
	}
	h.wantRan()
}
