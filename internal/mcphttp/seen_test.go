package mcphttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// serveOnce starts an upstream that keeps its connections open and answers only
// the first request on each. It stands for one behind a firewall that forgets
// connections: what is sent on a kept one is lost, and nobody is told.
func serveOnce(t *testing.T) (target string, ran *atomic.Int32) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	ran = new(atomic.Int32)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerOnce(conn, ran)
		}
	}()
	return "http://" + listener.Addr().String(), ran
}

func answerOnce(conn net.Conn, ran *atomic.Int32) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil || n > 0 {
			return // and the answer never comes
		}
		m := &p.Messages[0]
		if m.Method == "tools/call" {
			ran.Add(1)
		}
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"content":[{"type":"text","text":"done"}]}}`, m.ID.Bytes)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
	}
}

// A held call is not lost because the upstream has given up a connection that
// the gate keeps: it has a connection of its own.
func TestHeldCallsOverForgottenConnections(t *testing.T) {
	up, ran := serveOnce(t)
	h := newFixture(t, nil)
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Gate, s.handler.Desk = h.gate, h.desk
		s.handler.Waiting = conversation.Waiting{Hold: 20 * time.Second, Longest: time.Hour, Beat: time.Second}
	})
	const calls = 20
	for i := range calls {
		req := h.send(toolCall(fmt.Sprint(i), fmt.Sprintf("hold_%d", i), ""))
		h.approve(h.pending(1)[0])
		wantText(t, "answer", req.wait(t), `"text":"done"`)
	}
	if n := ran.Load(); n != calls {
		t.Errorf("%d of %d approved calls ran", n, calls)
	}
}

// malformed is a tool that no modern client can call: its mark is no name of a
// header.
const malformed = `{"name":"hold_bad","inputSchema":{"type":"object","properties":{"x":{"type":"integer","x-mcp-header":"a b"}}}}`

// A tool whose definition demands a header that cannot be sent is not listed to
// modern clients, and a held call of it is said not to have run.
func TestMalformedMirrors(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.server.intercepted(replying("tools/list", `{"tools":[`+malformed+`,{"name":"hold_plain","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private","resultType":"complete"}`))
	listed := p.modernList()
	if strings.Contains(listed, "hold_bad") || !strings.Contains(listed, "hold_plain") {
		t.Errorf("listed %s; want all but hold_bad", listed)
	}
	wantText(t, "log", p.log.String(), "tool left out of the list", "hold_bad", "not the name of a header")

	req := p.send(modernCall("hold_bad", ""), modernHeaders("hold_bad")...)
	p.approve(p.pending(1)[0])
	wantText(t, "held call", req.wait(t), "did not run")
	if heard := p.server.heard("tools/call"); len(heard) != 0 {
		t.Errorf("the upstream heard %v", heard)
	}

	legacy := p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	wantText(t, "legacy list", legacy, "hold_bad") // legacy calls have no such headers
}

// A header that contradicts the argument that it repeats is refused, whether the
// call is held or not.
func TestContradictingMirrors(t *testing.T) {
	const schema = `"inputSchema":{"type":"object","properties":{"x":{"type":"integer","x-mcp-header":"X"}}}`
	p := newTaskFixture(t, nil)
	p.server.intercepted(replying("tools/list", `{"tools":[{"name":"hold_plain",`+schema+`},{"name":"get_plain",`+schema+`}],"resultType":"complete"}`))
	p.modernList()
	for _, tool := range []string{"hold_plain", "get_plain"} {
		req := p.send(modernCall(tool, ""), append(modernHeaders(tool), "Mcp-Param-X", "2")...)
		wantText(t, tool, req.wait(t), "-32020", "Mcp-Param-X")
		if req.status != http.StatusBadRequest {
			t.Errorf("%s: status %d; want 400", tool, req.status)
		}
	}
	if heard := p.server.heard("tools/call"); len(heard) != 0 {
		t.Errorf("the upstream heard %v", heard)
	}
}

// So it is if the client has not listed the tools: the gate asks for the
// definition. A call with such headers does not run if that cannot be read, and
// runs if the upstream has no definition, which would give the headers a meaning.
func TestMirrorsOfUnlistedTool(t *testing.T) {
	const schema = `"inputSchema":{"type":"object","properties":{"x":{"type":"integer","x-mcp-header":"X"}}}`
	tests := map[string]struct {
		list        intercept
		given, want string
	}{
		"contradicts":      {replying("tools/list", `{"tools":[{"name":"get_plain",`+schema+`}]}`), "2", "-32020"},
		"agrees":           {replying("tools/list", `{"tools":[{"name":"get_plain",`+schema+`}]}`), "1", "made it"},
		"list fails":       {erring("tools/list", -32603), "1", "-32020"},
		"no definition":    {replying("tools/list", `{"tools":[]}`), "2", "made it"},
		"no list of tools": {erring("tools/list", -32601), "2", "made it"},
		"too large": {
			replying("tools/list", `{"tools":[{"name":"get_plain","description":"`+strings.Repeat("x", 300<<10)+`",`+schema+`}]}`), "1",
			"-32020",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			called := replying("tools/call", `{"resultType":"complete","content":[{"type":"text","text":"made it"}]}`)
			p.server.intercepted(func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
				return tt.list(w, r, m) || called(w, r, m)
			})
			wantText(t, "answer", p.ask(modernCall("get_plain", ""), append(modernHeaders("get_plain"), "Mcp-Param-X", tt.given)...), tt.want)
			if ran := len(p.server.heard("tools/call")) > 0; ran != (tt.want == "made it") {
				t.Errorf("called: %t", ran)
			}
		})
	}
}

// An upstream that is asked for one task and tells of another makes no sense, in
// both eras. The task goes on.
func TestPollTellsOfAnotherTask(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			id, get := p.running(t, era)
			p.server.intercepted(replying("tasks/get", `{"resultType":"complete","taskId":"another","status":"completed",`+
				`"ttl":1000,"ttlMs":1000,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z",`+
				`"result":{"content":[{"type":"text","text":"stolen"}]}}`))
			eventually(t, "the lie is refused", func() bool { // the upstream is not asked each time
				answer := get()
				if strings.Contains(answer, "stolen") || strings.Contains(answer, "internal_error") {
					t.Fatalf("answer %s", answer)
				}
				return strings.Contains(answer, "upstream_invalid_response")
			})
			p.server.intercepted(nil)
			eventually(t, "the truth is told", func() bool {
				answer := get()
				return strings.Contains(answer, id) && strings.Contains(answer, `"status":"working"`)
			})
			p.server.done(madeIt)
		})
	}
}

