package app_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// session is the header that names the session of these tests.
const session = "Mcp-Session-Id: s-1\r\n"

// leaveAtOnce makes a call, and closes its side of the connection in the same packet. It
// returns when the gate has finished with the call.
func leaveAtOnce(t *testing.T, address, message string, headers ...string) {
	t.Helper()
	sendAndLeave(t, address, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"%sContent-Length: %d\r\n\r\n%s", address, strings.Join(headers, ""), len(message), message))
}

// sendAndLeave sends a request and the end of the connection in one packet. It returns when
// the gate has finished with the request.
func sendAndLeave(t *testing.T, address, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	cork(t, conn)
	if _, err = io.WriteString(conn, request); err == nil {
		err = conn.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn)
}

// startDescribed starts a gate that has already listed the tool that it holds. So it does not
// fetch the list during a call, and a call is faster than the detection of a closed
// connection.
func startDescribed(t *testing.T, ran *atomic.Int64, settings string) *app.App {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		result := `{"tools":[{"name":"hold_a","inputSchema":{"type":"object"}}]}`
		if strings.Contains(string(body), "tools/call") {
			ran.Add(1)
			result = `{"content":[{"type":"text","text":"done"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":`+result+`}`)
	}))
	t.Cleanup(up.Close)
	a, stop := start(t, holding(up.URL+", forward_authorization: false", "memory:")+settings)
	t.Cleanup(func() { _ = stop() })
	if answer := say(t, a.AgentAddr(), "tools/list", "{}"); !strings.Contains(answer, "hold_a") {
		t.Fatalf("the list of tools is %s", answer)
	}
	return a
}

