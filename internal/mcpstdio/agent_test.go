package mcpstdio_test

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func call(tool, arguments string) string {
	return `{"name":"` + tool + `","arguments":` + arguments + `}`
}

// contains checks that text contains all parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %.600s", part, text)
		}
	}
}

// Every byte is forwarded, in both directions.
func TestMessagesAreForwardedVerbatim(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	for _, line := range []string{
		`{"params":{"arguments":{"n": 1.50e0,"é":"é\u00e9 ` + "\u2028" + `"},"unknown":[1,2 ],"name":"echo"},  "method":"tools/call","id":"a/\u0062","jsonrpc":"2.0"}`,
		` {"jsonrpc":"2.0","id":9007199254740993,"method":"x/unknown","params":{"z":null}} `,
	} {
		s.say(line)
		m, err := jsonrpc.ParseMessage([]byte(line), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		s.answer(string(m.ID.Bytes))
		if !slices.Contains(s.saw(), line) {
			t.Errorf("the server did not get the line unchanged:\n%s", line)
		}
	}
	contains(t, s.ask("3", "tools/call", call("echo", `{"n": 1.50e0}`)), `"text":"ran echo {\"n\": 1.50e0}"`)
	contains(t, s.ask("4", "no/such", `{}`), `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no such method"}}`)
}

// Forwarded requests, held requests and requests of the server are answered in any order.
func TestRequestsAreAnsweredInAnyOrder(t *testing.T) {
	t.Parallel()
	s := open(t, options{hold: testTimeout})
	s.initialize()
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("delete", `{}`) + `}`)
	held := s.held()
	s.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + call("slow", `{}`) + `}`)
	s.say(`{"jsonrpc":"2.0","id":"1","method":"tools/call","params":` + call("echo", `{"other":"type"}`) + `}`)
	contains(t, s.answer(`"1"`), "ran echo")
	s.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + call("ask_client", `{}`) + `}`)
	question := s.next()
	contains(t, question, `"method":"sampling/createMessage","params":{"maxTokens": 1.0,"messages":[]}`)
	m, err := jsonrpc.ParseMessage([]byte(question), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	reply := `{"id":` + string(m.ID.Bytes) + `,"result":{"role": "assistant"},"jsonrpc":"2.0"}`
	s.say(reply)
	var answers []string
	for range 2 {
		answers = append(answers, s.next())
	}
	slices.Sort(answers)
	contains(t, answers[0], `"id":2`, "slow")
	contains(t, answers[1], `"id":3`, "assistant")
	s.decide(held, approval.Approve)
	contains(t, s.answer("1"), "ran delete {}")
	if n := s.sawWith(`"method":"tools/call","params":{"name":"delete"`); n != 1 {
		t.Errorf("the held call ran %d times; want once", n)
	}
}

// A client that requests progress is notified while its call is held, and gets the server's
// progress.
func TestProgress(t *testing.T) {
	t.Parallel()
	s := open(t, options{hold: testTimeout})
	s.initialize()
	s.ask("1", "tools/call", `{"name":"progress","_meta":{"progressToken":"p1"}}`)
	if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":  5}}`; !slices.Contains(s.notifications, want) {
		t.Errorf("notifications = %q; want %s", s.notifications, want)
	}
	s.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","_meta":{"progressToken":7}}}`)
	for range 3 {
		contains(t, s.next(), `"notifications/progress"`, `"progressToken":7`, "Waiting for approval by default")
	}
	s.decide(s.held(), approval.Reject)
	contains(t, s.answer("2"), `"isError":true`, "id\":2")
	if n := s.sawWith(`"delete"`); n != 0 {
		t.Errorf("the server saw %d lines about a call that was rejected", n)
	}
}

func TestDeniedCallDoesNotRun(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	if list := s.ask("1", "tools/list", `{}`); strings.Contains(list, "delete_denied") {
		t.Errorf("a tool that is always denied is listed: %s", list)
	} else {
		contains(t, list, `"extra":  1.0`)
	}
	contains(t, s.ask("2", "tools/call", call("delete_denied", `{}`)), `"isError":true`, "never", "policy_denied")
	contains(t, s.ask("3", "tools/call", call("delete_denied"+strings.Repeat("x", 1024), `{}`)), `"error_type":"name_too_long"`)
	if n := s.sawWith("delete_denied"); n != 0 {
		t.Error("the server saw a call that was denied")
	}
}

