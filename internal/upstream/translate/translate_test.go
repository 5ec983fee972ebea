package translate_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/translate"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// newTranslator returns a translator for the server that handler is.
func newTranslator(t *testing.T, patience time.Duration, handler http.HandlerFunc) *translate.Translator {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return newReplica(t, patience, server.URL, memstore.New(memstore.Options{}))
}

// newReplica returns a translator for the server at an address, with a store that others may share.
func newReplica(t *testing.T, patience time.Duration, address string, store gatestore.Records) *translate.Translator {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	sessions := upstream.NewSessions(func() gatestore.Records { return store }, slog.New(slog.DiscardHandler))
	client := httpclient.New(httpclient.Config{Name: "server", URL: at, ResponseTimeout: time.Minute, CallTimeout: time.Minute, Sessions: sessions, ForwardAuthorization: true, CredentialHeaders: []string{"X-User"}})
	tr := translate.New(translate.Config{Name: "server", Client: client, Sessions: sessions, MaxMessage: 1 << 20, Patience: patience})
	t.Cleanup(func() { tr.Close(); client.Close() })
	return tr
}

// A sent request is a message of a client.
type sent struct {
	principal string
	session   string
	body      string
	header    http.Header
}

// ask sends a message and returns the status, the answer, and the session that began with it.
func ask(t *testing.T, tr *translate.Translator, m sent) (status int, answer, session string) {
	t.Helper()
	resp, leave, err := open(t, tr, m)
	defer leave()
	if err != nil {
		return 0, err.Error(), ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header.Get("Mcp-Session-Id")
}

// open sends a message, or a GET without one. The client is there until it calls leave.
func open(t *testing.T, tr *translate.Translator, m sent) (resp *http.Response, leave context.CancelFunc, err error) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	method := http.MethodPost
	if m.body == "" {
		method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(ctx, method, "/", strings.NewReader(m.body))
	maps.Copy(r.Header, m.header)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if m.session != "" {
		r.Header.Set("Mcp-Session-Id", m.session)
	}
	resp, err = tr.RoundTrip(r, httpclient.Peer{Principal: m.principal, Owner: m.principal})
	return resp, leave, err
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}`

// askingServer is a legacy server whose tool asks a question. answered gets the client's answers, and
// cancelled the requests that were cancelled.
func askingServer(answered, cancelled chan<- string) http.HandlerFunc {
	waiting := make(chan string, 10)
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
			Result json.RawMessage
			Params struct{ RequestID json.RawMessage }
		}
		json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"asks","version":"1"}}}`)
		case m.Method == "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q1\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"sure?\",\"elicitationId\":\"x\"}}\n\n")
			w.(http.Flusher).Flush()
			select {
			case answer := <-waiting:
				io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":"+string(m.ID)+",\"result\":{\"content\":[{\"type\":\"text\",\"text\":"+answer+"}]}}\n\n")
			case <-r.Context().Done():
			}
		case m.Result != nil:
			answered <- string(m.Result)
			text, _ := json.Marshal(string(m.Result))
			waiting <- string(text)
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "notifications/cancelled":
			cancelled <- string(m.Params.RequestID)
			w.WriteHeader(http.StatusAccepted)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: no session"}}`)
		}
	}
}

