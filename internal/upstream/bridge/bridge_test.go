package bridge_test

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Each session has a process that ends with the session. Request ids and the bytes of answers are
// preserved.
func TestSession(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	one, two := s.begin(), s.begin()
	first, second := s.pid(one), s.pid(two)
	if first == second || first != s.pid(one) {
		t.Errorf("two sessions are served by %d and %d", first, second)
	}
	got := s.post(one, call(`"a\u0062"`, "echo", `{"x":1.0}`))
	if want := `{"jsonrpc":"2.0","id":"a\u0062","result":{"content":[{"type":"text","text":"ran echo {\"x\":1.0}"}]}}`; got.body != want || got.kind != "application/json" {
		t.Errorf("a call was answered %+v\nwant %s", got, want)
	}
	if got := s.post(one, `{"jsonrpc":"2.0","id":7,"method":"no/such/method"}`); !strings.Contains(got.body, "no such method") || !strings.Contains(got.body, `"id":7`) {
		t.Errorf("an unknown method was answered %+v", got)
	}
	deleted := s.read(s.request(t.Context(), http.MethodDelete, one, ""))
	if deleted.status != http.StatusOK {
		t.Errorf("DELETE: %+v", deleted)
	}
	s.await("the process of a deleted session ends", func() bool { return !alive(first) })
	if got := s.post(one, call("1", "echo", "{}")); got.status != http.StatusNotFound {
		t.Errorf("a call in a deleted session: %+v", got)
	}
	if got := s.post("", call("1", "echo", "{}")); got.status != http.StatusBadRequest {
		t.Errorf("a call without a session: %+v", got)
	}
	if s.pid(two) != second {
		t.Error("the other session has another process now")
	}
	s.stop()
	if alive(second) {
		t.Error("a process is left after the gate has stopped")
	}
}

// A server that refuses initialize leaves no session and no process.
func TestRefusedInitialize(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	got := s.post("", strings.Replace(initialize, "2025-11-25", "unknown", 1))
	if got.session != "" || !strings.Contains(got.body, `"error"`) {
		t.Errorf("initialize: %+v", got)
	}
	s.awaitSeen("end of input")
}

// Requests of the server arrive on the stream of a call, or on the client's stream. Without a
// stream they are queued.
func TestServerMessagesReachClient(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	session := s.begin()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	answered := func(question string) {
		reply := s.post(session, `{"jsonrpc":"2.0","id":"`+member(question, "id")+`","result":{"role":"assistant"}}`)
		if reply.status != http.StatusAccepted {
			t.Errorf("the client's answer: %+v", reply)
		}
	}
	resp := s.request(ctx, http.MethodPost, session, call("5", "ask_client", "{}"))
	defer resp.Body.Close()
	lines := events(resp.Body)
	answered(next(t, lines, "sampling/createMessage"))
	if final := next(t, lines, `"id":5`); !strings.Contains(final, "assistant") {
		t.Errorf("the call was answered %s", final)
	}
	s.post(session, call("6", "announce", "{}"))
	s.awaitSeen(`"announce"`)
	stream := s.request(ctx, http.MethodGet, session, "")
	defer stream.Body.Close()
	unasked := events(stream.Body)
	next(t, unasked, "notifications/resources/list_changed")
	done := make(chan answer, 1)
	go func() { done <- s.post(session, call("7", "ask_client", "{}")) }()
	answered(next(t, unasked, "sampling/createMessage"))
	if got := <-done; !strings.Contains(got.body, "assistant") || got.kind != "application/json" {
		t.Errorf("the call was answered %+v", got)
	}
}

