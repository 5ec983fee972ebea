package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// opensURLs is the capability to open URLs for the user.
const opensURLs = `"elicitation":{"form":{},"url":{}}`

// An invitingFixture has a workflow "default" that invites users to the page of a held call.
// Its upstream names sessions after their clients.
type invitingFixture struct {
	*fixture

	up  string
	got struct {
		sync.Mutex

		responses []string // answers of clients
		calls     []string // bodies of calls
	}
	call func(w http.ResponseWriter, m *jsonrpc.Message) // answers a call; nil says that it is done
}

func newInvitingFixture(t *testing.T) *invitingFixture {
	t.Helper()
	h := new(invitingFixture)
	ring := keyring.Ephemeral()
	h.fixture = newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		c.Polling = task.Polling{Min: 10 * time.Millisecond, Max: time.Minute}
		w.Heartbeat = time.Minute
		w.Page = func(id task.ID) string { return "https://gate.example/approvals/" + string(id) }
		w.AskHost = func(workflow string) bool { return workflow == "default" }
	})
	h.texts = ring
	h.up = serve(t, h.answerAsUpstream)
	h.gateway = h.replica()
	return h
}

// replica starts another gate with the same store and keys.
func (h *invitingFixture) replica() *gateway {
	return startGate(h.t, h.up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting, s.handler.Texts = h.catalog, h.approvals, h.waiting, h.texts
	})
}

func (h *invitingFixture) answerAsUpstream(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if err != nil {
		h.t.Errorf("the upstream got %q: %v", body, err)
		return
	}
	m := &p.Messages[0]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case m.Kind == jsonrpc.Response:
		h.got.Lock()
		defer h.got.Unlock()
		h.got.responses = append(h.got.responses, string(m.ID.Bytes))
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		name, _ := m.Params.Member("clientInfo").Member("name").Text()
		w.Header().Set("Mcp-Session-Id", name)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}`, m.ID.Bytes)
	case m.Method == "tools/call":
		h.got.Lock()
		h.got.calls = append(h.got.calls, string(body))
		h.got.Unlock()
		if h.call != nil {
			h.call(w, m)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}}`, m.ID.Bytes)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"capabilities":{}}}`, m.ID.Bytes)
	}
}

func (h *invitingFixture) heard() (responses, calls []string) {
	h.got.Lock()
	defer h.got.Unlock()
	return slices.Clone(h.got.responses), slices.Clone(h.got.calls)
}

// initialize begins a session.
func (h *invitingFixture) initialize(session, capabilities string) {
	h.t.Helper()
	wantText(h.t, "initialize", h.ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{`+
		capabilities+`},"clientInfo":{"name":"`+session+`","version":"1"}}}`, "Mcp-Session-Id", ""), `"capabilities"`)
}

// A reader reads the messages of a stream.
type reader struct {
	t       *testing.T
	events  *jsonrpc.EventReader
	leave   context.CancelFunc
	eventID string // with which the stream can be resumed
}

// open sends a message, or resumes a stream if the message is empty, and returns the stream
// once it begins.
func (h *invitingFixture) open(message string, headers ...string) *reader {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), testTimeout)
	method := http.MethodPost
	if message == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if r.Header.Set("Accept", "application/json, text/event-stream"); message != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return &reader{t: h.t, events: jsonrpc.NewEventReader(resp.Body, 1<<20), leave: cancel}
}

// next returns the next message, or nothing at the end of the stream.
func (r *reader) next() string {
	r.t.Helper()
	for {
		event, err := r.events.Next()
		if err != nil {
			return ""
		}
		if event.HasID {
			r.eventID = event.ID
		}
		if len(event.Data) > 0 {
			return string(event.Data)
		}
	}
}

// legacy has the headers of a 2025-11-25 client.
func legacy(session string) []string {
	return []string{"Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-11-25"}
}

// An elicitation is a question to a client.
type elicitation struct {
	ID     string
	Method string
	Params struct{ Mode, URL, Message, ElicitationID string }
}