func call(id, tool, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"n":1}` + more + `,` + modernMeta + `}}`
}

// stateOf returns the requestState of an answer, and the key of its question.
func stateOf(t *testing.T, answer string) (state, key string) {
	t.Helper()
	var m struct {
		Result struct {
			ResultType    string
			RequestState  string
			InputRequests map[string]struct {
				Method string
				Params map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(answer), "data: ")), &m); err != nil || m.Result.ResultType != "input_required" {
		t.Fatalf("the answer is no question: %s (%v)", answer, err)
	}
	for k, q := range m.Result.InputRequests {
		if q.Method != "elicitation/create" || q.Params["elicitationId"] != nil {
			t.Errorf("the question is %+v", q)
		}
		key = k
	}
	return m.Result.RequestState, key
}

// Only the client that was asked answers a server's question, and only for the same call.
func TestQuestionBelongsToItsCall(t *testing.T) {
	answered := make(chan string, 10)
	tr := newTranslator(t, time.Minute, askingServer(answered, make(chan string, 10)))
	_, asked, _ := ask(t, tr, sent{principal: "ann", body: call("1", "delete", "")})
	state, key := stateOf(t, asked)
	answer := `,"requestState":"` + state + `","inputResponses":{"` + key + `":{"action":"accept"}}`
	for name, other := range map[string]sent{
		"another client": {principal: "bob", body: call("2", "delete", answer)},
		"another tool":   {principal: "ann", body: call("2", "drop", answer)},
	} {
		if _, text, _ := ask(t, tr, other); !strings.Contains(text, "does not wait for this answer") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if _, text, _ := ask(t, tr, sent{principal: "ann", body: call("3", "delete", `,"requestState":"`+state+`"`)}); !strings.Contains(text, "input_required") {
		t.Errorf("without an answer: %s", text)
	} else {
		state, key = stateOf(t, text)
	}
	answer = `,"requestState":"` + state + `","inputResponses":{"` + key + `":{"action":"accept"}}`
	_, text, _ := ask(t, tr, sent{principal: "ann", body: call("4", "delete", answer)})
	if !strings.Contains(text, `"id":4`) || !strings.Contains(text, "accept") || !strings.Contains(text, `"resultType":"complete"`) {
		t.Fatalf("the call ended with %s", text)
	}
	if got := <-answered; got != `{"action":"accept"}` {
		t.Errorf("the server got %s", got)
	}
	if _, text, _ := ask(t, tr, sent{principal: "ann", body: call("5", "delete", answer)}); !strings.Contains(text, "does not wait for this answer") {
		t.Errorf("the second answer: %s", text)
	}
}

// A question that nobody answers does not keep the server waiting for ever.
func TestQuestionExpires(t *testing.T) {
	cancelled := make(chan string, 1)
	tr := newTranslator(t, time.Millisecond, askingServer(make(chan string, 1), cancelled))
	_, asked, _ := ask(t, tr, sent{principal: "ann", body: call("1", "delete", "")})
	state, key := stateOf(t, asked)
	<-cancelled
	late := call("2", "delete", `,"requestState":"`+state+`","inputResponses":{"`+key+`":{"action":"accept"}}`)
	if _, text, _ := ask(t, tr, sent{principal: "ann", body: late}); !strings.Contains(text, "came too late") {
		t.Errorf("the late answer: %s", text)
	}
}

// modernServer is a modern server whose tool wants an argument repeated in a header.
func modernServer(calls *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct{ ID json.RawMessage }
		json.Unmarshal(body, &m)
		result := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		w.Header().Set("Content-Type", "application/json")
		switch r.Header.Get("Mcp-Method") {
		case "tools/list":
			result = `{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"query","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}},"outputSchema":{"type":"array"}}]}`
		case "tools/call":
			if r.Header.Get("Mcp-Param-Region") != "eu" || r.Header.Get("Mcp-Name") != "query" {
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32020,"message":"Mcp-Param-Region is missing"}}`)
				return
			}
			calls.Add(1)
			result = `{"resultType":"complete","content":[],"structuredContent":[1]}`
		case "unknown":
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32601,"message":"no such method"}}`)
			return
		}
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)
	}
}