// Clients that share a process may use the same ids and progress tokens: each gets its own answers
// and tokens.
func TestSharedProcessKeepsClientsApart(t *testing.T) {
	t.Parallel()
	s := open(t, "shared: true", "")
	old := strings.Replace(initialize, "2025-11-25", "2025-06-18", 1)
	if got := s.post("", old); got.session != "" || !strings.Contains(got.body, `"protocolVersion":"2025-06-18"`) || !strings.Contains(got.body, `"id":0`) {
		t.Errorf("initialize: %+v", got)
	}
	if got := s.post("", initialize); !strings.Contains(got.body, `"protocolVersion":"2025-11-25"`) {
		t.Errorf("initialize: %+v", got)
	}
	if got := s.post("", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != http.StatusAccepted {
		t.Errorf("initialized: %+v", got)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			args := `{"client":` + strconv.Itoa(i) + `}`
			got := s.post("", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":9},"name":"progress","arguments":`+args+`}}`)
			if strings.Count(got.body, `"progressToken":9,"progress":  5`) != 1 || !strings.Contains(got.body, `\"client\":`+strconv.Itoa(i)+`}`) || strings.Count(got.body, "\ndata:")+strings.Count(got.body, `"result"`) < 2 {
				t.Errorf("client %d got %+v", i, got)
			}
		})
	}
	all.Wait()
	if got := s.post("", call("2", "ask_client", "{}")); !strings.Contains(got.body, "-32601") {
		t.Errorf("a server without requests to clients: %+v", got)
	}
	if got := s.post("", modernCall("3", "pid")); s.pidIn(got) == s.pid("") {
		t.Error("clients of both generations share a process")
	}
	if n := strings.Count(s.seen(), " started"); n != 2 {
		t.Errorf("%d processes were started; want one for each generation", n)
	}
}

// A shared process gets the requests of a client, not its answers and notifications: they could
// concern another client.
func TestSharedProcessGetsOnlyRequests(t *testing.T) {
	t.Parallel()
	s := open(t, "shared: true", "")
	s.post("", strings.Replace(initialize, "2025-11-25", "2025-03-26", 1))
	others := `{"jsonrpc":"2.0","id":4,"result":{}},{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`
	if got := s.post("", "["+others+"]"); got.status != http.StatusAccepted {
		t.Errorf("a batch without requests: %+v", got)
	}
	if got := s.post("", "["+others+","+call("5", "echo", "{}")+"]"); !strings.Contains(got.body, "ran echo") {
		t.Errorf("a batch with a request: %+v", got)
	}
	if seen := s.seen(); strings.Contains(seen, "list_changed") || strings.Contains(seen, `"result"`) {
		t.Errorf("the server got %s", seen)
	}
}

// A server answers a request of a batch twice. Only the first answer counts, and the batch ends
// with the answer to the other request.
func TestSecondAnswerIsDropped(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	session := s.post("", strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)).session
	got := s.post(session, "["+call("1", "answer_again", "{}")+","+call("2", "answer_last", "{}")+"]")
	for _, want := range []string{`"first"`, `"last"`, `"id":1`, `"id":2`} {
		if strings.Count(got.body, want) != 1 {
			t.Errorf("the batch was answered %+v; want %s once", got, want)
		}
	}
	if strings.Contains(got.body, `"second"`) {
		t.Errorf("the batch was answered %+v", got)
	}
	if !strings.Contains(s.log.String(), "dropped the server's answer to a request that is not pending") {
		t.Error("the log does not have the second answer")
	}
}

// A shared process is ended when it answers an unknown request, or answers twice. The answer is
// dropped, and the next call gets a new process.
func TestSharedProcessEndsAtStrayAnswer(t *testing.T) {
	t.Parallel()
	for name, stray := range map[string]string{
		"another id":    call("1", "forge", `{"id":4}`),
		"an id as text": call("1", "forge", `{"id":"4"}`),
		"a second time": call("1", "answer_again", "{}"),
		"to initialize": call("1", "forge", `{"id":0}`),
	} {
		s := open(t, "shared: true", "")
		before := s.pid("")
		if got := s.post("", call("4", "echo", "{}")); !strings.Contains(got.body, "ran echo") {
			t.Errorf("%s: %+v", name, got)
		}
		if got := s.post("", stray); strings.Contains(got.body, "forged") || strings.Contains(got.body, "second") {
			t.Errorf("%s: the client got %+v", name, got)
		}
		s.await("the process is replaced after an answer with "+name, func() bool { return s.pid("") != before })
	}
	s := open(t, "shared: true", "")
	before := s.pid("")
	s.post("", call("1", "forge", `{"id":null}`))
	leave := s.postAndLeave("", call("2", "progress", "{}"))
	s.awaitSeen(`"progress"`)
	leave()
	if got := s.post("", call("3", "progress", "{}")); !strings.Contains(got.body, "done") || s.pid("") != before {
		t.Errorf("a late answer, or one without an id, has ended the process: %+v", got)
	}
}

