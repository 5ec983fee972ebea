package mcphttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A proxy stands in front of an upstream. It manages sessions, which end when it restarts,
// and requires a key.
type proxy struct {
	behind       http.HandlerFunc
	capabilities string

	mu      sync.Mutex
	begun   int
	alive   map[string]bool
	key     string // that clients must send
	refusal int    // the status of requests with another one
}

// challenges are the WWW-Authenticate headers of refusals.
var challenges = map[int]string{
	http.StatusUnauthorized: `Bearer error="invalid_token", resource_metadata="https://tools.example/.well-known"`,
	http.StatusForbidden:    `Bearer error="insufficient_scope", scope="admin", resource_metadata="https://tools.example/.well-known"`,
}

func (d *proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	session := r.Header.Get("Mcp-Session-Id")
	d.mu.Lock()
	given, ended := "", session != "" && !d.alive[session]
	refused := r.Header.Get("X-Api-Key") != d.key
	if bytes.Contains(body, []byte(`"method":"initialize"`)) {
		d.begun++
		given = fmt.Sprint("begun-", d.begun)
		d.alive[given] = true
	}
	d.mu.Unlock()
	switch {
	case refused:
		w.Header().Set("WWW-Authenticate", challenges[d.refusal])
		w.WriteHeader(d.refusal)
	case ended:
		// Some servers return the ID of the request, and others none.
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
	case given != "":
		w.Header().Set("Mcp-Session-Id", given)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":`+d.capabilities+`,"serverInfo":{"name":"s","version":"1"}}}`)
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		d.behind(w, r)
	}
}

// restart ends all sessions.
func (d *proxy) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.alive)
}

// lock requires another key from now on.
func (d *proxy) lock() { d.require(http.StatusUnauthorized) }

// limit requires a key with more rights from now on.
func (d *proxy) limit() { d.require(http.StatusForbidden) }

func (d *proxy) require(status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key, d.refusal = "k-2", status
}

// A refusalFixture is a gate in front of a proxy. Its client ann has a session and a key.
type refusalFixture struct {
	*fixture

	proxy    *proxy
	session  string
	key      string
	attached chan struct{} // gets a value when a call attaches to another one

	identity *identity.Authenticator
}

func newRefusalFixture(t *testing.T, adjust func(*conversation.Waiting)) *refusalFixture {
	t.Helper()
	attached := make(chan struct{}, 100)
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		c.Observe = func(_ context.Context, e approval.Event) {
			if e.Step == approval.Attached {
				attached <- struct{}{}
			}
		}
		c.Polling = task.Polling{Min: 10 * time.Millisecond, Max: time.Minute}
		if adjust != nil {
			adjust(w)
		}
	})
	g := behindProxy(t, h, h.serve, "{}")
	g.attached = attached
	return g
}

func behindProxy(t *testing.T, h *fixture, behind http.HandlerFunc, capabilities string) *refusalFixture {
	t.Helper()
	d := &proxy{behind: behind, capabilities: capabilities, alive: make(map[string]bool), key: "k-1"}
	recogniser, err := identity.New(identity.Config{Now: time.Now, Anonymous: true, Tokens: []identity.Token{{Name: "ann", Hash: identity.HashOf(ann.token)}}})
	if err != nil {
		t.Fatal(err)
	}
	h.gateway = startGate(t, serve(t, d.serve), func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting, s.handler.Identity = h.catalog, h.approvals, h.waiting, recogniser
		s.upstream.Sessions = upstream.NewSessions(func() gatestore.Records { return h.store }, s.handler.Log)
	})
	g := &refusalFixture{fixture: h, proxy: d, key: "k-1", identity: recogniser}
	g.begin()
	return g
}

// begin begins a session with the required key.
func (g *refusalFixture) begin() {
	g.t.Helper()
	g.proxy.mu.Lock()
	g.key = g.proxy.key
	g.proxy.mu.Unlock()
	g.session = ""
	_, _, header := g.tell(initialize)
	if g.session = header.Get("Mcp-Session-Id"); g.session == "" {
		g.t.Fatal("no session")
	}
}