// readInvitation checks that a client is invited to the page of a task.
func readInvitation(t *testing.T, message string, id task.ID) elicitation {
	t.Helper()
	var e elicitation
	if err := json.Unmarshal([]byte(message), &e, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	if e.Method != "elicitation/create" || e.Params.Mode != "url" || e.Params.URL != "https://gate.example/approvals/"+string(id) {
		t.Fatalf("got %s; want an invitation to the page of %s", message, id)
	}
	wantText(t, "message", e.Params.Message, "Waiting for approval by default", string(id.Short()), " left")
	return e
}

// In 2025-11-25 the held stream carries one URL elicitation. No answer to it decides anything,
// ends the wait or reaches the upstream. The decision is sent at once.
func TestHostIsAskedAboutHeldCall(t *testing.T) {
	for name, answer := range map[string]string{
		"accept": `"result":{"action":"accept"}`, "decline": `"result":{"action":"decline"}`, "cancel": `"result":{"action":"cancel"}`,
		"error": `"error":{"code":-32601,"message":"no such method"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newInvitingFixture(t)
			finish := make(chan struct{})
			let := sync.OnceFunc(func() { close(finish) })
			defer let()
			h.call = func(w http.ResponseWriter, m *jsonrpc.Message) {
				<-finish
				w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"content":[{"type":"text","text":"done"}]}`)))
			}
			h.initialize("s-1", opensURLs)
			held := h.open(toolCall("7", "hold_x", ""), legacy("s-1")...)
			id := h.pending(1)[0]
			asked := readInvitation(t, held.next(), id)
			if asked.Params.ElicitationID != string(id) {
				t.Errorf("elicitationId is %q; want the id of the task", asked.Params.ElicitationID)
			}
			response := h.send(`{"jsonrpc":"2.0","id":"`+asked.ID+`",`+answer+`}`, legacy("s-1")...)
			if response.wait(t); response.status != http.StatusAccepted || response.body != "" {
				t.Errorf("the answer got %d %s", response.status, response.body)
			}
			h.pending(1) // the answer decided nothing
			if _, calls := h.heard(); len(calls) != 0 {
				t.Fatalf("ran %v before it was approved", calls)
			}
			h.approve(id)
			wantText(t, "before the call has run", held.next(), `"method":"notifications/elicitation/complete"`, `"elicitationId":"`+string(id)+`"`)
			let()
			wantText(t, "answer", held.next(), `"id":7`, "done")
			if rest := held.next(); rest != "" {
				t.Errorf("after the answer came %s", rest)
			}
			responses, calls := h.heard()
			if len(responses) != 0 || len(calls) != 1 {
				t.Errorf("the upstream heard the answers %v and the calls %v; want none, and one", responses, calls)
			}
		})
	}
}

func TestRejectionCompletesInvitation(t *testing.T) {
	h := newInvitingFixture(t)
	h.initialize("s-1", opensURLs)
	held := h.open(toolCall("7", "hold_x", ""), legacy("s-1")...)
	id := h.pending(1)[0]
	readInvitation(t, held.next(), id)
	h.reject(id, "too early")
	wantText(t, "decision", held.next(), "notifications/elicitation/complete")
	wantText(t, "answer", held.next(), `"id":7`, "too early")
}

