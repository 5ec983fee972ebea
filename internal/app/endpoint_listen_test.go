package app_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
)

// The official client hears of changes at all of its servers.
func TestEndpointNotifiesOfficialClient(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			r := startThree(t, version, "rules: [{match: '*', action: forward}]\ndefault: deny\n")
			tools, updates := make(chan struct{}, 100), make(chan string, 100)
			cs := r.connect(version, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { tools <- struct{}{} },
				ResourceUpdatedHandler: func(_ context.Context, n *mcp.ResourceUpdatedNotificationRequest) { updates <- n.Params.URI },
			})
			defer cs.Close()
			for _, name := range []string{"files", "crm"} {
				if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: name + "://own"}); err != nil {
					t.Fatal(err)
				}
				// A legacy client may open its stream for such messages later.
				eventually(t, "the client hears of the tools of "+name, func() bool {
					r.servers[name].AddTool(&mcp.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, nil)
					select {
					case <-tools:
						return true
					case <-time.After(100 * time.Millisecond):
						return false
					}
				})
				eventually(t, "the client hears of the resource of "+name, func() bool {
					for _, uri := range []string{name + "://items/1", name + "://own"} {
						if err := r.servers[name].ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
							t.Fatal(err)
						}
					}
					select {
					case uri := <-updates:
						if uri != name+"://own" {
							t.Errorf("an update of %s", uri)
						}
						return true
					case <-time.After(100 * time.Millisecond):
						return false
					}
				})
			}
		})
	}
}

// A listenServer is a server of MCP 2026-07-28 with notifications, which can be stopped.
type listenServer struct {
	name    string
	offers  bool // subscriptions
	acks    atomic.Bool
	streams atomic.Int64 // that are open
	events  chan string  // to send, with ID in place of that of the subscription
	gone    chan struct{}

	mu    sync.Mutex
	http  *httptest.Server
	addr  string
	asked []string // filters
}

func newListenServer(t *testing.T, name string, offers bool) *listenServer {
	t.Helper()
	s := &listenServer{name: name, offers: offers, events: make(chan string), gone: make(chan struct{})}
	s.acks.Store(true)
	s.start(t)
	t.Cleanup(func() { close(s.gone); s.stop() })
	return s
}

func (s *listenServer) start(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http = httptest.NewUnstartedServer(s)
	if s.addr != "" {
		eventually(t, "the address is free", func() bool {
			l, err := net.Listen("tcp", s.addr)
			if err == nil {
				s.http.Listener.Close()
				s.http.Listener = l
			}
			return err == nil
		})
	}
	s.http.Start()
	s.addr = s.http.Listener.Addr().String()
}

func (s *listenServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http.CloseClientConnections()
	s.http.Close()
}

func (s *listenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	body, id := string(text), idOf(text)
	answer := func(rest string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, id, rest)
	}
	switch {
	case strings.Contains(body, `"server/discover"`):
		answer(`"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}}`)
	case strings.Contains(body, `"resources/list"`):
		answer(`"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","resources":[{"name":"r","uri":"` + s.name + `://r"},{"name":"d","uri":"` + s.name + `://d/"}]}`)
	case strings.Contains(body, `"tools/list"`):
		answer(`"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"x","inputSchema":{"type":"object"}}]}`)
	case !strings.Contains(body, `"subscriptions/listen"`), !s.offers:
		w.WriteHeader(http.StatusNotFound)
		answer(`"error":{"code":-32601,"message":"Method not found"}`)
	default:
		s.listen(w, r, body, id)
	}
}

func (s *listenServer) listen(w http.ResponseWriter, r *http.Request, body, id string) {
	_, filter, _ := strings.Cut(body, `"notifications":`)
	filter, _, _ = strings.Cut(filter, `,"_meta"`)
	s.mu.Lock()
	s.asked = append(s.asked, filter)
	s.mu.Unlock()
	s.streams.Add(1)
	defer s.streams.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	if s.acks.Load() {
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s},\"notifications\":%s}}\n\n", id, filter)
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case e := <-s.events:
			fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(e, "ID", id))
			_ = http.NewResponseController(w).Flush()
		case <-s.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *listenServer) lastAsked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return ""
	}
	return s.asked[len(s.asked)-1]
}