// A legacy upstream that makes a task of a call, and says so at great length, is
// not taken to have run the tool.
func TestLargeCreateTaskResult(t *testing.T) {
	filler := strings.Repeat("x", 70<<10)
	const about = `{"taskId":"t-1","status":"working","ttl":1000,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"`
	for name, result := range map[string]string{
		"behind metadata": `{"_meta":{"a":"` + filler + `"},"task":` + about + `}}`,
		"large itself":    `{"task":` + about + `,"statusMessage":"` + filler + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			p.server.intercepted(replying("tools/call", result))
			id := p.start(toolCall("7", "hold_required", `,"task":{}`))
			eventually(t, "the upstream's task is known", func() bool {
				x := p.state(id).Execution
				return x != nil && x.UpstreamTask == "t-1"
			})
			if state := p.state(id).State; state != task.Executing {
				t.Errorf("state %s; want it to run", state)
			}
		})
	}
}

// A result that has both content and, behind 64 KiB, a task makes no sense.
func TestResultThatIsAlsoTask(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.server.intercepted(replying("tools/call", `{"content":[{"type":"text","text":"`+strings.Repeat("x", 70<<10)+`"}],"task":{"taskId":"t-1"}}`))
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "it has ended", func() bool { return p.state(id).State.Terminal() })
	f := p.state(id).Failure
	if f == nil || f.Stage != task.StageUpstreamInvalid || f.Ran != task.RanUnknown {
		t.Errorf("failure %+v; want an answer that makes no sense", f)
	}
}