// headers returns the client's headers with replacements. Empty ones are omitted.
func (g *refusalFixture) headers(others ...string) []string {
	all := []string{"X-Api-Key", g.key, "Authorization", "Bearer " + ann.token, "Mcp-Protocol-Version", "2025-11-25"}
	for i := 0; i < len(others); i += 2 {
		if at := slices.Index(all, others[i]); at >= 0 {
			all = slices.Delete(all, at, at+2)
		}
		if others[i+1] != "" || others[i] == "Mcp-Session-Id" {
			all = append(all, others[i:i+2]...)
		}
	}
	if !slices.Contains(others, "Mcp-Session-Id") {
		all = append(all, "Mcp-Session-Id", g.session)
	}
	return all
}

// tell sends a message and returns the whole answer.
func (g *refusalFixture) tell(message string, more ...string) (int, string, http.Header) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for pair := range slices.Chunk(g.headers(more...), 2) {
		r.Header.Set(pair[0], pair[1])
	}
	resp, err := g.Client().Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, readBody(g.t, resp), resp.Header
}

// wantRefused checks that a message is refused as the upstream refuses the client.
func (g *refusalFixture) wantRefused(what string, want int, message string, more ...string) {
	g.t.Helper()
	status, body, header := g.tell(message, more...)
	if status != want || header.Get("WWW-Authenticate") != challenges[want] {
		g.t.Errorf("%s: %d %s %s; want %d", what, status, header.Get("WWW-Authenticate"), body, want)
	}
}

// refusals are the ways in which an upstream refuses a known client.
var refusals = map[int]func(*proxy){
	http.StatusNotFound: (*proxy).restart, http.StatusUnauthorized: (*proxy).lock, http.StatusForbidden: (*proxy).limit,
}

// wantRunsOnce checks that a call runs on its earlier approval, and that the next one needs a
// new approval.
func (g *refusalFixture) wantRunsOnce(message, done string, more ...string) {
	g.t.Helper()
	asked := len(g.asks())
	if _, body, _ := g.tell(message, more...); !strings.Contains(body, done) {
		g.t.Errorf("the call that was approved before: %s", body)
	}
	if now := len(g.asks()); now != asked || len(g.pending(0)) != 0 {
		g.t.Errorf("approvers were asked again %d times", now-asked)
	}
	if ran := g.ran(); len(ran) != 1 {
		g.t.Errorf("ran %v", ran)
	}
	next := g.send(message, g.headers(more...)...)
	g.reject(g.pending(1)[0], "enough")
	next.wait(g.t)
}

// asks returns the tasks that approvers were asked about.
func (g *refusalFixture) asks() []task.ID {
	g.t.Helper()
	var asked []task.ID
	page, err := g.store.Entries(g.t.Context(), auditlog.Query{Limit: 1000})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, e := range page {
		if e.Step == string(approval.Asked) {
			asked = append(asked, e.Task)
		}
	}
	return asked
}

// The answer says that the call did not run, and the next request gets the status. Approvers
// are asked once.
func TestRefusedAfterStreamBegan(t *testing.T) {
	for status, refuse := range refusals {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			g := newRefusalFixture(t, nil)
			req := g.send(toolCall("7", "hold_x", ""), g.headers()...)
			id := g.pending(1)[0]
			eventually(t, "the stream has begun", func() bool { return g.state(id).InContact(time.Now()) })
			refuse(g.proxy)
			g.approve(id)
			wantText(t, "held request", req.wait(t), `"isError":true`, "session", "did not run", "exactly the same call")
			if got := g.state(id); got.Failure == nil || got.Failure.Stage != lifecycle.StageSessionGone || got.Failure.Ran != task.RanNo {
				t.Errorf("the task ended as %+v", got.Failure)
			}
			g.wantRefused("the next request", status, `{"jsonrpc":"2.0","id":8,"method":"ping"}`)
			if status == http.StatusNotFound { // until the client begins a new session
				g.wantRefused("the same call", status, toolCall("9", "hold_x", ""))
				g.pending(0)
			}
			g.begin()
			g.wantRunsOnce(toolCall("10", "hold_x", ""), "done hold_x")
		})
	}
}

func (g *refusalFixture) state(id task.ID) task.Task {
	g.t.Helper()
	got, err := g.store.Get(g.t.Context(), task.AnyOwner().Ref(id))
	if err != nil {
		g.t.Fatal(err)
	}
	return got
}

// A heldStore holds back the first read of a task after it was armed.
type heldStore struct {
	*memstore.Store

	armed   atomic.Bool
	reading chan struct{} // gets a value when the read has begun
	goOn    chan struct{}
}