// The gate does not ask a host without the capability, a workflow without invitations, a stream
// that cannot carry the question, or a session whose start the gate did not see.
func TestHostIsAskedOnlyIfItCanAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		capabilities, call string
		headers            []string
		off                bool
	}{
		"not declared":       {call: "hold_x", headers: legacy("s-1")},
		"forms only":         {capabilities: `"elicitation":{"form":{}}`, call: "hold_x", headers: legacy("s-1")},
		"empty":              {capabilities: `"elicitation":{}`, call: "hold_x", headers: legacy("s-1")},
		"not an object":      {capabilities: `"elicitation":{"url":true}`, call: "hold_x", headers: legacy("s-1")},
		"unknown session":    {capabilities: opensURLs, call: "hold_x", headers: legacy("s-2")},
		"no session":         {capabilities: opensURLs, call: "hold_x", headers: []string{"Mcp-Session-Id", "", "Authorization", "Bearer agent", "MCP-Protocol-Version", "2025-11-25"}},
		"earlier version":    {capabilities: opensURLs, call: "hold_x", headers: []string{"Mcp-Session-Id", "s-1", "MCP-Protocol-Version", "2025-06-18"}},
		"no stream":          {capabilities: opensURLs, call: "hold_x", headers: append(legacy("s-1"), "Accept", "application/json")},
		"another workflow":   {capabilities: opensURLs, call: "hold_two_x", headers: legacy("s-1")},
		"ask_host off":       {capabilities: opensURLs, call: "hold_x", headers: legacy("s-1"), off: true},
		"modern, undeclared": {capabilities: opensURLs, call: "hold_x", headers: modernHeaders("hold_x")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newInvitingFixture(t)
			if c.off {
				w := h.waiting
				w.AskHost = nil
				h.conversations.Configure(w)
			}
			h.initialize("s-1", c.capabilities)
			message := toolCall("7", c.call, "")
			if slices.Contains(c.headers, "2026-07-28") {
				message = modernCall(c.call, `"elicitation":{"form":{}}`)
			}
			req := h.send(message, c.headers...)
			h.reject(h.pending(1)[0], "too early")
			wantText(t, "answer", req.wait(t), "too early")
			if strings.Contains(req.body, "elicitation") {
				t.Errorf("asked: %s", req.body)
			}
		})
	}
}

// A client that repeats the call in its session or resumes its stream is not asked again, but
// gets the decision.
func TestHostIsAskedOnce(t *testing.T) {
	t.Run("attached", func(t *testing.T) {
		testAskedOnce(t, func(h *invitingFixture, _ *reader) *reader {
			return h.open(toolCall("7", "hold_x", ""), legacy("s-1")...)
		})
	})
	t.Run("resumed", func(t *testing.T) {
		testAskedOnce(t, func(h *invitingFixture, first *reader) *reader {
			return h.open("", append(legacy("s-1"), "Last-Event-ID", first.eventID)...)
		})
	})
}

func testAskedOnce(t *testing.T, comeBack func(h *invitingFixture, first *reader) *reader) {
	t.Helper()
	h := newInvitingFixture(t)
	h.initialize("s-1", opensURLs)
	first := h.open(toolCall("7", "hold_x", ""), legacy("s-1")...)
	id := h.pending(1)[0]
	readInvitation(t, first.next(), id)
	back := comeBack(h, first)
	first.leave()
	eventually(t, "the gate has seen that the first is gone", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_blocking_approval_total{result="client_disconnected"} 1`)
	})
	h.pending(1)
	h.approve(id)
	wantText(t, "decision", back.next(), "notifications/elicitation/complete")
	wantText(t, "answer", back.next(), `"id":7`, "done")

	// The next call is a new one.
	next := h.open(toolCall("9", "hold_x", ""), legacy("s-1")...)
	readInvitation(t, next.next(), h.pending(1)[0])
}

// Every replica recognises an answer to an invitation, but only from the invited client. Other
// answers go to the upstream.
func TestOnlyInvitedClientAnswersInvitation(t *testing.T) {
	h := newInvitingFixture(t)
	h.initialize("s-1", opensURLs)
	held := h.open(toolCall("7", "hold_x", ""), legacy("s-1")...)
	asked := readInvitation(t, held.next(), h.pending(1)[0])
	h.initialize("s-2", opensURLs)
	answer := func(id, session string) {
		t.Helper()
		response := h.send(`{"jsonrpc":"2.0","id":"`+id+`","result":{"action":"accept"}}`, legacy(session)...)
		if response.wait(t); response.status != http.StatusAccepted {
			t.Errorf("got %d %s", response.status, response.body)
		}
	}
	forged := "tg1.AAAA" + asked.ID[len("tg1.AAAA"):]
	answer(asked.ID, "s-2")
	answer(forged, "s-1")
	answer("theirs", "s-1")
	want := []string{`"` + asked.ID + `"`, `"` + forged + `"`, `"theirs"`}
	if responses, _ := h.heard(); !slices.Equal(responses, want) {
		t.Errorf("the upstream heard %v; want %v", responses, want)
	}
	h.gateway = h.replica()
	answer(asked.ID, "s-1")
	if responses, _ := h.heard(); len(responses) != len(want) {
		t.Errorf("the upstream heard %v; want nothing more", responses)
	}
	h.pending(1)
}

// In 2026-07-28 the first round carries one URL elicitation. The client returns with any
// answer, and waits.
func TestModernHostIsAskedAboutHeldCall(t *testing.T) {
	for _, action := range []string{"accept", "decline", "cancel"} {
		t.Run(action, func(t *testing.T) {
			h := newInvitingFixture(t)
			asked := h.ask(modernCall("hold_x", opensURLs), modernHeaders("hold_x")...)
			id := h.pending(1)[0]
			wantText(t, "round", asked, `"resultType":"input_required"`, `"requestState":"tg1.`)
			key := invitedBy(t, asked, id)
			retry := h.open(repeatedCall(t, asked, `{"`+key+`":{"action":"`+action+`"}}`), modernHeaders("hold_x")...)
			h.pending(1) // the answer decided nothing
			h.approve(id)
			wantText(t, "answer", retry.next(), "done")
			_, calls := h.heard()
			if len(calls) != 1 || strings.Contains(calls[0], "inputResponses") || strings.Contains(calls[0], "requestState") {
				t.Errorf("the upstream was called %v; want once, without the answer", calls)
			}
		})
	}
}