// running returns the id of a task whose call the upstream runs as one of its
// own, and what asks for it.
func (p *taskFixture) running(t *testing.T, era string) (id string, get func() string) {
	t.Helper()
	if era == "legacy" {
		id = p.start(toolCall("7", "hold_required", `,"task":{}`))
		get = func() string { return p.ask(legacyAbout(mcptask.MethodGet, id)) }
	} else {
		id = p.start(modernCall("hold_required", tasksExtension), modernHeaders("hold_required")...)
		get = func() string {
			message, headers := about(mcptask.MethodGet, id)
			return p.ask(message, headers...)
		}
	}
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) > 0 })
	wantText(t, "running", get(), `"status":"working"`)
	return id, get
}

// modernList asks for the tools of the upstream as a modern client.
func (p *taskFixture) modernList() string {
	headers := modernHeaders("")
	headers[3] = "tools/list"
	return p.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta("")+`}}`, headers...)
}

// A received is what an upstream got with a call.
type received struct {
	header http.Header
	body   string
}

// receiving has the upstream run calls of tools at once, and returns what it got
// with them.
func (p *taskFixture) receiving() <-chan received {
	got := make(chan received, 10)
	answer := replying("tools/call", `{"resultType":"complete","content":[{"type":"text","text":"made it"}]}`)
	p.server.intercepted(func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			got <- received{r.Header.Clone(), string(m.Raw)}
		}
		return answer(w, r, m)
	})
	return got
}

// smuggled is what an agent may put into a call that its approver does not look
// for, by where it stands.
const (
	smuggledMeta = `"progressToken":"smuggled-token","client.reason":"smuggled-reason","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"tracestate":"smuggled=state","baggage":"smuggled=bag","example.com/dryRun":false`
	smuggledParams = `"confirm":true,"uri":"file:///etc/passwd"`
)

// A call runs as its approver saw it: of what an agent puts into a held call besides the
// arguments, the approver is shown what reaches the upstream, and the rest is
// dropped; and so are headers that are no credentials, of the call and of the
// contact that starts it.
func TestNothingUnseenReachesUpstream(t *testing.T) {
	const version, capabilities = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}`
	tests := []struct{ era, meta, want, also string }{
		{
			era: "legacy", meta: smuggledMeta,
			want: `{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"hold_plain","arguments":{"x":1},"confirm":true,"uri":"file:///etc/passwd","_meta":{"example.com/dryRun":false}}}`,
			also: `{"params":{"confirm":true,"uri":"file:///etc/passwd"},"_meta":{"example.com/dryRun":false}}`,
		},
		{
			era: "modern", meta: version + "," + capabilities + "," + smuggledMeta,
			want: `{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"hold_plain","arguments":{"x":1},"confirm":true,"uri":"file:///etc/passwd","_meta":{` +
				version + `,` + capabilities + `,"example.com/dryRun":false}}}`,
			also: `{"params":{"confirm":true,"uri":"file:///etc/passwd"},"_meta":{` + capabilities + `,"example.com/dryRun":false}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.era, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			p.server.plain = true
			got := p.receiving()
			headers := []string{
				"X-Tenant", "smuggled", "User-Agent", "smuggled", "Mcp-Param-X", "smuggled", "X-Forwarded-For", "smuggled", "Traceparent", "smuggled",
				"Authorization", "Bearer agent", "Cookie", "a=b", "X-Api-Key", "k",
			}
			if tt.era == "modern" {
				headers = append(headers, modernHeaders("hold_plain")...)
			}
			req := p.send(`{"smuggled":1,"jsonrpc":"2.0","id":"smuggled-id","method":"tools/call","params":{"name":"hold_plain","arguments":{"x":1},`+
				smuggledParams+`,"_meta":{`+tt.meta+`}}}`, headers...)
			id := p.pending(1)[0]
			seen, err := p.desk.Cases().Show(t.Context(), id)
			if err != nil || string(seen.AlsoSent) != tt.also {
				t.Errorf("the approver is shown %s, %v\nwant %s", seen.AlsoSent, err, tt.also)
			}
			p.approve(id)
			wantText(t, "answer", req.wait(t), "made it", `"id":"smuggled-id"`)
			sent := <-got
			if body := strings.Replace(sent.body, idOf(sent.body), "ID", 1); body != tt.want {
				t.Errorf("the upstream got %s\nwant             %s", body, tt.want)
			}
			for name, values := range sent.header {
				if strings.Contains(strings.Join(values, " "), "smuggled") {
					t.Errorf("the upstream got the header %s: %q", name, values)
				}
			}
			for name, want := range map[string]string{"Authorization": "Bearer agent", "Cookie": "a=b", "X-Api-Key": "k"} {
				if value := sent.header.Get(name); value != want {
					t.Errorf("the upstream got the credential %s as %q; want %q", name, value, want)
				}
			}
		})
	}
}