func (s *heldStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if s.armed.CompareAndSwap(true, false) {
		s.reading <- struct{}{}
		<-s.goOn
	}
	return s.Store.Get(ctx, ref)
}

// The call ends after the client has asked for its result, and before the gate reads the task.
func TestRefusedWhileResultIsAskedFor(t *testing.T) {
	for status, refuse := range refusals {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			store := &heldStore{reading: make(chan struct{}, 1), goOn: make(chan struct{})}
			h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
				store.Store = c.Store.(*memstore.Store)
				c.Store, c.Polling = store, task.Polling{Min: time.Minute, Max: time.Hour} // the client counts as present for two minutes
			})
			g := behindProxy(t, h, h.serve, "{}")
			g.tell(toolCall("7", "hold_x", `,"task":{}`))
			id := g.pending(1)[0]
			refuse(g.proxy)
			store.armed.Store(true)
			asked := g.send(legacyAbout("tasks/result", string(id)), g.headers()...)
			<-store.reading
			g.approve(id)
			eventually(t, "the call has ended", func() bool { return g.state(id).State.Terminal() })
			close(store.goOn)
			if body := asked.wait(t); asked.status != status {
				t.Errorf("tasks/result: %d %s; want %d", asked.status, body, status)
			}
		})
	}
}

// The client gets the upstream's status in every way of waiting.
func TestRefusedBeforeStreamBegins(t *testing.T) {
	modern := modernHeaders("hold_x")
	tests := map[string]struct {
		statuses    []int
		first, then string // then is sent with the id of the task or the state instead of ID
		done        string
		headers     []string
	}{
		"events": {[]int{404, 401, 403}, toolCall("7", "hold_x", ""), toolCall("8", "hold_x", ""), "done hold_x", nil},
		"JSON":   {[]int{404, 401, 403}, toolCall("7", "hold_x", ""), toolCall("8", "hold_x", ""), "done hold_x", []string{"Accept", "application/json"}},
		"task":   {[]int{404, 401, 403}, toolCall("7", "hold_x", `,"task":{}`), legacyAbout("tasks/result", "ID"), "tg_", nil},
		"batch": {
			[]int{404, 401, 403},
			"[" + toolCall("7", "hold_x", "") + "]", "[" + toolCall("8", "hold_x", "") + "]", "done hold_x",
			[]string{"Mcp-Protocol-Version", "2025-03-26"},
		},
		"modern": {[]int{401, 403}, modernCall("hold_x", ""), toolCall("8", "hold_x", `,"requestState":"ID",`+modernMeta("")), "done hold_x", modern[:8]},
	}
	for name, tt := range tests {
		for _, status := range tt.statuses {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				g := newRefusalFixture(t, func(w *conversation.Waiting) { w.Hold, w.Heartbeat = 1, time.Hour })
				g.batch = func(w http.ResponseWriter, p jsonrpc.Packet) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `[{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done hold_x"}]}}]`, p.Messages[0].ID.Bytes)
				}
				g.define(`{"name":"hold_x","inputSchema":{"type":"object"}}`)
				_, answer, _ := g.tell(tt.first, tt.headers...)
				id := g.pending(1)[0]
				then := strings.Replace(tt.then, "ID", string(id), 1)
				if _, rest, stated := strings.Cut(answer, `"requestState":"`); stated {
					state, _, _ := strings.Cut(rest, `"`)
					then = strings.Replace(tt.then, "ID", state, 1)
				}
				refusals[status](g.proxy)
				g.approve(id)
				g.settings(func(w *conversation.Waiting) { w.Hold = testTimeout })
				g.wantRefused("a client that comes for it", status, then, tt.headers...)
				eventually(t, "the task has ended", func() bool { return g.state(id).State == task.Failed })
				g.begin()
				again := strings.Replace(tt.first, `"id":7`, `"id":8`, 1)
				if name == "task" {
					again = toolCall("8", "hold_x", "")
				}
				g.wantRunsOnce(again, "done hold_x", tt.headers...)
			})
		}
	}
}

// settings changes how clients wait.
func (g *refusalFixture) settings(change func(*conversation.Waiting)) {
	change(&g.waiting)
	g.conversations.Configure(g.waiting)
}

