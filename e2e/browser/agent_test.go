package browser_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The list and the page of a request say that the agent is gone while they are
// open. Text that somebody writes there stays.
func TestAgentLeaves(t *testing.T) {
	s := open(t, plainRules)
	p, ok := visit(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	for _, row := range []bool{true, false} {
		leave := s.askRaw(t)
		p.open("/")
		p.sees("Agent is waiting")
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
			p.eventually(`document.querySelector("#reason").value === "not yet"`, "what was written stays")
		}
	}
}

// askRaw makes a call as a client that sends nothing when it leaves.
func (s *site) askRaw(t *testing.T) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.agents,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "leaver")
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
