package demo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// callBody is a legacy tools/call with id 1.
func callBody(tool, arguments, extra string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, tool, arguments, extra)
}

// run calls a tool and returns its text, with a mark if it is an error.
func run(t *testing.T, s *demo.Server, session, tool, arguments string) string {
	t.Helper()
	var answer struct {
		Result struct {
			IsError bool `json:"isError"`
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	got := exchange(t, s, "POST", callBody(tool, arguments, ""), "Mcp-Session-Id", session).Body.String()
	if err := json.Unmarshal([]byte(got), &answer); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	text := answer.Result.Content[0].Text
	if answer.Result.IsError {
		return "ERROR: " + text
	}
	return text
}

func TestTools(t *testing.T) {
	type step struct{ tool, arguments, want string }
	tests := []struct {
		name  string
		steps []step
	}{
		{"list everything", []step{{"list_files", `{}`, "/README.txt (80 bytes)\n/backups/do-not-delete.txt (62 bytes)\n/notes/haiku.txt (73 bytes)\n/notes/todo.txt (77 bytes)\n/payroll/bonuses.csv (40 bytes)"}}},
		{"list a directory", []step{
			{"list_files", `{"directory":"payroll/"}`, "/payroll/bonuses.csv (40 bytes)"},
			{"list_files", `{"directory":"/pay"}`, "ERROR: /pay: no such directory"},
		}},
		{"read", []step{
			{"read_file", `{"path":"/notes/../notes/haiku.txt"}`, "The intern asks why\nthe agent tidied the disk.\nNo one was asked. — 夜\n"},
			{"read_file", `{"path":"/notes"}`, "ERROR: /notes is a directory"},
			{"read_file", `{"path":"../../etc/passwd"}`, "ERROR: /etc/passwd: no such file"},
		}},
		{"write", []step{
			{"write_file", `{"path":"a/b.txt","text":"1"}`, "created /a/b.txt (1 bytes)"},
			{"write_file", `{"path":"a/b.txt","text":""}`, "replaced /a/b.txt (0 bytes)"},
			{"read_file", `{"path":"a/b.txt"}`, ""},
			{"write_file", `{"path":"a","text":"2"}`, "ERROR: /a is a directory"},
			{"write_file", `{"path":"/","text":"2"}`, "ERROR: / is a directory"},
			{"write_file", `{"path":"a/b.txt/c","text":"2"}`, "ERROR: /a/b.txt is a file, not a directory"},
			{"write_file", `{"path":"a"}`, "ERROR: write_file needs a path and a text"},
		}},
		{"delete is real", []step{
			{"delete_file", `{"path":"/notes/todo.txt"}`, "deleted /notes/todo.txt"},
			{"read_file", `{"path":"/notes/todo.txt"}`, "ERROR: /notes/todo.txt: no such file"},
			{"delete_file", `{"path":"/notes/todo.txt"}`, "ERROR: /notes/todo.txt: no such file"},
			{"delete_file", `{"path":"/notes"}`, "ERROR: /notes is a directory"},
			{"delete_file", `{"path":"/notes/haiku.txt"}`, "deleted /notes/haiku.txt"},
			{"list_files", `{"directory":"notes"}`, "ERROR: /notes: no such directory"},
		}},
		{"bad arguments", []step{
			{"delete_file", `{}`, `ERROR: the argument "path" is missing`},
			{"delete_file", `{"path":5}`, `ERROR: the argument "path" has the wrong type`},
			{"delete_file", `{"Path":"/README.txt"}`, `ERROR: there is no argument "Path"`},
			{"delete_file", `[]`, `ERROR: the arguments must be an object`},
			{"slow_report", `{}`, "ERROR: slow_report needs seconds between 0 and 300"},
			{"slow_report", `{"seconds":301}`, "ERROR: slow_report needs seconds between 0 and 300"},
			{"slow_report", `{"seconds":"1"}`, `ERROR: the argument "seconds" has the wrong type`},
			{"big_report", `{"megabytes":0}`, "ERROR: big_report needs megabytes between 1 and 1024"},
			{"big_report", `{"megabytes":1.5}`, `ERROR: the argument "megabytes" has the wrong type`},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := demo.New()
			session := open(t, s, "2025-06-18")
			var want []demo.Call
			for _, step := range tt.steps {
				if diff := cmp.Diff(step.want, run(t, s, session, step.tool, step.arguments)); diff != "" {
					t.Errorf("%s %s (-want +got):\n%s", step.tool, step.arguments, diff)
				}
				outcome := demo.Done
				if strings.HasPrefix(step.want, "ERROR") {
					outcome = demo.Failed
				}
				want = append(want, demo.Call{Tool: step.tool, Arguments: step.arguments, Outcome: outcome})
			}
			if diff := cmp.Diff(want, s.Calls()); diff != "" {
				t.Errorf("ledger (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFullDiskIsReported(t *testing.T) {
	s := demo.New()
	session := open(t, s, "2025-06-18")
	text := strings.Repeat("x", 1000<<10)
	for n := range 5 {
		got := run(t, s, session, "write_file", fmt.Sprintf(`{"path":"f%d","text":%q}`, n, text))
		if full := strings.HasPrefix(got, "ERROR: the disk is full"); full != (n == 4) {
			t.Fatalf("file %d: %s", n, got)
		}
	}
	// Replacing a file frees its bytes, like deleting.
	if got := run(t, s, session, "write_file", `{"path":"f0","text":""}`); got != "replaced /f0 (0 bytes)" {
		t.Error(got)
	}
}

func TestLedgerForgetsOldest(t *testing.T) {
	s := demo.New()
	session := open(t, s, "2025-06-18")
	for n := range 1001 {
		run(t, s, session, "list_files", fmt.Sprintf(`{"directory":"%d"}`, n))
	}
	calls := s.Calls()
	if len(calls) != 1000 || calls[0].Arguments != `{"directory":"1"}` {
		t.Errorf("%d calls, the first is %v", len(calls), calls[0])
	}
	if got, want := calls[999].String(), `failed    list_files {"directory":"1000"}`; got != want {
		t.Errorf("line %q; want %q", got, want)
	}
}

func TestSlowReport(t *testing.T) {
	event := func(data string) string { return "event: message\ndata: " + data + "\n\n" }
	told := func(n int, message string) string {
		return event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":%d,"total":3,"message":%q}}`, n, message))
	}
	result := event(`{"jsonrpc":"2.0","id":1,"result":{"isError":false,"content":[{"type":"text","text":"The report has 3 pages and took 2.5s. It recommends to wait."}]}}`)
	tests := []struct{ name, extra, want string }{
		{"with a token", `,"_meta":{"progressToken":"tok"}`, told(0, "sharpening a pencil") + told(1, "wrote page 1 of 3") + told(2, "wrote page 2 of 3") + told(3, "wrote page 3 of 3") + result},
		{"without", "", strings.Repeat(": still at it\n\n", 4) + result},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := demo.New()
				session := open(t, s, "2025-11-25")
				began := time.Now()

				resp := exchange(t, s, "POST", callBody("slow_report", `{"seconds":2.5}`, tt.extra), "Mcp-Session-Id", session)

				if diff := cmp.Diff(tt.want, resp.Body.String()); diff != "" {
					t.Errorf("stream (-want +got):\n%s", diff)
				}
				if took := time.Since(began); took.Round(time.Millisecond) != 2500*time.Millisecond {
					t.Errorf("took %v", took)
				}
				if kind := resp.Header().Get("Content-Type"); kind != "text/event-stream" {
					t.Errorf("Content-Type %q", kind)
				}
			})
		})
	}
}

// A slow call ends without an answer when its client disconnects, cancels, or closes the session.
func TestSlowReportStops(t *testing.T) {
	stops := map[string]func(t *testing.T, s *demo.Server, session string, leave func()){
		"client leaves": func(_ *testing.T, _ *demo.Server, _ string, leave func()) { leave() },
		"client cancels": func(t *testing.T, s *demo.Server, session string, _ func()) {
			exchange(t, s, "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"other"}}`, "Mcp-Session-Id", session)
			exchange(t, s, "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "Mcp-Session-Id", session)
		},
		"session ends": func(t *testing.T, s *demo.Server, session string, _ func()) {
			exchange(t, s, "DELETE", "", "Mcp-Session-Id", session)
		},
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := demo.New()
				session := open(t, s, "2025-11-25")
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				w := httptest.NewRecorder()
				done := make(chan struct{})
				go func() {
					defer close(done)
					r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/", strings.NewReader(callBody("slow_report", `{"seconds":300}`, "")))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Mcp-Session-Id", session)
					s.ServeHTTP(w, r)
				}()
				synctest.Wait()
				running := []demo.Call{{Tool: "slow_report", Arguments: `{"seconds":300}`, Outcome: demo.Running}}
				if diff := cmp.Diff(running, s.Calls()); diff != "" {
					t.Errorf("before (-want +got):\n%s", diff)
				}
				began := time.Now()

				stop(t, s, session, leave)

				<-done
				if took := time.Since(began); took > 0 {
					t.Errorf("continued for %v", took)
				}
				if got := s.Calls()[0].Outcome; got != demo.Cancelled {
					t.Errorf("outcome %s; want cancelled", got)
				}
				if diff := cmp.Diff(": still at it\n\n", w.Body.String()); diff != "" {
					t.Errorf("stream (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A sink counts the bytes that are written to it, and fails after a limit, if it has one.
type sink struct {
	http.ResponseWriter
	written, limit int
}

func (s *sink) Write(p []byte) (int, error) {
	if s.limit > 0 && s.written > s.limit {
		return 0, context.Canceled
	}
	s.written += len(p)
	return len(p), nil
}

func bigRequest(t *testing.T, s *demo.Server, megabytes int) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/", strings.NewReader(callBody("big_report", fmt.Sprintf(`{"megabytes":%d}`, megabytes), "")))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Mcp-Session-Id", open(t, s, "2025-11-25"))
	return r
}

func TestBigReport(t *testing.T) {
	s := demo.New()
	text := run(t, s, open(t, s, "2025-06-18"), "big_report", `{"megabytes":3}`)
	if len(text) != 3<<20 || strings.Count(text, "\n") != 3<<20/64 {
		t.Errorf("%d bytes in %d lines", len(text), strings.Count(text, "\n"))
	}
}

func TestBigReportUsesConstantMemory(t *testing.T) {
	s := demo.New()
	r := bigRequest(t, s, 64)
	w := &sink{ResponseWriter: httptest.NewRecorder()}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	s.ServeHTTP(w, r)

	runtime.ReadMemStats(&after)
	if w.written < 64<<20 {
		t.Errorf("wrote %d bytes", w.written)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("allocated %d bytes", used)
	}
}

// An interrupted report must not end like a complete one.
func TestBigReportStopsWithClient(t *testing.T) {
	s := demo.New()
	r := bigRequest(t, s, 1024)
	w := &sink{ResponseWriter: httptest.NewRecorder(), limit: 1 << 20}

	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("recovered %v; want an aborted handler", err)
			}
		}()
		s.ServeHTTP(w, r)
	}()

	if got := s.Calls()[0].Outcome; got != demo.Cancelled {
		t.Errorf("outcome %s; want cancelled", got)
	}
	if w.written > 2<<20 {
		t.Errorf("wrote %d bytes to a client that had left after 1 MiB", w.written)
	}
}