// note returns a notification of a subscription.
func note(method, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/subscriptionId":ID}}}`
}

func startListenServers(t *testing.T, more string, servers ...*listenServer) *app.App {
	t.Helper()
	text, endpoint := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\nlimits: {request_timeout: 2s}\n"+more+"upstreams:\n", "endpoints: [{servers: ["
	for _, s := range servers {
		text += "- {name: " + s.name + ", url: 'http://" + s.addr + "/', connect_timeout: 1s}\n"
		endpoint += "{upstream: " + s.name + "}, "
	}
	gate, stop := start(t, text+endpoint+"]}]\n")
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return gate
}

// taskMeta is the metadata of a modern client with tasks.
const taskMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// modern sends a request of a modern client, and returns the response.
func modern(ctx context.Context, t *testing.T, gate *app.App, method, params string) *http.Response {
	t.Helper()
	if params != "" {
		params += ","
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+gate.AgentAddr()+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":"l1","method":"`+method+`","params":{`+params+taskMeta+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": modernVersion, "Mcp-Method": method} {
		r.Header.Set(name, value)
	}
	if method == "tools/call" {
		r.Header.Set("Mcp-Name", "x")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// A hearing is the stream of a subscription.
type hearing struct {
	*testing.T
	messages chan string // closed at its end
	leave    func()
}

func hearAll(t *testing.T, gate *app.App, filter string) *hearing {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	resp := modern(ctx, t, gate, "subscriptions/listen", `"notifications":`+filter)
	h := &hearing{T: t, messages: make(chan string, 1000), leave: leave}
	t.Cleanup(leave)
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d, %s", resp.StatusCode, text)
	}
	go func() {
		defer close(h.messages)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				h.messages <- data
			}
		}
	}()
	return h
}

// want waits for a message with all texts.
func (h *hearing) want(texts ...string) {
	h.Helper()
	select {
	case m, ok := <-h.messages:
		if !ok {
			h.Fatal("the stream has ended")
		}
		has(h.T, m, append(texts, `"io.modelcontextprotocol/subscriptionId":"l1"`)...)
	case <-time.After(patience):
		h.Fatalf("no message with %q", texts)
	}
}

// await skips messages until one with a text.
func (h *hearing) await(text string) {
	h.Helper()
	timeout := time.After(patience)
	for {
		select {
		case m, ok := <-h.messages:
			if !ok {
				h.Fatal("the stream has ended")
			}
			if strings.Contains(m, text) {
				return
			}
		case <-timeout:
			h.Fatalf("no message with %q", text)
		}
	}
}

// A client gets one stream with what it asked for, and each server is asked for its part.
func TestEndpointSubscription(t *testing.T) {
	for _, rules := range []string{"", "rules: [{match: '*', action: forward}]\ndefault: deny\n"} {
		a, b, c := newListenServer(t, "a", true), newListenServer(t, "b", true), newListenServer(t, "c", false)
		gate := startListenServers(t, rules, a, b, c)
		h := hearAll(t, gate, `{"toolsListChanged":true,"resourceSubscriptions":["b://r","b://d/","none://x"],"taskIds":["unknown"]}`)
		h.want(`notifications/subscriptions/acknowledged`, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["b://r","b://d/"]}`)
		if got, want := a.lastAsked(), `{"toolsListChanged":true}`; got != want {
			t.Errorf("a was asked for %s; want %s", got, want)
		}
		if got, want := b.lastAsked(), `{"toolsListChanged":true,"resourceSubscriptions":["b://r","b://d/"]}`; got != want {
			t.Errorf("b was asked for %s; want %s", got, want)
		}
		for _, unwanted := range []string{
			note("prompts/list_changed", ""), note("resources/updated", `"uri":"b://r",`), note("tasks", `"taskId":"t",`), note("message", `"level":"info","data":"x",`),
			`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			strings.ReplaceAll(note("tools/list_changed", ""), "ID", `"other"`), `{"jsonrpc":"2.0","id":"other","result":{}}`, `[]`, `nonsense`,
		} {
			a.events <- unwanted
		}
		b.events <- note("resources/updated", `"uri":"b://r",`)
		h.want(`notifications/resources/updated`, `"uri":"b://r"`)
		b.events <- note("resources/updated", `"uri":"b://d/part",`)
		h.want(`"uri":"b://d/part"`)
		for range 5 {
			a.events <- note("tools/list_changed", "")
			b.events <- note("tools/list_changed", "")
		}
		h.want(`notifications/tools/list_changed`)
		h.leave()
		eventually(t, "the servers are not listened to", func() bool { return a.streams.Load()+b.streams.Load() == 0 })
	}
}

// A server that dies is asked again when it is back. The client then hears that lists and resources may
// have changed. A server that is away or slow at the begin is no reason to wait for long.
func TestEndpointSubscriptionReturns(t *testing.T) {
	a, b := newListenServer(t, "a", true), newListenServer(t, "b", true)
	gate := startListenServers(t, "rules: [{match: '*', action: forward}]\ndefault: deny\n", a, b)
	h := hearAll(t, gate, `{"toolsListChanged":true,"resourceSubscriptions":["b://r"]}`)
	h.want("acknowledged", "b://r")

	b.stop()
	eventually(t, "the server is away", func() bool {
		resp := modern(t.Context(), t, gate, "tools/list", "")
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(text), `"thoughtgate/stale":["b"]`) || strings.Contains(string(text), `"thoughtgate/unavailable":[{"server":"b"`)
	})
	a.events <- note("tools/list_changed", "")
	h.await("tools/list_changed")
	late := hearAll(t, gate, `{"toolsListChanged":true,"resourceSubscriptions":["b://r"]}`)
	late.want("acknowledged", "b://r")

	b.start(t)
	for _, of := range []*hearing{h, late} {
		of.await(`"uri":"b://r"`)
		of.await("tools/list_changed")
	}
	eventually(t, "both clients listen", func() bool { return b.streams.Load() == 2 })

	b.acks.Store(false)
	slow := hearAll(t, gate, `{"toolsListChanged":true}`)
	slow.want("acknowledged")
	a.events <- note("tools/list_changed", "")
}