// The client's task request gets the status. In its next session the task has failed, and the
// client can repeat the call as a task.
func TestTaskOfEndedSessionCanBeRepeated(t *testing.T) {
	for status, refuse := range refusals {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			g := newRefusalFixture(t, nil)
			_, created, _ := g.tell(toolCall("7", "hold_x", `,"task":{}`))
			id := taskID(t, created)
			refuse(g.proxy)
			g.approve(task.ID(id))
			eventually(t, "the client is refused", func() bool {
				got, _, _ := g.tell(legacyAbout("tasks/get", id))
				return got == status
			})
			g.begin()
			var body string
			eventually(t, "the task has ended", func() bool {
				_, body, _ = g.tell(legacyAbout("tasks/get", id))
				return !strings.Contains(body, `"status":"working"`)
			})
			wantText(t, "tasks/get", body, `"status":"failed"`, "did not run")
			_, created, _ = g.tell(toolCall("8", "hold_x", `,"task":{}`))
			_, body, _ = g.tell(legacyAbout("tasks/result", taskID(t, created)))
			wantText(t, "tasks/result", body, "done hold_x")
			if asked := g.asks(); len(asked) != 1 {
				t.Errorf("approvers were asked %d times", len(asked))
			}
		})
	}
}

// Any request may have found out that the session has ended.
func TestNothingIsHeldInEndedSession(t *testing.T) {
	for name, message := range map[string]string{
		"forwarded call": toolCall("6", "get_x", ""),
		"held call":      toolCall("7", "hold_x", ""), // the upstream is asked for its definition
	} {
		t.Run(name, func(t *testing.T) {
			g := newRefusalFixture(t, nil)
			g.proxy.restart()
			g.wantRefused(name, http.StatusNotFound, message)
			g.wantRefused("call", http.StatusNotFound, toolCall("8", "hold_x", ""))
			g.wantRefused("task", http.StatusNotFound, toolCall("9", "hold_x", `,"task":{}`))
			if asked := g.asks(); len(asked) != 0 {
				t.Errorf("approvers were asked %d times", len(asked))
			}
		})
	}
}

// Another session of the same agent waits for the same call.
func TestOtherSessionIsNotRefused(t *testing.T) {
	g := newRefusalFixture(t, nil)
	first := g.send(toolCall("7", "hold_x", ""), g.headers()...)
	id := g.pending(1)[0]
	ended := g.session
	eventually(t, "the first one waits", func() bool { return g.state(id).InContact(time.Now()) })
	g.begin()
	second := g.send(toolCall("8", "hold_x", ""), g.headers()...)
	<-g.attached
	g.proxy.mu.Lock()
	delete(g.proxy.alive, ended)
	g.proxy.mu.Unlock()
	g.approve(id)
	one, other := first.wait(t), second.wait(t)
	if strings.Contains(one, "done") != strings.Contains(other, "done") || first.status == 404 || second.status == 404 {
		t.Errorf("%d %s\n%d %s", first.status, one, second.status, other)
	}
	if status, body, _ := g.tell(toolCall("9", "get_x", "")); status != http.StatusOK {
		t.Errorf("the other session: %d %s", status, body)
	}
}

// A 404 without a session may have any reason.
func TestNotFoundWithoutSessionUsesUpApproval(t *testing.T) {
	g := newRefusalFixture(t, nil)
	g.session = ""
	g.answer = func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusNotFound) }
	req := g.send(toolCall("7", "hold_x", ""), g.headers()...)
	g.approve(g.pending(1)[0])
	wantText(t, "held request", req.wait(t), `"upstream_error"`)
	again := g.send(toolCall("8", "hold_x", ""), g.headers()...)
	g.reject(g.pending(1)[0], "no")
	again.wait(t)
}

// signedOut has a token until its person must sign in.
type signedOut struct{ now atomic.Bool }

const signInLink = "https://as.example/authorize?state=s3cret"

func (o *signedOut) Token(context.Context, httpclient.Peer, http.Header) (string, error) {
	if o.now.Load() {
		return "", &mcp.Problem{Type: mcp.NotConnected, Detail: "open " + signInLink}
	}
	return "t", nil
}

func (o *signedOut) Renew(context.Context, httpclient.Peer, http.Header, httpclient.RefusedToken) (string, error) {
	return "", nil
}