// An undecided call gets the pending answer; a repeated call attaches, also after a restart of
// wrap.
func TestAttachAfterRestart(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	first := open(t, options{store: store})
	first.initialize()
	contains(t, first.ask("1", "tools/call", call("delete", `{"path":"/a"}`)), "waits for approval", "exactly the same arguments")
	held := first.held()
	first.close()
	second := open(t, options{store: store, hold: testTimeout})
	second.initialize()
	second.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("delete", `{"path":"/a"}`) + `}`)
	second.eventually("the repeated call attaches", func() bool { return strings.Contains(second.log.String(), "identical call attaches to a held one") })
	second.decide(held, approval.Approve)
	contains(t, second.answer("1"), `ran delete {\"path\":\"/a\"}`)
	page, err := store.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100})
	if err != nil || len(page.Tasks) != 1 {
		t.Errorf("there are %d tasks (%v); want one", len(page.Tasks), err)
	}
}

// A held call survives a closed pipe in either era, because the client may start again.
func TestClosedPipeKeepsHeldCall(t *testing.T) {
	t.Parallel()
	for _, meta := range []string{"", "," + modern} {
		s := open(t, options{hold: testTimeout})
		if meta == "" {
			s.initialize()
		}
		s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{}` + meta + `}}`)
		held := s.held()
		s.eventually("the client waits", func() bool { return strings.Contains(s.log.String(), "\"verdict\"") })
		s.close()
		got, err := s.approvals.Get(t.Context(), task.AnyOwner().Ref(held.ID))
		if err != nil || got.State != task.InputRequired {
			t.Errorf("after the client left, the call is %s (%v); want pending", got.State, err)
		}
	}
}

// A client that stops reading has left, even if it still keeps its other end open.
func TestClosedOutputEndsAgent(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	s.out.Close()
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("echo", `{}`) + `}`)
	select {
	case <-s.served:
	case <-time.After(testTimeout):
		t.Fatal("the gate does not notice that the client has left")
	}
}

// Policy uses the client information of each modern request.
func TestModernRequestsNameTheirClient(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	for client, want := range map[string]string{"tester": "ran for_tester", "other": "Denied by policy"} {
		named := strings.Replace(modern, `{`, `{"io.modelcontextprotocol/clientInfo":{"name":"`+client+`","version":"1"},`, 1)
		contains(t, s.ask("1", "tools/call", `{"name":"for_tester","arguments":{},`+named+`}`), want)
	}
	contains(t, s.ask("2", "tools/call", `{"name":"for_tester","arguments":{},`+modern+`}`), "Denied by policy")
}

// A client can cancel a held call in either era. The request gets no answer, and the server no
// message.
func TestCancelHeld(t *testing.T) {
	t.Parallel()
	for _, meta := range []string{"", "," + modern} {
		s := open(t, options{hold: testTimeout})
		if meta == "" {
			s.initialize()
		}
		s.say(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete","arguments":{}`+meta+`}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"AbortError: the user pressed Esc"}}`)
		s.eventually("the call is withdrawn", func() bool {
			page, err := s.store.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 10})
			return err == nil && len(page.Tasks) == 1 && page.Tasks[0].State == task.Cancelled
		})
		contains(t, s.ask("8", "tools/call", `{"name":"echo","arguments":{}`+meta+`}`), "ran echo")
		if len(s.notifications) > 0 {
			t.Errorf("a cancelled request was answered: %q", s.notifications)
		}
		if n := s.sawWith("cancelled"); n != 0 {
			t.Error("the server got a message about a request that it never got")
		}
	}
}