// invitedBy checks that a round only asks to open the page of a task, and returns the key of
// that question.
func invitedBy(t *testing.T, answer string, id task.ID) string {
	t.Helper()
	var round struct {
		Result struct {
			InputRequests map[string]elicitation `json:"inputRequests"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(answer), &round, json.MatchCaseInsensitiveNames(true)); err != nil || len(round.Result.InputRequests) != 1 {
		t.Fatalf("got %s, %v; want one question", answer, err)
	}
	for key, e := range round.Result.InputRequests {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if readInvitation(t, string(text), id); e.Params.ElicitationID != "" {
			t.Errorf("elicitationId is %q, which this version does not have", e.Params.ElicitationID)
		}
		return key
	}
	return ""
}

// repeatedCall returns the call of a modern client that answers its questions.
func repeatedCall(t *testing.T, asked, responses string) string {
	t.Helper()
	return strings.Replace(modernCall("hold_x", opensURLs), `"arguments"`,
		`"requestState":"`+stateIn(t, asked)+`","inputResponses":`+responses+`,"arguments"`, 1)
}

// A modern call that attaches does not ask again. If the upstream asks something under the same
// key, an answer to the gate's invitation is not used for it.
func TestModernHostIsAskedOnce(t *testing.T) {
	h := newInvitingFixture(t)
	h.call = func(w http.ResponseWriter, m *jsonrpc.Message) {
		result := `{"resultType":"input_required","requestState":"theirs","inputRequests":{"approval":{"method":"roots/list"}}}`
		if m.Params.Member("inputResponses").Present() {
			result = `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
		}
		w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(result)))
	}
	invited := h.ask(modernCall("hold_x", opensURLs), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	key := invitedBy(t, invited, id)
	attached := h.open(modernCall("hold_x", opensURLs), modernHeaders("hold_x")...)
	h.approve(id)
	wantText(t, "attached", attached.next(), `"inputRequests":{"approval":{"method":"roots/list"}}`)

	asked := h.ask(repeatedCall(t, invited, `{"`+key+`":{"action":"accept"}}`), modernHeaders("hold_x")...)
	wantText(t, "invited", asked, `"inputRequests":{"approval":{"method":"roots/list"}}`)
	if _, calls := h.heard(); len(calls) != 1 {
		t.Fatalf("the upstream was called %v; want once", calls)
	}
	wantText(t, "answer", h.ask(repeatedCall(t, asked, `{"approval":{"roots":[]}}`), modernHeaders("hold_x")...), "done")
	if _, calls := h.heard(); len(calls) != 2 || !strings.Contains(calls[1], `"inputResponses":{"approval":{"roots":[]}}`) {
		t.Errorf("the upstream was called %v; want once more, with the answer to its own question", calls)
	}
}
