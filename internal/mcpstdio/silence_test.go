package mcpstdio_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A silentLink is a server that sends only the test's messages.
type silentLink struct {
	asks *upstream.Upstream
	sent chan string
}

func (l *silentLink) Upstream() *upstream.Upstream { return l.asks }
func (l *silentLink) Credentials() http.Header     { return nil }
func (l *silentLink) Forward(_ context.Context, f upstream.Forwarded) error {
	if f.Expect == nil || f.Expect() {
		l.sent <- string(f.Body)
	}
	return nil
}

// A silence is a test client and a server with limits of ten seconds, and sixty for calls.
type silence struct {
	link    *silentLink
	agent   *mcpstdio.Agent
	in      io.Writer
	out     *bufio.Reader
	log     *logBuffer
	started time.Time
}

func inSilence(t *testing.T, do func(s *silence)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in, write := io.Pipe()
		read, out := io.Pipe()
		s := &silence{in: write, out: bufio.NewReader(read), log: new(logBuffer), started: time.Now()}
		s.link = &silentLink{asks: upstream.New(upstream.Config{Name: "test"}), sent: make(chan string, 100)}
		log := logging.New(s.log, "json", slog.LevelDebug)
		g := catalog.New(&catalog.Settings{}, time.Now, log, nil)
		gateway := conversation.NewGateway(conversation.Config{Catalog: g, Log: log})
		s.agent = mcpstdio.New(mcpstdio.Config{
			In: in, Out: out, Link: s.link, Principal: policy.Principal{ID: "local:tester"}, Catalog: g, Gateway: gateway, Log: log,
			Limits: mcpstdio.Limits{Line: 1 << 20, Requests: 1000, Silence: mcpstdio.Silence{Request: 10 * time.Second, Call: time.Minute}},
		})
		served := make(chan struct{})
		go func() { defer close(served); s.agent.Serve(t.Context()) }()
		do(s)
		write.Close()
		<-served
		s.agent.Close()
		gateway.Close()
		logging.Close(t.Context(), log)
	})
}

// ask sends a message, and waits until the server has it.
func (s *silence) ask(message string) {
	_, _ = io.WriteString(s.in, message+"\n")
	<-s.link.sent
}

// hear returns the next message to the client, and its time.
func (s *silence) hear() (line string, at time.Duration) {
	line, _ = s.out.ReadString('\n')
	return line, time.Since(s.started)
}

// says sends a message from the server, and removes it from the pipe if the client gets it.
func (s *silence) says(message string) {
	go s.agent.Received(upstream.ReadLine([]byte(message), 0))
	_, _ = s.hear()
	synctest.Wait()
}

const hang = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","_meta":{"progressToken":"p1"}}}`

func progress(token string) string {
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` + token + `","progress":1}}`
}

// CORE-007 5.2: an unanswered request ends at its limit, and the server gets a cancellation.
func TestSilentServerIsCancelled(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		after   time.Duration
		cancels string
	}{
		"call":  {hang, time.Minute, `"requestId":1,`},
		"other": {`{"jsonrpc":"2.0","id":"a","method":"prompts/list"}`, 10 * time.Second, `"requestId":"a",`},
		"batch": {`[{"jsonrpc":"2.0","id":7,"method":"ping"},` + hang + `]`, time.Minute, `"requestId":7,`},
	} {
		t.Run(name, func(t *testing.T) {
			inSilence(t, func(s *silence) {
				s.ask(tt.message)
				answer, at := s.hear()
				if contains(t, answer, `"code":-32001`, `"error_type":"upstream_timeout"`); at != tt.after {
					t.Errorf("answered after %v; want %v", at, tt.after)
				}
				contains(t, <-s.link.sent, `"method":"notifications/cancelled"`, tt.cancels)
				// A late answer reaches the next request with its ID, or is dropped.
				s.ask(`{"jsonrpc":"2.0","id":99,"method":"ping"}`)
				go s.agent.Received(upstream.ReadLine([]byte(`{"jsonrpc":"2.0","id":99,"result":{}}`), 0))
				answer, _ = s.hear()
				contains(t, answer, `"id":99,"result"`)
			})
		})
	}
}

// A request's own progress extends its time, and so do messages that may concern any request.
// Progress of another request does not.
func TestActivityExtendsLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		said  string
		after time.Duration
	}{
		"its progress":       {progress("p1"), 100 * time.Second},
		"a log message":      {`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, 100 * time.Second},
		"another's progress": {progress("p2"), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inSilence(t, func(s *silence) {
				s.ask(hang)
				time.Sleep(40 * time.Second)
				s.says(tt.said)
				answer, at := s.hear()
				if contains(t, answer, "upstream_timeout"); at != tt.after {
					t.Errorf("answered after %v; want %v", at, tt.after)
				}
			})
		})
	}
}

// A server may take any time to start, to wait for an answer to its question, and to end its
// own task.
func TestSlowStartsAndQuestionsHaveNoLimit(t *testing.T) {
	for name, message := range map[string]string{
		"initialize":    `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
		"tasks/result":  `{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"theirs"}}`,
		"a question":    hang,
		"a slow client": hang,
	} {
		t.Run(name, func(t *testing.T) {
			inSilence(t, func(s *silence) {
				s.ask(message)
				switch name {
				case "a question":
					s.says(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{}}`)
				case "a slow client": // delays the next line of the server
					go func() {
						s.agent.Received(upstream.ReadLine([]byte(progress("p1")), 0))
						time.Sleep(30 * time.Second)
						s.agent.Received(upstream.ReadLine([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), 0))
					}()
					time.Sleep(time.Hour)
					s.hear()
					answer, _ := s.hear()
					contains(t, answer, `"id":1,"result"`)
					return
				}
				time.Sleep(time.Hour)
				go s.agent.Received(upstream.ReadLine([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), 0))
				answer, _ := s.hear()
				contains(t, answer, `"id":1,"result"`)
			})
		})
	}
}

// CORE-003 NFR-001: the debug log has a line for each received message.
func TestReceivedMessagesAreLogged(t *testing.T) {
	inSilence(t, func(s *silence) {
		s.ask(strings.Replace(hang, `"name"`, `"task":{},"name"`, 1))
		contains(t, s.log.String(), `"level":"DEBUG","msg":"MCP request received","method":"tools/call","has_task_metadata":true,"upstream":"test","correlation_id":"`)
		_, _ = s.hear()
		<-s.link.sent
	})
}

func TestAnswerMatchesAnySpellingOfID(t *testing.T) {
	for asked, answered := range map[string]string{`1e2`: `100`, `-0`: `0`, `1.0`: `1`} {
		inSilence(t, func(s *silence) {
			s.ask(`{"jsonrpc":"2.0","id":` + asked + `,"method":"ping"}`)
			go s.agent.Received(upstream.ReadLine([]byte(`{"jsonrpc":"2.0","id":`+answered+`,"result":{}}`), 0))
			if answer, _ := s.hear(); !strings.Contains(answer, `"result":{}`) {
				t.Errorf("%s was answered %s", asked, answer)
			}
		})
	}
}
