package bridge_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An unused process ends. Its session continues in a new one.
func TestIdleProcessEnds(t *testing.T) {
	t.Parallel()
	s := open(t, "", "limits: {keepalive: 10ms}\n")
	session := s.begin()
	s.awaitSeen("end of input")
	first := s.pid(session)
	s.await("the process ends", func() bool { return !alive(first) })
	if second := s.pid(session); second == first {
		t.Error("the process did not end")
	}
	stream := s.request(t.Context(), http.MethodGet, session, "")
	defer stream.Body.Close()
	third := s.pid(session)
	time.Sleep(300 * time.Millisecond) // three times Config.Idle
	if s.pid(session) != third {
		t.Error("the process of a client that listens has ended")
	}
}

// One client may have a quarter of the processes. An unused process gives way to another one of the
// same client.
func TestProcessLimits(t *testing.T) {
	t.Parallel()
	s := open(t, "max_processes: 8", "IDENTITY")
	s.token = annToken
	used := func() (leave func()) {
		stream := s.request(t.Context(), http.MethodGet, s.begin(), "")
		return func() { stream.Body.Close() }
	}
	leave := used()
	defer used()()
	if got := s.post("", initialize); !strings.Contains(got.body, "client_limit") {
		t.Errorf("a third session of one client: %+v", got)
	}
	s.token = bobToken
	defer used()()
	s.token = annToken
	leave()
	var got answer
	s.await("an unused session gives way", func() bool {
		got = s.post("", initialize)
		return got.status == http.StatusOK
	})
	if n := strings.Count(s.seen(), " started"); n != 4 {
		t.Errorf("%d processes were started; want 4", n)
	}
}

// The total number of processes is limited.
func TestTotalProcessLimit(t *testing.T) {
	t.Parallel()
	s := open(t, "max_processes: 1", "IDENTITY")
	s.token = annToken
	stream := s.request(t.Context(), http.MethodGet, s.begin(), "")
	defer stream.Body.Close()
	s.token = bobToken
	if got := s.post("", initialize); !strings.Contains(got.body, "overloaded") {
		t.Errorf("a second session: %+v", got)
	}
}

// A session whose process was ended for another client's continues in a new process.
func TestSessionSurvivesEndOfProcess(t *testing.T) {
	t.Parallel()
	s := open(t, "max_processes: 1", "")
	one, two := s.begin(), s.begin()
	for range 3 {
		first, second := s.pid(one), s.pid(two)
		if first == second || alive(first) {
			t.Errorf("%d serves one session and %d the other", first, second)
		}
	}
}

// A process that ends during a call is reported, and the call is not repeated. The next call gets a
// new process; after too many crashes, the session ends.
func TestCallInCrashedProcessIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := open(t, "", "")
	session := s.begin()
	first := s.pid(session)
	if got := s.post(session, call("1", "crash", "{}")); !strings.Contains(got.body, "upstream_invalid_response") || !strings.Contains(got.body, "may have run") {
		t.Errorf("a call during which the server ended: %+v", got)
	}
	if s.pid(session) == first {
		t.Error("a process that has ended answers")
	}
	if n := strings.Count(s.seen(), `"crash"`); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
	s.await("the session is over", func() bool { return s.post(session, call("1", "crash", "{}")).status == http.StatusNotFound })
	if n := strings.Count(s.seen(), " started"); n != 4 {
		t.Errorf("%d processes were started; want 4", n)
	}
	s.pid(s.begin())
}

// A client that leaves while the server starts does not end it for other clients, and keeps its
// session.
func TestClientLeavingDuringStartKeepsProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, upstream string
		begin          func(*fixture) (session string)
		processes      int
	}{
		{"shared", "shared: true, ", func(*fixture) string { return "" }, 1},
		{"session", "", (*fixture).begin, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "go-on")
			goOn := func() {
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			goOn()
			s := open(t, tt.upstream+"env: {BRIDGE_SEEN: 'SEEN_FILE', BRIDGE_WAIT: '"+file+"'}", "")
			session := tt.begin(s)
			s.stop()
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			s.start()
			leave := s.postAndLeave(session, call("1", "echo", "{}"))
			s.await("the server is told how the client began", func() bool { return strings.Count(s.seen(), `"initialize"`) == tt.processes })
			leave()
			s.await("the gate knows that the client has left", func() bool { return strings.Contains(s.log.String(), `"client_gone":true`) })
			goOn()
			s.pid(session)
			if n := strings.Count(s.seen(), " started"); n != tt.processes {
				t.Errorf("%d processes were started; want %d", n, tt.processes)
			}
		})
	}
}