// A legacy client works with a modern server, which demands headers that the client does not know, and
// answers in ways that the client would misunderstand.
func TestLegacyClientOfModernServer(t *testing.T) {
	var calls atomic.Int64
	tr := newTranslator(t, time.Minute, modernServer(&calls))
	status, text, session := ask(t, tr, sent{principal: "ann", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`})
	if status != http.StatusOK || session == "" || !strings.Contains(text, `"protocolVersion":"2025-06-18"`) {
		t.Fatalf("initialize: %d %s", status, text)
	}
	for _, test := range []struct{ name, principal, method, params, want string }{
		{"mirrored argument", "ann", "tools/call", `{"name":"query","arguments":{"region":"eu"}}`, `{"jsonrpc":"2.0","id":9,"result":{"content":[]}}`},
		{"again", "ann", "tools/call", `{"name":"query","arguments":{"region":"eu"}}`, `{"jsonrpc":"2.0","id":9,"result":{"content":[]}}`},
		{"wrong argument", "ann", "tools/call", `{"name":"query","arguments":{"region":"us"}}`, `"code":-32600`},
		{"list", "ann", "tools/list", `{}`, `{"jsonrpc":"2.0","id":9,"result":{"tools":[{"name":"query","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}`},
		{"method", "ann", "unknown", `{}`, `"code":-32601`},
		{"task", "ann", "tasks/get", `{"taskId":"1"}`, `"code":-32601`},
		{"ping", "ann", "ping", `{}`, `"result":{}`},
		{"level", "ann", "logging/setLevel", `{"level":"loud"}`, `"code":-32602`},
	} {
		body := `{"jsonrpc":"2.0","id":9,"method":"` + test.method + `","params":` + test.params + `}`
		if status, text, _ := ask(t, tr, sent{principal: test.principal, session: session, body: body}); status != http.StatusOK || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %s; want %s", test.name, status, text, test.want)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("the tool ran %d times; want 2", n)
	}
	// The session belongs to its principal.
	if status, text, _ := ask(t, tr, sent{principal: "bob", session: session, body: `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`}); status != http.StatusNotFound {
		t.Errorf("another principal: %d %s", status, text)
	}
}

// legacyServer answers the messages of a client in a session that handle does not answer.
func legacyServer(handle func(w http.ResponseWriter, r *http.Request, method, id string) bool) http.HandlerFunc {
	var sessions atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case handle(w, r, m.Method, string(m.ID)):
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s"+strconv.FormatInt(sessions.Add(1), 10))
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"old","version":"1"}}}`)
		case m.Method == "server/discover":
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32601,"message":"Method not found"}}`)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[]}}`)
		}
	}
}

// A request in a shared session has the headers of its own client, and other credentials are another
// session.
func TestHeadersBelongToTheirRequest(t *testing.T) {
	seen := make(chan string, 10)
	tr := newTranslator(t, time.Minute, legacyServer(func(_ http.ResponseWriter, r *http.Request, method, _ string) bool {
		if method == "tools/call" {
			seen <- r.Header.Get("Mcp-Session-Id") + " " + r.Header.Get("X-Tenant") + " " + r.Header.Get("Authorization")
		}
		return false
	}))
	for _, test := range []struct{ tenant, authorization, want string }{
		{"one", "Bearer 1", "s1 one Bearer 1"},
		{"two", "Bearer 1", "s1 two Bearer 1"},
		{"two", "Bearer 2", "s2 two Bearer 2"},
	} {
		header := http.Header{"X-Tenant": {test.tenant}, "Authorization": {test.authorization}}
		ask(t, tr, sent{principal: "ann", body: call("1", "delete", ""), header: header})
		if got := <-seen; got != test.want {
			t.Errorf("the server got %q; want %q", got, test.want)
		}
	}
}

// A server that is busy when it is asked for its era is not taken for another one.
func TestBusyServerKeepsItsEra(t *testing.T) {
	var calls, asked atomic.Int64
	serve := modernServer(&calls)
	tr := newTranslator(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		serve(w, r)
	})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`
	header := http.Header{"Mcp-Method": {"tools/list"}}
	if status, text, _ := ask(t, tr, sent{principal: "ann", body: list, header: header}); status != http.StatusTooManyRequests {
		t.Errorf("the busy server: %d %s", status, text)
	}
	if status, text, _ := ask(t, tr, sent{principal: "ann", body: list, header: header}); status != http.StatusOK || !strings.Contains(text, `"query"`) {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

// A session begins for all clients that wait for it, also if the first one leaves.
func TestFirstClientOfSessionLeaves(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	tr := newTranslator(t, time.Minute, legacyServer(func(_ http.ResponseWriter, _ *http.Request, method, _ string) bool {
		if method == "initialize" {
			close(began)
			<-goOn
		}
		return false
	}))
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(call("1", "delete", "")))
	go func() {
		_, err := tr.RoundTrip(r, httpclient.Peer{Principal: "ann", Owner: "ann"})
		first <- err
	}()
	<-began
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first client: %v", err)
	}
	close(goOn)
	if status, text, _ := ask(t, tr, sent{principal: "ann", body: call("2", "delete", "")}); status != http.StatusOK {
		t.Errorf("the second client: %d %s", status, text)
	}
}