// The client is told how its person signs in, also after its stream has begun. The task does not keep the link.
func TestSignInIsToldOnStream(t *testing.T) {
	o := new(signedOut)
	g := newRefusalFixture(t, nil)
	g.gateway = startGate(t, serve(t, g.proxy.serve), func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting, s.handler.Identity = g.catalog, g.approvals, g.waiting, g.identity
		s.upstream.Tokens = o
	})
	g.begin()
	req := g.send(toolCall("7", "hold_x", ""), g.headers()...)
	id := g.pending(1)[0]
	eventually(t, "the stream has begun", func() bool { return g.state(id).InContact(time.Now()) })
	o.now.Store(true)
	g.approve(id)
	wantText(t, "held request", req.wait(t), `"isError":true`, signInLink, "exactly the same call", "did not run")
	if f := g.state(id).Failure; f == nil || f.Stage != lifecycle.StageSessionGone || f.Reason == "" || strings.Contains(f.Reason, "s3cret") {
		t.Errorf("the task ended as %+v", f)
	}
	o.now.Store(false)
	g.wantRunsOnce(toolCall("8", "hold_x", ""), "done hold_x")
}

// A 403 that does not ask for scopes is the answer of the server to the call.
func TestForbiddenUsesUpApproval(t *testing.T) {
	for name, challenge := range map[string]string{
		"no challenge":           "",
		"another error":          `Bearer error="invalid_request", scope="admin"`,
		"another scheme":         `Basic error="insufficient_scope"`,
		"in a text of the error": `Bearer error="access_denied", error_description="error=insufficient_scope"`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newRefusalFixture(t, nil)
			g.answer = func(w http.ResponseWriter, _ string) {
				w.Header().Set("WWW-Authenticate", challenge)
				w.WriteHeader(http.StatusForbidden)
			}
			req := g.send(toolCall("7", "hold_x", ""), g.headers()...)
			g.approve(g.pending(1)[0])
			wantText(t, "held request", req.wait(t), `"upstream_error"`)
			again := g.send(toolCall("8", "hold_x", ""), g.headers()...)
			g.reject(g.pending(1)[0], "no")
			again.wait(t)
		})
	}
}

// An anonymous client gets the 404. A session that reuses the ID is a new one.
func TestAnonymousSessionEnds(t *testing.T) {
	g := newRefusalFixture(t, nil)
	anonymous := []string{"Authorization", ""}
	_, _, header := g.tell(initialize, append(anonymous, "Mcp-Session-Id", "")...)
	anonymous = append(anonymous, "Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	req := g.send(toolCall("7", "hold_x", ""), g.headers(anonymous...)...)
	id := g.pending(1)[0]
	g.proxy.restart()
	g.approve(id)
	wantText(t, "held request", req.wait(t), "did not run")
	g.wantRefused("its next request", http.StatusNotFound, toolCall("8", "get_x", ""), anonymous...)
	g.proxy.mu.Lock()
	g.proxy.begun = 1 // so that the next session has the same id
	g.proxy.mu.Unlock()
	g.tell(initialize, "Authorization", "", "Mcp-Session-Id", "")
	if status, body, _ := g.tell(toolCall("9", "get_x", ""), anonymous...); status != http.StatusOK {
		t.Errorf("the new session: %d %s", status, body)
	}
}

// The client gets the status, and the call continues.
func TestRefusedClientLeavesNestedTaskRunning(t *testing.T) {
	for status, refuse := range refusals {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			p := newTaskFixture(t, nil)
			g := behindProxy(t, p.fixture, p.server.serve, `{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`)
			_, created, _ := g.tell(toolCall("7", "hold_required", `,"task":{}`))
			id := task.ID(taskID(t, created))
			g.approve(id)
			eventually(t, "the upstream has a task", func() bool {
				x := g.state(id).Execution
				return x != nil && x.UpstreamTask != ""
			})
			refuse(g.proxy)
			g.wantRefused("tasks/get", status, legacyAbout("tasks/get", string(id)))
			g.wantRefused("tasks/result", status, legacyAbout("tasks/result", string(id)))
			if state := g.state(id).State; state != task.Executing {
				t.Errorf("the task is %s", state)
			}
			want := `"status":"working"`
			if g.key = "k-2"; status == http.StatusNotFound {
				g.begin()
				want = "may have run" // the upstream forgets its tasks with the session
			}
			_, body, _ := g.tell(legacyAbout("tasks/get", string(id)))
			wantText(t, "tasks/get of a client that is accepted", body, want)
		})
	}
}