// The server gets the cancellation, and the gate forgets the request.
func TestCancelForwarded(t *testing.T) {
	t.Parallel()
	s := open(t, options{agent: func(c *mcpstdio.Config) { c.Limits.Requests = 1 }})
	s.initialize()
	for id := range 3 {
		s.say(`{"jsonrpc":"2.0","id":`+strconv.Itoa(id)+`,"method":"tools/call","params":`+call("hang", `{}`)+`}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+strconv.Itoa(id)+`}}`)
	}
	contains(t, s.ask("9", "tools/call", call("echo", `{}`)), "ran echo")
	if n := s.sawWith("notifications/cancelled"); n != 3 {
		t.Errorf("the server saw %d cancellations; want 3", n)
	}
}

// The answer of a server to a call that it did not get is dropped.
func TestForgedAnswerIsDropped(t *testing.T) {
	t.Parallel()
	s := open(t, options{hold: testTimeout})
	s.initialize()
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("delete", `{}`) + `}`)
	held := s.held()
	for i, id := range []string{"1", `"1"`, "1.0", `"\u0031"`} {
		contains(t, s.ask(strconv.Itoa(10+i), "tools/call", call("forge", `{"id":`+id+`}`)), "tried")
	}
	for _, said := range s.notifications {
		if strings.Contains(said, "forged") {
			t.Errorf("the client got a forged answer: %s", said)
		}
	}
	s.decide(held, approval.Approve)
	contains(t, s.answer("1"), "ran delete")
}

// A client with tasks gets one, is notified of its steps, and fetches the result.
func TestLegacyTask(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	created := s.ask("1", "tools/call", `{"name":"delete","arguments":{},"task":{"ttl":600000}}`)
	m, err := jsonrpc.ParseMessage([]byte(created), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := m.Result.Member("task").Member("taskId").Text()
	s.say(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"` + id + `"}}`)
	contains(t, s.ask("3", "tasks/get", `{"taskId":"`+id+`"}`), `"working"`)
	s.decide(s.held(), approval.Approve)
	contains(t, s.answer("2"), "ran delete")
	for !strings.Contains(<-s.statuses, `"completed"`) {
		continue
	}
}