// What no server offers, or what needs a capability, is refused; the end of the gate ends the stream.
func TestEndpointSubscriptionEnds(t *testing.T) {
	a, b := newListenServer(t, "a", false), newListenServer(t, "b", false)
	gate := startListenServers(t, "", a, b)
	resp := modern(t.Context(), t, gate, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if has(t, string(text), `"code":-32601`); resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", resp.StatusCode)
	}

	c, d := newListenServer(t, "c", true), newListenServer(t, "d", true)
	held, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\n"+
		"rules: [{match: x, action: approve}, {match: '*', action: forward}]\ndefault: deny\nupstreams: [{name: c, url: 'http://"+c.addr+"/'}, {name: d, url: 'http://"+d.addr+"/'}]\nendpoints: [{servers: [{upstream: c}, {upstream: d}]}]\n")
	resp = modern(t.Context(), t, held, "tools/call", `"name":"x","arguments":{}`)
	text, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	_, rest, _ := strings.Cut(string(text), `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	h := hearAll(t, held, `{"promptsListChanged":true,"taskIds":["`+id+`"]}`)
	h.want("acknowledged", `{"promptsListChanged":true,"taskIds":["`+id+`"]}`)
	h.want("notifications/tasks", id, `"status":"working"`)
	if err := stop(); err != nil {
		t.Error(err)
	}
	h.want(`"result":{"resultType":"complete"`)
	if _, more := <-h.messages; more {
		t.Error("a message after the end")
	}
}
