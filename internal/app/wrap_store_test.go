package app_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A wrap is a running wrap, and the test is its agent.
type wrap struct {
	*app.App

	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Scanner
}

// startWrap starts a wrap of the server with this name at a URL, with a configuration.
func startWrap(t *testing.T, text, name, target string) *wrap {
	t.Helper()
	cfg := load(t, text)
	remote := config.DefaultUpstream()
	remote.Name = name
	var err error
	if remote.URL, err = url.Parse(target); err != nil {
		t.Fatal(err)
	}
	cfg.Upstreams = []config.Upstream{remote}
	in, write := io.Pipe()
	read, out := io.Pipe()
	w := &wrap{t: t, in: write, lines: bufio.NewScanner(read)}
	if w.App, err = app.NewWrap(cfg, slog.New(slog.DiscardHandler), app.Wrap{In: in, Out: out, User: "tester"}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		write.Close()
		read.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// say sends a message.
func (w *wrap) say(message string) { fmt.Fprintln(w.in, message) }

// hear returns the next message that contains a text.
func (w *wrap) hear(with string) string {
	w.t.Helper()
	for w.lines.Scan() {
		if strings.Contains(w.lines.Text(), with) {
			return w.lines.Text()
		}
	}
	w.t.Fatalf("the agent gets no message with %s: %v", with, w.lines.Err())
	return ""
}

// Two wraps of one server and one of another server use the same store file at the same time.
// Any of their inboxes can decide, and each call runs once, on its own server.
func TestWrapsShareTheirStore(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	counting := func(ran *atomic.Int64) string {
		up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "tools/call") {
				ran.Add(1)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, idOf(body))
		}))
		t.Cleanup(up.Close)
		return up.URL
	}
	var first, second atomic.Int64
	one, two := counting(&first), counting(&second)
	text := "version: 1\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\nstore: 'sqlite:" + filepath.Join(t.TempDir(), "own.db") +
		"'\nupstreams: [{url: http://127.0.0.1:1/}]\nwaiting: {hold: 1m}\nrules: [{match: 'hold_*', action: approve}]\ndefault: forward\n"
	wraps := []*wrap{startWrap(t, text, "files", one), startWrap(t, text, "files", one), startWrap(t, text, "mail", two)}
	for i, w := range wraps {
		w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_it","arguments":{"n":%d}}}`, i))
		inbox := wraps[(i+1)%len(wraps)].OperatorAddr()
		var id string
		for deadline := time.Now().Add(time.Minute); id == "" && time.Now().Before(deadline); time.Sleep(25 * time.Millisecond) { // the gate limits requests
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+inbox+"/api/approvals?state=pending", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer secret-of-the-operators")
			_, rest, _ := strings.Cut(do(t, r), `"id":"`)
			id, _, _ = strings.Cut(rest, `"`)
		}
		if answer := approve(t, inbox, id); !strings.Contains(answer, `"approved"`) && !strings.Contains(answer, `"complete`) && !strings.Contains(answer, `"executing"`) {
			t.Fatalf("approve: %s", answer)
		}
		if got := w.hear(`"id":1`); !strings.Contains(got, "done") {
			t.Errorf("wrap %d: the held call was answered %s", i, got)
		}
	}
	if first.Load() != 2 || second.Load() != 1 {
		t.Errorf("%d and %d calls ran; want 2 and 1", first.Load(), second.Load())
	}
}
