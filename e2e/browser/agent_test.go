package browser_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// An open list or call page shows when the agent leaves, and keeps typed text.
func TestPagesShowThatTheAgentLeft(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	for _, row := range []bool{true, false} {
		leave := s.askRaw(t)
		p.open("/")
		p.eventually(`document.querySelectorAll(".row").length > 0`, "a row")
		if !row {
			p.click(".row .open")
			p.sees("Why it is held")
			p.sees("Agent is waiting")
			p.click("#reason")
			p.press("not yet")
		}
		leave()
		p.sees("Agent gone for ")
		if !row {
			p.eventually(`document.querySelector("#reason").value === "not yet"`, "the typed text stays")
		}
	}
}

// rawRequest returns an HTTP request to the gate as text.
func (s *site) rawRequest(ctx context.Context, t *testing.T, message string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.agents, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r
}

// askRaw makes a call as a client that closes its connection without a cancellation.
func (s *site) askRaw(t *testing.T) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	first := s.rawRequest(ctx, t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	begun, err := (&http.Client{Transport: s}).Do(first)
	if err != nil {
		t.Fatal(err)
	}
	_ = begun.Body.Close()
	r := s.rawRequest(ctx, t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"}}}`)
	r.Header.Set("Mcp-Session-Id", begun.Header.Get("Mcp-Session-Id"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := (&http.Client{Transport: s}).Do(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	leave = func() { cancel(); <-done }
	t.Cleanup(leave)
	return leave
}