// A client cancels by its own request id; the server gets the id that it knows.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	session := s.begin()
	leave := s.postAndLeave(session, call("8", "hang", "{}"))
	s.awaitSeen(`"hang"`)
	_, line, _ := strings.Cut(s.seen(), `"id":"tg-`)
	id, _, _ := strings.Cut(line, `"`)
	if got := s.post(session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`); got.status != http.StatusAccepted {
		t.Errorf("cancel: %+v", got)
	}
	s.awaitSeen(`"requestId":"tg-`)
	_, rest, _ := strings.Cut(s.seen(), `"requestId":"tg-`)
	if !strings.HasPrefix(rest, id) && !strings.Contains(s.seen(), `"id":"tg-`+rest[:26]) {
		t.Errorf("the server got a message about an unknown request: %s", rest)
	}
	leave()
}

// A client of a shared process cannot cancel requests of other clients, although their ids are easy
// to guess.
func TestClientCannotCancelRequestsOfOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, upstream, identity, ann, bob string }{
		{"shared", "shared: true", "IDENTITY", annToken, bobToken},
		{"anonymous", "", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, tt.upstream, tt.identity)
			s.token = tt.ann
			leave := s.postAndLeave("", modernCall("8", "hang"))
			defer leave()
			s.awaitSeen(`"hang"`)
			s.token = tt.bob
			if got := s.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8,`+modernMeta+`}}`); got.status != http.StatusAccepted {
				t.Errorf("cancel: %+v", got)
			}
			s.post("", modernCall("9", "pid")) // the server has read all earlier messages
			if seen := s.seen(); strings.Contains(seen, "notifications/cancelled") || strings.Count(seen, " started") != 1 {
				t.Errorf("one client has cancelled the request of another: %s", seen)
			}
		})
	}
}

// A server that clients share sends a notification about a call without naming it. The other client
// does not get it, although its call is the latest.
func TestNotificationsDoNotReachOtherClients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, upstream, identity, ann, bob string }{
		{"shared", "shared: true", "IDENTITY", annToken, bobToken},
		{"anonymous", "", "", "", ""},
		{"one principal", "", "IDENTITY", annToken, annToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, tt.upstream, tt.identity)
			s.token = tt.ann
			ann := s.postLog("ann")
			s.token = tt.bob
			bob := s.postLog("bob")
			for _, got := range []answer{ann(), bob()} { // the gate reads the notification about Ann's call before Bob's answer
				if !strings.Contains(got.body, "logged") || strings.Contains(got.body, "notifications/message") {
					t.Errorf("a client got %+v", got)
				}
			}
			if seen := s.seen(); strings.Count(seen, " started") != 1 {
				t.Errorf("the clients do not share a process: %s", seen)
			}
		})
	}
}

// A held call runs once, in the process of its session.
func TestHeldCallRunsInItsSession(t *testing.T) {
	t.Parallel()
	s := open(t, "", "waiting: {hold: 1m}\n")
	session := s.begin()
	before := s.pid(session)
	done := make(chan answer, 1)
	go func() { done <- s.post(session, call("9", "delete", `{"all":true}`)) }()
	s.approve()
	if got := <-done; !strings.Contains(got.body, `ran delete {\"all\":true}`) || !strings.Contains(got.body, `"id":9`) {
		t.Errorf("the held call was answered %+v", got)
	}
	if n := strings.Count(s.seen(), strconv.Itoa(before)+` {"jsonrpc":"2.0","id":"tg-`); n == 0 || strings.Count(s.seen(), `"delete"`) != 1 {
		t.Errorf("the server saw %s", s.seen())
	}
}

// A pending call and its session survive a restart of the gate: the call runs in a new process,
// which gets the session's initialize request.
func TestSessionSurvivesRestartOfGate(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	session := s.begin()
	if got := s.post(session, call("9", "delete", `{"n":1}`)); !strings.Contains(got.body, "approval") {
		t.Fatalf("the call was answered %+v", got)
	}
	before := s.pid(session)
	s.stop()
	if alive(before) {
		t.Error("a process outlived its gate")
	}
	s.start()
	s.approve()
	s.await("the repeated call gets the answer", func() bool {
		return strings.Contains(s.post(session, call("10", "delete", `{"n":1}`)).body, "ran delete")
	})
	if n := strings.Count(s.seen(), `"delete"`); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
	if n := strings.Count(s.seen(), `"clientInfo":{"name":"tester"`); n != 2 {
		t.Errorf("%d processes got initialize; want 2", n)
	}
	if n := strings.Count(s.seen(), "notifications/initialized"); n != 2 {
		t.Errorf("%d processes got the initialized notification; want 2", n)
	}
}