// A client can cancel a request for the result of a task. The server gets no message.
func TestCancelTaskResult(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	created, err := jsonrpc.ParseMessage([]byte(s.ask("1", "tools/call", `{"name":"delete","arguments":{},"task":{}}`)), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := created.Result.Member("task").Member("taskId").Text()
	s.say(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"`+id+`"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	s.eventually("the request has ended", func() bool { return strings.Contains(s.log.String(), `"msg":"request","method":"tasks/result"`) })
	if n := s.sawWith("cancelled"); n != 0 {
		t.Error("the server got a message about a request that it never got")
	}
	s.decide(s.held(), approval.Reject)
	contains(t, s.ask("3", "tasks/get", `{"taskId":"`+id+`"}`), `"failed"`)
	for _, n := range s.notifications {
		if strings.Contains(n, `"id":2`) {
			t.Errorf("a cancelled request was answered: %s", n)
		}
	}
}

// Python ends a line at a bare CR, so some servers could read one message as two.
func TestEmbeddedLineBreaks(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	smuggled := `{"jsonrpc":"2.0","id":66,"method":"tools/call","params":` + call("delete_denied", `{}`) + `}`
	s.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{\"a\":[\r" + smuggled + "\r]}}")
	s.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":\r{\"a\":\r\r1}}")
	contains(t, s.ask("1", "tools/call", call("echo", `{}`)), "ran echo")
	for _, line := range s.saw() {
		if strings.ContainsAny(line, "\r") || strings.HasPrefix(line, smuggled[:20]) && strings.Contains(line, "66") {
			t.Errorf("the server may read several messages: %q", line)
		}
	}
}

// After an invalid line, the next line is served.
func TestInvalidLineIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	large := strings.Repeat("x", 2<<20)
	for _, tt := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":1,`, `"parse_error"`},
		{`not json`, `"parse_error"`},
		{"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"x\",\"params\":{\"a\":\"\xff\"}}", `"parse_error"`},
		{`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"echo","name":"delete_denied"}}`, `"parse_error"`},
		{`{"jsonrpc":"2.0","id":7}`, `"invalid_request"`},
		{`[{"jsonrpc":"2.0","id":8,"method":"ping"}]`, "batches exist only"},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"a":"` + large + `"}}}`, `"body_too_large"`},
	} {
		s.say(tt.line)
		contains(t, s.next(), tt.want)
	}
	contains(t, s.ask("10", "tools/call", call("echo", `{}`)), "ran echo")
	io.WriteString(s.in, `{"jsonrpc":"2.0","id":11,"method":"tools/call",`)
	io.WriteString(s.in, `"params":`+call("echo", `{"in":"pieces"}`)+"}\r\n\n\n")
	contains(t, s.answer("11"), "pieces")
}

// A server may write text other than messages, also before its first request.
func TestNonMessageOutputIsIgnored(t *testing.T) {
	t.Parallel()
	s := open(t, options{env: []string{"MCPSTDIO_BANNER=1"}})
	s.initialize()
	if len(s.notifications) > 0 {
		t.Errorf("the client got %q", s.notifications)
	}
	contains(t, s.ask("1", "tools/call", call("garbage", `{}`)), "after garbage")
	if len(s.notifications) > 0 {
		t.Errorf("the client got %q", s.notifications)
	}
	contains(t, s.log.String(), "is no message", "Welcome to the")
}

// An answer that clients may read differently passes if it cannot answer another request.
func TestAmbiguousAnswerPassesOnlyIfHarmless(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	s.say(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + call("unclear", `{}`) + `}`)
	contains(t, s.next(), `{"jsonrpc":"2.0","id":5,"result":{"content":[],"a":1,"a":2}}`)
}

// A line of 100 MB uses little memory, and its request gets a clear error, forwarded or held.
func TestHugeLineUsesLittleMemory(t *testing.T) {
	t.Parallel()
	s := open(t, options{hold: testTimeout})
	s.initialize()
	contains(t, s.ask("1", "tools/call", call("huge", `{"size":500000}`)), strings.Repeat("x", 500_000))
	contains(t, s.ask("2", "tools/call", call("huge", `{"size":100000000}`)), "larger than the gate passes on", "upstream_invalid_response")
	contains(t, s.ask("3", "tools/call", call("echo", `{}`)), "ran echo")
}

// The agent gets a clear error, held calls survive, and the next request restarts the server.
func TestCrashedServerIsRestarted(t *testing.T) {
	t.Parallel()
	s := open(t, options{hold: testTimeout, restarts: 3})
	s.initialize()
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("delete", `{}`) + `}`)
	held := s.held()
	s.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + call("hang", `{}`) + `}`)
	s.eventually("the server has the call", func() bool { return s.sawWith("hang") == 1 })
	s.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + call("crash", `{}`) + `}`)
	for range 2 {
		contains(t, s.next(), "the server ended before it answered; the call may have run", "upstream_invalid_response")
	}
	contains(t, s.log.String(), "going down")
	s.decide(held, approval.Approve)
	contains(t, s.answer("1"), "ran delete")
	contains(t, s.ask("4", "tools/call", call("echo", `{}`)), "ran echo")
	saw := s.saw()
	if n := s.sawWith("started"); n != 2 {
		t.Errorf("the server was started %d times; want 2", n)
	}
	again := saw[slices.Index(saw, "started")+1:]
	again = again[slices.Index(again, "started"):]
	if len(again) < 3 || !strings.Contains(again[1], `"initialize"`) || !strings.Contains(again[2], "notifications/initialized") {
		t.Errorf("the restarted server got no initialize: %q", again)
	}
	if n := s.sawWith(`"hang"`) + s.sawWith(`"crash"`); n != 2 {
		t.Error("a call was repeated")
	}
}

// A restarted server gets the initialize request of the client with its white space, and no other
// message that resembles it.
func TestRestartedServerGetsOriginalInitialize(t *testing.T) {
	t.Parallel()
	const params = `"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}`
	s := open(t, options{restarts: 3})
	s.say("   \t" + `{"jsonrpc":"2.0","id":"first",` + params + "  ")
	s.answer(`"first"`)
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	s.say(`{"jsonrpc":"2.0","method":"initialize","params":{"clientInfo":{"name":"no request"}}}`)
	contains(t, s.ask("2", "tools/call", call("crash", `{}`)), "the server ended before it answered")
	contains(t, s.ask("3", "tools/call", call("echo", `{}`)), "ran echo")
	saw := s.saw()
	again := saw[slices.Index(saw, "started")+1:]
	again = again[slices.Index(again, "started")+1:]
	m, err := jsonrpc.ParseMessage([]byte(again[0]), jsonrpc.Limits{})
	if err != nil {
		t.Fatalf("%v: the restarted server got %q", err, again[0])
	}
	id, _ := m.ID.Text()
	if want := `{"jsonrpc":"2.0","id":"` + id + `",` + params; again[0] != want || !strings.HasPrefix(id, "tg-") {
		t.Errorf("the restarted server got\n%s\nwant\n%s", again[0], want)
	}
}