// A client cannot make the gate ask a server for any number of resources.
func TestSubscriptionsAreLimited(t *testing.T) {
	var subscribed atomic.Int64
	tr := newTranslator(t, time.Minute, legacyServer(func(_ http.ResponseWriter, _ *http.Request, method, _ string) bool {
		if method == "resources/subscribe" {
			subscribed.Add(1)
		}
		return false
	}))
	ctx, leave := context.WithCancel(t.Context())
	uris := strings.TrimSuffix(manyURIs(500), ",")
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[` + uris + `]},` + modernMeta + `}}`
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	resp, err := tr.RoundTrip(r, httpclient.Peer{Principal: "ann", Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if n := subscribed.Load(); n == 0 || n > 100 {
		t.Errorf("%d subscriptions at the server", n)
	}
	leave()
	resp.Body.Close()
}

func manyURIs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`"a://` + strconv.Itoa(i) + `",`)
	}
	return b.String()
}

// What a legacy client says never makes its session too large to be kept.
func TestLargeSession(t *testing.T) {
	var calls atomic.Int64
	tr := newTranslator(t, time.Minute, modernServer(&calls))
	begin := func(info string) (string, string) {
		_, text, session := ask(t, tr, sent{principal: "ann", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"` + info + `","version":"1"}}}`})
		return text, session
	}
	if text, session := begin(strings.Repeat("x", 70<<10)); session != "" || !strings.Contains(text, `"code":-32602`) {
		t.Errorf("a large introduction: session %q, %.200s", session, text)
	}
	_, session := begin("old")
	for i := range 3 {
		uri := strings.Repeat("x", 20<<10) + strconv.Itoa(i)
		ask(t, tr, sent{principal: "ann", session: session, body: `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"` + uri + `"}}`})
	}
	if status, text, _ := ask(t, tr, sent{principal: "ann", session: session, body: `{"jsonrpc":"2.0","id":3,"method":"ping"}`}); status != http.StatusOK {
		t.Errorf("the session after large subscriptions: %d %s", status, text)
	}
}

// Clients of different principals have different sessions with a legacy server.
func TestSessionsOfPrincipals(t *testing.T) {
	var begun atomic.Int64
	serve := askingServer(make(chan string, 1), make(chan string, 1))
	tr := newTranslator(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"initialize"`) {
			begun.Add(1)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		serve(w, r)
	})
	for _, principal := range []string{"ann", "bob", "ann"} {
		if _, text, _ := ask(t, tr, sent{principal: principal, body: `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`}); !strings.Contains(text, `"asks"`) {
			t.Fatalf("%s: %s", principal, text)
		}
	}
	if n := begun.Load(); n != 2 {
		t.Errorf("two principals have %d sessions", n)
	}
}

// A modern client gets refusals with the status of its era.
func TestStatusOfRefusals(t *testing.T) {
	serve := askingServer(make(chan string, 1), make(chan string, 1))
	tr := newTranslator(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"needs-roots"`) {
			var m struct{ ID json.RawMessage }
			json.Unmarshal(body, &m)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32021,"message":"roots are missing"}}`)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		serve(w, r)
	})
	status, text, _ := ask(t, tr, sent{principal: "ann", body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"needs-roots",` + modernMeta + `}}`})
	if status != http.StatusBadRequest || !strings.Contains(text, `"code":-32021`) {
		t.Errorf("a missing capability: %d %s", status, text)
	}
	later := strings.Replace(modernMeta, "2026-07-28", "2027-01-01", 1)
	_, text, _ = ask(t, tr, sent{principal: "ann", body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + later + `}}`})
	if !strings.Contains(text, "unsupported protocol version") {
		t.Errorf("an unknown version: %s", text)
	}
}
