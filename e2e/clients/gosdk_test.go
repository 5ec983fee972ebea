package clients_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// A goClient is a session of the official Go client.
type goClient struct{ *mcp.ClientSession }

// A known client sends its credentials, if it has any.
type known struct {
	http.RoundTripper

	credentials string
}

func (s *known) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.credentials != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", s.credentials)
	}
	return s.RoundTripper.RoundTrip(r)
}

func connectGo(t *testing.T, s *site, version, credentials string) *goClient {
	t.Helper()
	return connectGoWith(t, s, version, credentials, nil)
}

func connectGoWith(t *testing.T, s *site, version, credentials string, options *mcp.ClientOptions) *goClient {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "clients", Version: "1"}, options).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: &known{RoundTripper: transport, credentials: credentials}}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("negotiated %s; want %s", got, version)
	}
	return &goClient{session}
}

// A told is the result or the error that a client got for its call.
type told struct {
	text    string
	isError bool // it is a tool result that reports an error
	err     error
}

// remove calls delete_file in the background, and returns a channel for the outcome.
func (c *goClient) remove(ctx context.Context, path string) <-chan told {
	end := make(chan told, 1)
	params := &mcp.CallToolParams{Name: "delete_file", Arguments: map[string]any{"path": path}}
	go func() { end <- outcome(c.CallTool(ctx, params)) }()
	return end
}

func outcome(res *mcp.CallToolResult, err error) told {
	if err != nil {
		return told{err: err}
	}
	end := told{isError: res.IsError}
	for _, content := range res.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			end.text += text.Text
		}
	}
	return end
}

// reason returns the text of a tool result that reports that the call did not run.
func (end told) reason() string {
	if end.err != nil || !end.isError {
		return ""
	}
	return end.text
}

// isUndecided reports whether the outcome is a result that says that the call is pending, and
// asks the client to call again or to tell its user.
func (end told) isUndecided() bool {
	return strings.Contains(end.reason(), "It waits for approval by default (tg_") && strings.Contains(end.text, "It has not run.")
}

// deleted requires a result about the deleted file.
func deleted(t *testing.T, end told) {
	t.Helper()
	if end.err != nil || end.isError || end.text != "deleted "+bonuses {
		t.Errorf("the client got %+v", end)
	}
}

func bothEras(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range []string{legacyVersion, modernVersion} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

// A call without a task is held, and answered when it is approved.
func TestGoHeldAndApproved(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		s := open(t, longHold)
		end := connectGo(t, s, version, "").remove(t.Context(), bonuses)
		held := s.pending(t)
		s.ran(t, 0)
		s.approve(t, held)
		deleted(t, receive(t, end))
		s.ran(t, 1)
	})
}

// A client gets the rejection with its reason.
func TestGoRejected(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		s := open(t, longHold)
		end := connectGo(t, s, version, "").remove(t.Context(), bonuses)
		s.reject(t, s.pending(t))
		if got := receive(t, end); !strings.Contains(got.reason(), "Rejected by an approver") {
			t.Errorf("the client got %+v", got)
		}
		s.ran(t, 0)
	})
}

// A call that needs no approval is forwarded; a denied tool is neither listed nor run.
func TestGoPolicy(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		s := open(t, longHold)
		c := connectGo(t, s, version, "")
		for tool, err := range c.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if tool.Name == "write_file" {
				t.Error("a denied tool is listed")
			}
		}
		got := outcome(c.CallTool(t.Context(), &mcp.CallToolParams{Name: "write_file", Arguments: map[string]any{"path": bonuses, "text": ""}}))
		if !strings.Contains(got.reason(), "It did not run") {
			t.Errorf("for a denied call the client got %+v", got)
		}
		if asked := s.approvals(t, "all"); len(asked) != 0 || len(s.demo.Calls()) != 0 {
			t.Errorf("asked %v, ran %v", asked, s.demo.Calls())
		}
	})
}