// Members that are sent besides the arguments are part of the call: another value is
// another call, which needs an approval of its own. Members that are not sent
// are no part of it.
func TestAlsoSentIsBound(t *testing.T) {
	p := newTaskFixture(t, nil)
	call := func(meta, more string) {
		p.send(toolCall("7", "hold_plain", `,"_meta":{"progressToken":`+meta+`}`+more))
	}
	call(`1,"client.reason":"first"`, `,"mode":"safe"`)
	first := p.pending(1)[0]
	call(`2,"client.reason":"again","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `,"mode":"safe"`)
	call(`3`, `,"mode":"wild"`)
	other := p.pending(2)
	if !slices.Contains(other, first) {
		t.Errorf("pending %v; want %s among them", other, first)
	}
	call(`4,"example.com/x":1`, `,"mode":"safe"`)
	p.pending(3)
}

// A call cannot carry, in whatever case, what only a continued call has; nor
// more than its approver can be shown.
func TestUnholdableParams(t *testing.T) {
	p := newTaskFixture(t, nil)
	for _, name := range []string{"InputResponses", "inputresponses", "input\u0052esponses", "INPUTRESPONSES", "RequestState", "re\u0071uest\u017ftate"} {
		answer := p.ask(toolCall("7", "hold_plain", `,"`+name+`":{}`))
		wantText(t, name, answer, "-32602", "did not run")
	}
	wantText(t, "large", p.ask(toolCall("7", "hold_plain", `,"more":"`+strings.Repeat("x", 65<<10)+`"`)), "besides its arguments")
	p.pending(0)
}

// A header that configuration names as a credential goes with a held call, and
// tells its clients apart.
func TestCredentialHeaders(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.gateway = startGate(t, p.up, func(s settings) {
		s.handler.Gate, s.handler.Desk, s.handler.Waiting = p.gate, p.desk, p.waiting
		s.upstream.CredentialHeaders = []string{"X-Tenant-Key"}
	})
	got := p.receiving()
	req := p.send(toolCall("7", "hold_plain", ""), "Mcp-Session-Id", "", "X-Tenant-Key", "a", "Authorization", "Bearer agent")
	id := p.pending(1)[0]
	p.send(toolCall("7", "hold_plain", ""), "Mcp-Session-Id", "", "X-Tenant-Key", "b", "Authorization", "Bearer agent")
	p.pending(2)
	p.approve(id)
	wantText(t, "answer", req.wait(t), "made it")
	header := (<-got).header
	if header.Get("X-Tenant-Key") != "a" || header.Get("Authorization") != "" {
		t.Errorf("the upstream got %v; want X-Tenant-Key and no other credential", header)
	}
}

// defining is a list of one tool with a description, for both eras.
func defining(tool, description string) string {
	return `{"resultType":"complete","tools":[{"name":"` + tool + `","description":"` + description + `","annotations":{"destructiveHint":true},"inputSchema":{"type":"object"}}]}`
}

// callAs makes a call of a tool as a client of an era.
func (p *taskFixture) callAs(era, tool string) *request {
	if era == "modern" {
		return p.send(modernCall(tool, ""), modernHeaders(tool)...)
	}
	return p.send(toolCall("7", tool, ""))
}

// listAs lists the tools as the same client.
func (p *taskFixture) listAs(era string) {
	if era == "modern" {
		p.modernList()
		return
	}
	p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
}

// A tool that has changed since its call was held is not run: neither if the
// client listed the tools meanwhile, nor if the gate has to look. Agent and
// approver are told, and the next call needs an approval of its own.
func TestToolDrift(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			p.server.intercepted(replying("tools/list", defining("hold_plain", "Lists files.")))
			req := p.callAs(era, "hold_plain")
			id := p.pending(1)[0]
			p.server.intercepted(replying("tools/list", defining("hold_plain", "Deletes files.")))
			p.listAs(era)
			p.approve(id)
			wantText(t, "answer", req.wait(t), "tool has changed", "did not run")
			if heard := p.server.heard("tools/call"); len(heard) != 0 {
				t.Errorf("the upstream heard %v", heard)
			}
			seen, err := p.desk.Cases().Show(t.Context(), id)
			if err != nil || seen.Failure == nil || seen.Failure.Stage != task.StageToolDrift || seen.Failure.Ran != task.RanNo {
				t.Errorf("the approver sees %+v, %v", seen.Failure, err)
			}
			again := p.callAs(era, "hold_plain")
			next := p.pending(1)[0]
			got := p.receiving()
			p.approve(next)
			wantText(t, "approved anew", again.wait(t), "made it")
			<-got
		})
	}
}

// An upstream that begins a stream and then says nothing is given up after the
// call's own timeout, whatever it answers; one that shows signs of life is not.
func TestSilentStream(t *testing.T) {
	const silence = 8 * time.Second
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": here\n\n")
		w.(http.Flusher).Flush()
	}
	hung := startGate(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		begin(w)
		<-r.Context().Done()
	}), func(s settings) { s.upstream.CallTimeout, s.upstream.ResponseTimeout = time.Second, time.Second })
	_, body := hung.call(t, toolCall("7", "get_x", ""))
	wantText(t, "silent", body, "-32001", "upstream_timeout")
	for name, message := range map[string]string{
		"a batch":        batch(ping, toolCall("7", "get_x", "")),
		"a notification": `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		broken := make(chan error, 1)
		resp := hung.post(t, message)
		go func() {
			_, err := io.ReadAll(resp.Body)
			broken <- err
		}()
		select {
		case err := <-broken:
			if err == nil {
				t.Errorf("the answer to %s ends as if it were complete", name)
			}
		case <-time.After(patience):
			t.Fatalf("the gate goes on waiting for the answer to %s", name)
		}
	}

	slow := startGate(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		begin(w)
		for range 40 { // longer than the timeout in all
			select {
			case <-time.After(silence / 30):
			case <-r.Context().Done():
				return
			}
			io.WriteString(w, ": still here\n\n")
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, `data: {"jsonrpc":"2.0","id":7,"result":{"content":[]}}`+"\n\n")
	}), func(s settings) { s.upstream.CallTimeout = silence })
	_, body = slow.call(t, toolCall("7", "get_x", ""))
	wantText(t, "slow", body, `"result"`)
}