// After an upstream has asked a question, it is unknown whether the call ran. Approvers are
// asked again.
func TestRefusedAfterQuestionMayHaveRun(t *testing.T) {
	g := newRefusalFixture(t, nil)
	g.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","requestState":"theirs","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"sure?"}}}}}`, id)
	}
	headers := modernHeaders("hold_x")[:8]
	headers[0] = "Mcp-Protocol-Version"
	req := g.send(modernCall("hold_x", ""), g.headers(headers...)...)
	id := g.pending(1)[0]
	g.approve(id)
	state := stateIn(t, req.wait(t))
	g.proxy.lock()
	g.wantRefused("the answer to the question", http.StatusUnauthorized,
		strings.Replace(modernCall("hold_x", ""), `"arguments"`, `"requestState":"`+state+`","inputResponses":{"q":{"action":"accept"}},"arguments"`, 1), headers...)
	if got := g.state(id).Failure; got == nil || got.Stage != lifecycle.StageUpstreamError || got.Ran != task.RanUnknown {
		t.Errorf("the task ended as %+v", got)
	}
	g.key = "k-2"
	again := g.send(modernCall("hold_x", ""), g.headers(headers...)...)
	eventually(t, "approvers are asked again, or see the outcome of the first call", func() bool {
		select {
		case <-again.done:
			return true
		default:
			return len(g.asks()) == 2
		}
	})
	if strings.Contains(again.body, "theirs") || len(g.ran()) > 2 {
		t.Errorf("it ran again: %v %s", g.ran(), again.body)
	}
}

// An upstream that refuses the client and also sends the result has run the call. The approval
// is used up.
func TestRefusalWithResultMayHaveRun(t *testing.T) {
	const result = `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`
	for name, tt := range map[string]struct {
		call, kind, answer string
		more               []string
	}{
		"JSON":   {toolCall("7", "hold_x", ""), "application/json", result, nil},
		"events": {toolCall("7", "hold_x", ""), "text/event-stream", "data: " + result + "\n\n", nil},
		"batch":  {"[" + toolCall("7", "hold_x", "") + "]", "application/json", "[" + result + "]", []string{"Mcp-Protocol-Version", "2025-03-26"}},
	} {
		for _, status := range []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				g := newRefusalFixture(t, nil)
				g.answer = func(w http.ResponseWriter, id string) {
					w.Header().Set("Content-Type", tt.kind)
					w.WriteHeader(status)
					fmt.Fprintf(w, tt.answer, id)
				}
				g.batch = func(w http.ResponseWriter, p jsonrpc.Packet) { g.answer(w, string(p.Messages[0].ID.Bytes)) }
				req := g.send(tt.call, g.headers(tt.more...)...)
				id := g.pending(1)[0]
				g.approve(id)
				req.wait(t)
				if got := g.state(id).Failure; got == nil || got.Stage != lifecycle.StageUpstreamInvalid || got.Ran != task.RanUnknown {
					t.Fatalf("the task ended as %+v", got)
				}
				g.begin()
				again := g.send(tt.call, g.headers(tt.more...)...)
				g.reject(g.pending(1)[0], "no")
				again.wait(t)
				if ran := g.ran(); len(ran) != 1 {
					t.Errorf("ran %v", ran)
				}
			})
		}
	}
}

// A modern request belongs to no session: 404 means that the method is unknown.
func TestModernNotFoundKeepsSession(t *testing.T) {
	g := newRefusalFixture(t, nil)
	g.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, id)
	}
	headers := modernHeaders("hold_x")[:6]
	headers[0] = "Mcp-Protocol-Version"
	req := g.send(modernCall("hold_x", ""), g.headers(headers...)...)
	id := g.pending(1)[0]
	g.approve(id)
	wantText(t, "held request", req.wait(t), "no such method")
	if got := g.state(id).Failure; got == nil || got.Stage != lifecycle.StageUpstreamError {
		t.Errorf("the task ended as %+v", got)
	}
	g.answer = nil
	if status, body, _ := g.tell(toolCall("9", "get_x", "")); status != http.StatusOK {
		t.Errorf("the session: %d %s", status, body)
	}
}