// A server gets the configured environment and the variables that every program needs, and no others of
// the gate.
func TestServerEnvironment(t *testing.T) {
	t.Parallel()
	s := open(t, "env: {BRIDGE_SEEN: 'SEEN_FILE', GREETING: hello, COUNT: 3}, dir: .", "")
	session := s.begin()
	got := s.post(session, call("1", "environ", "{}")).body
	for _, secret := range []string{"hush", "CLOUD_SECRET", "THOUGHTGATE_"} {
		if strings.Contains(got, secret) {
			t.Errorf("the server gets %s: %s", secret, got)
		}
	}
	for _, want := range []string{"GREETING=hello", "COUNT=3", "PATH=", "HOME=" + s.dir} {
		if !strings.Contains(got, want) {
			t.Errorf("the server does not get %s: %s", want, got)
		}
	}
	if where := s.post(session, call("1", "dir", "{}")).body; !strings.Contains(where, s.dir) {
		t.Errorf("the server runs in %s, not in %s", where, s.dir)
	}
}

// No shell interprets a command.
func TestCommandRunsWithoutShell(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/injected"
	s := open(t, "command: ['true; touch "+file+"', '$$(touch "+file+")']", "")
	if got := s.post("", initialize); !strings.Contains(got.body, "upstream_unreachable") {
		t.Errorf("initialize: %+v", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a shell has run part of the command")
	}
	if got := s.post("", modernCall("1", "delete")); strings.Contains(got.body, "ran delete") {
		t.Errorf("a held call: %+v", got)
	}
}

// Modern messages belong to no session. The client sees its own subscription id.
func TestModern(t *testing.T) {
	t.Parallel()
	s := open(t, "", "IDENTITY")
	s.token = annToken
	ann := s.pidIn(s.post("", modernCall("1", "pid")))
	if again := s.pidIn(s.post("", modernCall("1", "pid"))); again != ann {
		t.Error("one client has two processes")
	}
	s.token = bobToken
	if bob := s.pidIn(s.post("", modernCall("1", "pid"))); bob == ann {
		t.Error("two clients share a process")
	}
	listened := s.post("", `{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`)
	if n := strings.Count(listened.body, `"io.modelcontextprotocol/subscriptionId":"mine"`); n < 3 || strings.Contains(listened.body, "tg-") {
		t.Errorf("a client that listens got %+v", listened)
	}
	leave := s.postAndLeave("", modernCall("8", "hang"))
	s.awaitSeen(`"hang"`)
	leave()
	s.awaitSeen("notifications/cancelled")
}

// A session belongs to the principal that began it, also after a restart of the gate.
func TestSessionBelongsToPrincipal(t *testing.T) {
	t.Parallel()
	s := open(t, "", "IDENTITYwaiting: {hold: 1m}\n")
	s.token = annToken
	session := s.begin()
	pid := s.pid(session)
	foreign := func() {
		t.Helper()
		s.token = bobToken
		defer func() { s.token = annToken }()
		if got := s.post(session, call("1", "pid", "{}")); got.status != http.StatusNotFound {
			t.Errorf("another principal in the session: %+v", got)
		}
		if got := s.read(s.request(t.Context(), http.MethodDelete, session, "")); got.status != http.StatusNotFound {
			t.Errorf("another principal ends the session: %+v", got)
		}
		if got := s.read(s.request(t.Context(), http.MethodGet, session, "")); got.status != http.StatusNotFound {
			t.Errorf("another principal listens to the session: %+v", got)
		}
		if got := s.post(session, call("1", "delete", "{}")); got.status != http.StatusNotFound {
			t.Errorf("a call of another principal that would be held: %+v", got)
		}
	}
	foreign()
	if s.pid(session) != pid {
		t.Error("the session has another process now")
	}
	s.stop()
	s.start()
	foreign()
	s.pid(session)
	if strings.Contains(s.seen(), `"delete"`) {
		t.Error("a call of another principal has run in the session")
	}
}

// The gate stops although a server ignores the end of its input and SIGTERM.
func TestStubbornServerIsKilled(t *testing.T) {
	t.Parallel()
	s := open(t, "env: {BRIDGE_SEEN: 'SEEN_FILE', BRIDGE_STUBBORN: 1}", "")
	pid := s.pid(s.begin())
	s.stop()
	if alive(pid) {
		t.Error("a process outlived its gate")
	}
	s.awaitSeen("end of input")
}