// cork delays the data written to a connection until it is closed.
func cork(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// The outcome is kept for a client that left before the outcome was sent, however quickly it
// left: the next call gets it, and the call runs only once.
func TestOutcomeForClientThatLeft(t *testing.T) {
	var ran atomic.Int64
	const call = `{"name":"hold_a","arguments":{"x":1}}`
	a := startDescribed(t, &ran, "execution: {start: approval}\nwaiting: {hold: 1s}\n")
	if answer := say(t, a.AgentAddr(), "tools/call", call); !strings.Contains(answer, "tg_") {
		t.Fatalf("the first call is answered %s", answer)
	}
	approve(t, a.OperatorAddr(), idBefore(listed(t, a), `"hold_a"`))
	eventually(t, "the call has run", func() bool { return ran.Load() == 1 })
	for range 5 {
		leaveAtOnce(t, a.AgentAddr(), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":`+call+`}`, session)
	}
	if answer := say(t, a.AgentAddr(), "tools/call", call); !strings.Contains(answer, `"done"`) {
		t.Errorf("the next call is answered %s", answer)
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
}

// A client that resumes the stream of its call, and leaves before the outcome is sent, can
// resume it again.
func TestResumeByClientThatLeft(t *testing.T) {
	var ran atomic.Int64
	a := startDescribed(t, &ran, "execution: {start: approval}\n")
	eventID := beginStream(t, a.AgentAddr(), callsThatLeave["plain"])
	approveAndRun(t, a, idBefore(listed(t, a), `"hold_a"`))
	for range 5 {
		sendAndLeave(t, a.AgentAddr(), fmt.Sprintf("GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n%sLast-Event-ID: %s\r\n\r\n",
			a.AgentAddr(), session, eventID))
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.AgentAddr()+"/mcp", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {"s-1"}, "Last-Event-Id": {eventID}}
	if answer := do(t, r); !strings.Contains(answer, `"done"`) || ran.Load() != 1 {
		t.Errorf("a client that resumes and stays gets %s; the call ran %d times", answer, ran.Load())
	}
}

// approveAndRun approves a call of a gate that runs approved calls at once, and returns when
// the call has its outcome.
func approveAndRun(t *testing.T, a *app.App, id string) {
	t.Helper()
	approve(t, a.OperatorAddr(), id)
	eventually(t, "the call has run", func() bool {
		_, shown, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+"/api/approvals/"+id, "", "Authorization", "Bearer secret-of-the-operators")
		return strings.Contains(shown, `"state":"completed"`)
	})
}

// beginStream makes a call that is held, leaves when the stream of its answer has begun, and
// returns the event id from which the stream can be resumed.
func beginStream(t *testing.T, address, message string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Session-Id": {"s-1"}, "Mcp-Protocol-Version": {"2025-11-25"},
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first, err := jsonrpc.NewEventReader(resp.Body, 1<<20).Next()
	if err != nil || !first.HasID {
		t.Fatalf("the first event is %+v, %v; want an event id", first, err)
	}
	return first.ID
}

// callsThatLeave are the messages of calls in different modes, for clients that leave.
var callsThatLeave = map[string]string{
	"plain":   `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hold_a","arguments":{"x":1}}}`,
	"as task": `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hold_a","arguments":{"x":1},"task":{"ttl":600000}}}`,
	"batch":   `[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hold_a","arguments":{"x":1}}}]`,
}

// An approved call does not run for a client that left before the gate read its request.
func TestNothingRunsForClientThatLeft(t *testing.T) {
	ways := maps.Clone(callsThatLeave)
	ways["asks for the result"] = `{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"TASK"}}`
	for name, message := range ways {
		t.Run(name, func(t *testing.T) {
			var ran atomic.Int64
			const call = `{"name":"hold_a","arguments":{"x":1}}`
			a := startDescribed(t, &ran, "waiting: {hold: 300ms}\n")
			if answer := say(t, a.AgentAddr(), "tools/call", call); !strings.Contains(answer, "tg_") {
				t.Fatalf("the first call is answered %s", answer)
			}
			id := idBefore(listed(t, a), `"hold_a"`)
			approve(t, a.OperatorAddr(), id)
			for range 5 {
				leaveAtOnce(t, a.AgentAddr(), strings.ReplaceAll(message, "TASK", id), session)
				if n := ran.Load(); n != 0 {
					t.Fatalf("the call ran %d times", n)
				}
			}
			if answer := say(t, a.AgentAddr(), "tools/call", call); !strings.Contains(answer, `"done"`) || ran.Load() != 1 {
				t.Errorf("a client that stays is answered %s; the call ran %d times", answer, ran.Load())
			}
		})
	}
}

// A call is not held if its client left before the gate read it, because no client would
// receive the outcome.
func TestNothingIsHeldForClientThatLeft(t *testing.T) {
	for name, message := range callsThatLeave {
		t.Run(name, func(t *testing.T) {
			var ran atomic.Int64
			a := startDescribed(t, &ran, "waiting: {hold: 300ms}\n")
			for range 5 {
				leaveAtOnce(t, a.AgentAddr(), message, session)
			}
			if all := listed(t, a); strings.Contains(all, `"hold_a"`) {
				t.Errorf("held: %s", all)
			}
		})
	}
}

// modernMeta is the metadata of a modern client's message, up to its capabilities.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{`

// callModern makes a call as a modern client without tasks, and returns the answer.
func callModern(t *testing.T, a *app.App) string {
	t.Helper()
	_, answer, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+a.AgentAddr()+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_a","arguments":{"x":1},`+modernMeta+`}}}}`,
		"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "hold_a")
	return answer
}

// The outcome is kept for a modern client that polls its task and left before the answer was
// sent.
func TestOutcomeForPollerThatLeft(t *testing.T) {
	var ran atomic.Int64
	a := startDescribed(t, &ran, "execution: {start: approval}\nwaiting: {hold: 20ms}\n")
	callModern(t, a)
	id := idBefore(listed(t, a), `"hold_a"`)
	approveAndRun(t, a, id)
	for range 5 {
		leaveAtOnce(t, a.AgentAddr(), `{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"`+id+`",`+modernMeta+`"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`,
			"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tasks/get\r\nMcp-Name: "+id+"\r\n")
	}
	if answer := callModern(t, a); !strings.Contains(answer, `"done"`) || ran.Load() != 1 {
		t.Errorf("the next call is answered %s; it ran %d times", answer, ran.Load())
	}
}

// An approved call does not run if its modern client listened to the task and has left.
func TestNothingRunsForListenerThatLeft(t *testing.T) {
	var ran atomic.Int64
	a := startDescribed(t, &ran, "waiting: {hold: 20ms}\n")
	answer := callModern(t, a)
	id := idBefore(listed(t, a), `"hold_a"`)
	approve(t, a.OperatorAddr(), id)
	for range 5 {
		leaveAtOnce(t, a.AgentAddr(), `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"taskIds":["`+id+`"]},`+modernMeta+`"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`,
			"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n")
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("after %s: the call ran %d times", answer, n)
	}
}