// A held call whose process ends may have run, and is not repeated. A call that could not be sent
// has not run.
func TestHeldCallInCrashedProcessIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := open(t, "", "rules: [{match: 'crash', action: approve}]\ndefault: forward\nwaiting: {hold: 1m}\n")
	session := s.begin()
	done := make(chan answer, 1)
	go func() { done <- s.post(session, call("1", "crash", "{}")) }()
	s.approve()
	if got := <-done; !strings.Contains(got.body, "may have run") || strings.Contains(got.body, "did not run") {
		t.Errorf("a held call during which the server ended: %+v", got)
	}
	if n := strings.Count(s.seen(), `"crash"`); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
}

// A call that is not answered in time is cancelled at the server. Other calls continue.
func TestHangingCallIsCancelled(t *testing.T) {
	t.Parallel()
	s := open(t, "", "limits: {call_timeout: 15s}\n")
	session := s.begin()
	pid := s.pid(session)
	if got := s.post(session, call("1", "hang", "{}")); !strings.Contains(got.body, "upstream_timeout") {
		t.Errorf("a call that is not answered: %+v", got)
	}
	s.awaitSeen("notifications/cancelled")
	if s.pid(session) != pid {
		t.Error("the session has another process")
	}
}

// A server that writes too much to its client and to the log is limited, and its messages about
// other requests are dropped.
func TestFloodingServerIsLimited(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := open(t, "", "limits: {max_result: 16MB}\n")
	session := s.begin()
	if got := s.post(session, call("1", "flood", "{}")); !strings.Contains(got.body, "flooded") {
		t.Errorf("a flood ended with %.300s", got.body)
	}
	s.await("the log has what the server says", func() bool { return strings.Contains(s.log.String(), `"noise`) })
	if n := strings.Count(s.log.String(), `"noise`); n == 0 || n > 100*(1+int(time.Since(began)/(10*time.Second))) {
		t.Errorf("the log has %d lines of the server", n)
	}
	if got := s.post(session, call("2", "huge", "{}")); !strings.Contains(got.body, "limits.max_result") {
		t.Errorf("a huge answer: %.300s", got.body)
	}
	if got := s.post(session, call("3", "forge", `{"id":4}`)); strings.Contains(got.body, "forged") {
		t.Errorf("a forged answer: %+v", got)
	}
	s.pid(session)
}

// A client that does not read its large answers loses those beyond its share. Other clients get
// theirs.
func TestUnreadAnswersAreLimited(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, call string }{
		{"json", call("1", "large", "{}")},
		{"batch", "[" + call("1", "large", "{}") + "]"},
		{"events", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":9},"name":"large","arguments":{}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, "shared: true", "IDENTITYlimits: {max_result: 96MiB, request_timeout: 10m}\n") // the client may be slow to read
			s.token = annToken
			const calls = 4
			var unread []*http.Response
			for range calls {
				unread = append(unread, s.request(t.Context(), http.MethodPost, "", tt.call))
			}
			s.await("the server has answered all calls", func() bool { return strings.Count(s.log.String(), "wrote a large answer") == calls })
			s.token = bobToken
			if got := s.post("", call("2", "large", "{}")); len(got.body) < largeAnswer {
				t.Errorf("the answer for another client is %.300s", got.body)
			}
			complete := 0
			for _, resp := range unread {
				if got := s.read(resp); len(got.body) > largeAnswer {
					complete++
				} else if !strings.Contains(got.body, "upstream_invalid_response") {
					t.Errorf("an answer that was dropped: %.300s", got.body)
				}
			}
			if complete != 2 {
				t.Errorf("a client that does not read has %d answers; want its share, which is 2", complete)
			}
		})
	}
}