// A server's message about its task of a held call names the client's task, anywhere in a line.
func TestRelatedTaskRenamed(t *testing.T) {
	t.Parallel()
	s := open(t, options{env: []string{"MCPSTDIO_TASKS=1"}, hold: testTimeout})
	s.initialize()
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("delete", `{}`) + `}`)
	held := s.held()
	s.decide(held, approval.Approve)
	contains(t, s.answer("1"), "nested outcome")
	s.ask("2", "tools/call", call("speak_of_task", `{}`))
	var renamed int
	for _, line := range s.notifications {
		if strings.Contains(line, "speaks") {
			contains(t, line, string(held.ID), `"level":"info"`)
			renamed++
		}
	}
	if renamed != 2 {
		t.Errorf("the client got %d of 2 messages: %q", renamed, s.notifications)
	}
}

// A server that never sent anything is not restarted.
func TestRepeatedlyCrashingServerIsGivenUp(t *testing.T) {
	t.Parallel()
	t.Run("crashes", func(t *testing.T) {
		s := open(t, options{restarts: 2})
		s.initialize()
		for id := range 3 {
			contains(t, s.ask(strconv.Itoa(id), "tools/call", call("crash", `{}`)), "the server ended before it answered")
		}
		<-s.server.Done()
		contains(t, s.server.Err().Error(), "exit status 3")
		contains(t, s.ask("9", "tools/call", call("echo", `{}`)), "upstream_unreachable", "did not run")
	})
	t.Run("never speaks", func(t *testing.T) {
		s := open(t, options{restarts: 2, server: func(c *stdioclient.Config) { c.Command = []string{"false"} }})
		<-s.server.Done()
		contains(t, s.server.Err().Error(), "exit status 1")
	})
}

// The gate reads from the server only as fast as the client reads.
func TestFloodIsThrottledByClient(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.initialize()
	s.ask("1", "tools/call", call("flood", `{}`))
	if len(s.notifications) != 5000 {
		t.Fatalf("%d of 5000 notifications arrived", len(s.notifications))
	}
	for i, n := range s.notifications {
		if want := fmt.Sprintf(`"data":%d}}`, i); !strings.HasSuffix(n, want) {
			t.Fatalf("notification %d is %s", i, n)
		}
	}
}

// A server that does not end is killed.
func TestServerIsEndedByClosingInput(t *testing.T) {
	t.Parallel()
	t.Run("politely", func(t *testing.T) {
		s := open(t, options{})
		s.initialize()
		s.close()
		s.server.Close()
		if saw := s.saw(); saw[len(saw)-1] != "end of input" {
			t.Errorf("the server saw at last %q", saw[len(saw)-1])
		}
	})
	t.Run("with force", func(t *testing.T) {
		s := open(t, options{env: []string{"MCPSTDIO_STUBBORN=1"}, server: func(c *stdioclient.Config) { c.Grace = 100 * time.Millisecond }})
		s.initialize()
		s.close()
		s.server.Close()
		contains(t, s.server.Err().Error(), "killed")
	})
}

// Batches exist in 2025-03-26. A batch with a held call waits as a whole; otherwise each
// message is forwarded or refused.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	s.ask("1", "initialize", `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}`)
	for tool, want := range map[string][]string{
		"echo": {`"id":2`, "ran echo", `"id":3`}, "delete_denied": {`"id":2`, "ran echo", `"id":3`, "never"}, "delete": {`"id":2`, "waits for approval", `"id":3`},
	} {
		s.say(`[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + call("echo", `{"with":"`+tool+`"}`) + `},` +
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + call(tool, `{}`) + `}]`)
		line := s.next()
		if !strings.HasPrefix(line, "[") {
			t.Errorf("a batch was answered by %s", line)
		}
		contains(t, line, want...)
	}
	if s.sawWith(`"name":"delete`) != 0 || s.sawWith(`"with":"delete"`) != 0 {
		t.Error("the server saw a call that was denied, or part of a batch that is held")
	}
}