// A legacy client that is asked to call again attaches to the pending call, and gets its
// result. The tool runs once. After that, the same call is a new one.
func TestGoAttachesToPendingCall(t *testing.T) {
	s := open(t, shortHold)
	c := connectGo(t, s, legacyVersion, "")
	first := receive(t, c.remove(t.Context(), bonuses))
	if !first.isUndecided() {
		t.Errorf("the client got %+v", first)
	}
	held := s.pending(t)
	again := receive(t, c.remove(t.Context(), bonuses))
	if !again.isUndecided() {
		t.Errorf("after calling again, the client got %+v", again)
	}
	if same := s.pending(t); same.ID != held.ID {
		t.Error("a second approval was requested")
	}
	s.ran(t, 0)

	s.approve(t, held)
	deleted(t, untilAnswered(t, func() told { return receive(t, c.remove(t.Context(), bonuses)) }))
	s.ran(t, 1)

	receive(t, c.remove(t.Context(), bonuses))
	if next := s.pending(t); next.ID == held.ID {
		t.Error("a call was attached to an answered one")
	}
	s.ran(t, 1)
}

// untilAnswered calls as often as the client is asked to call again. On a slow machine, an
// approved call may run longer than the gate holds a request.
func untilAnswered(t *testing.T, call func() told) (end told) {
	t.Helper()
	eventually(t, func() bool {
		end = call()
		return end.err != nil || !strings.Contains(end.text, "has not run") && !strings.Contains(end.text, "is running")
	})
	return end
}

// A client that requests progress is held as long as the approval takes, while one without
// progress is asked to call again.
func TestGoHeldForProgress(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		s := open(t, shortHold)
		c := connectGo(t, s, version, "")
		params := &mcp.CallToolParams{Name: "delete_file", Arguments: map[string]any{"path": bonuses}}
		params.SetProgressToken("p-1")
		end := make(chan told, 1)
		go func() { end <- outcome(c.CallTool(t.Context(), params)) }()
		held := s.pending(t)

		other := receive(t, connectGo(t, s, legacyVersion, "").remove(t.Context(), "/notes/todo.txt"))
		if !other.isUndecided() {
			t.Errorf("a client without progress got %+v", other)
		}
		select {
		case got := <-end:
			t.Fatalf("the client got %+v before the decision", got)
		default:
		}
		s.approve(t, held)
		deleted(t, receive(t, end))
		s.ran(t, 1)
	})
}

// A modern client gets a state and calls again with it: all rounds belong to the same held
// call.
func TestGoRoundsBelongToOneCall(t *testing.T) {
	t.Parallel()
	s := open(t, mediumHold)
	s.watch(t)
	s.onCall(2, func() { s.approve(t, s.pending(t)) })
	c := connectGo(t, s, modernVersion, "")
	deleted(t, receive(t, c.remove(t.Context(), bonuses)))
	if all := s.approvals(t, "all"); len(all) != 1 {
		t.Errorf("%d approvals were requested", len(all))
	}
	s.ran(t, 1)
}

// The Go client gives up after three answers that contain only a state. A client that is
// identified by its credentials attaches to the pending call when it calls again.
func TestGoAttachesAfterGivingUpRounds(t *testing.T) {
	t.Parallel()
	s := open(t, shortHold)
	s.watch(t)
	c := connectGo(t, s, modernVersion, "Bearer agent-1")
	got := receive(t, c.remove(t.Context(), bonuses))
	if !gaveUp(got) {
		t.Errorf("the client ended with %+v", got)
	}
	if n := s.calls(); n != 3 {
		t.Errorf("the client sent the call %d times; want 3", n)
	}
	held := s.pending(t)
	s.ran(t, 0)

	s.onCall(4, func() { s.approve(t, held) })
	eventually(t, func() bool {
		got = receive(t, c.remove(t.Context(), bonuses))
		return !gaveUp(got)
	})
	deleted(t, got)
	s.ran(t, 1)
}

// gaveUp reports whether the client gave up after too many rounds.
func gaveUp(end told) bool {
	return end.err != nil && strings.Contains(end.err.Error(), "exceeded maximum load-shedding retries")
}

// A client cancels its call in the way of its era, and the call can no longer be approved.
func TestGoCancels(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		s := open(t, longHold)
		ctx, cancel := context.WithCancel(t.Context())
		end := connectGo(t, s, version, "").remove(ctx, bonuses)
		s.pending(t)
		cancel()
		if got := receive(t, end); got.err == nil {
			t.Errorf("the client got %+v", got)
		}
		s.inState(t, "cancelled")
		s.ran(t, 0)
	})
}
