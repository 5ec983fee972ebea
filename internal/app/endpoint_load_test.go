package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A traffic makes requests to an endpoint at the same time, until it is stopped.
type traffic struct {
	*plainRig
	client *http.Client
	ctx    context.Context
	done   []*atomic.Int64 // of each user that must always succeed
	well   atomic.Int64    // calls of the failing server that succeeded
	failed atomic.Int64
}

// send sends a message in a session.
func (l *traffic) send(ctx context.Context, method, session, body string) (answer, began string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+l.gate.AgentAddr()+"/mcp", strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + annsAgent}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := l.client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), resp.Header.Get("Mcp-Session-Id"), err
}

// user runs use again and again. It must never fail.
func (l *traffic) user(running *sync.WaitGroup, use func() error) {
	done := new(atomic.Int64)
	l.done = append(l.done, done)
	running.Go(func() {
		for l.ctx.Err() == nil {
			if err := use(); err != nil && l.ctx.Err() == nil {
				l.Errorf("a request that is not for the failing server failed: %v", err)
				return
			}
			done.Add(1)
		}
	})
}

// want makes a request whose answer must have all parts.
func (l *traffic) want(session, body string, parts ...string) error {
	answer, _, err := l.send(l.ctx, http.MethodPost, session, body)
	for _, part := range parts {
		if err == nil && !strings.Contains(answer, part) {
			err = fmt.Errorf("%s lacks %s", answer, part)
		}
	}
	return err
}

// begun begins a session, uses it and ends it.
func (l *traffic) begun() error {
	_, session, err := l.send(l.ctx, http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if err == nil && session == "" {
		err = errors.New("no session")
	}
	if err == nil {
		err = l.want(session, call("x"), "done by a")
	}
	if err == nil {
		_, _, err = l.send(l.ctx, http.MethodDelete, session, "")
	}
	return err
}

// throughout waits until all users have done some requests more.
func (l *traffic) throughout() {
	l.Helper()
	for i, done := range l.done {
		goal := done.Load() + 3
		eventually(l.T, fmt.Sprintf("user %d goes on", i), func() bool { return done.Load() >= goal || l.Failed() })
	}
}

// The errors of a server that is killed, hangs or is restarted are those of its own calls, whatever else
// goes on.
func TestEndpointServerFailsUnderLoad(t *testing.T) {
	a, b, c := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x"), newPlainServer(t, "c", "x")
	r := startPlainWith(t, "limits: {request_timeout: 10s, call_timeout: 1m}\nrules: [{match: '*', action: forward}]\ndefault: deny\n", a, b, c)
	has(t, r.list(), `"name":"x"`, `"name":"b__x"`, `"name":"c__x"`)
	ctx, stop := context.WithCancel(t.Context())
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	l := &traffic{plainRig: r, client: &http.Client{Transport: transport}, ctx: ctx}
	var running sync.WaitGroup
	defer transport.CloseIdleConnections()
	defer running.Wait()
	defer stop()
	for range 2 {
		l.user(&running, func() error { return l.want(r.session, call("x"), "done by a for session-of-a") })
		l.user(&running, func() error { return l.want(r.session, call("c__x"), "done by c for session-of-c") })
	}
	l.user(&running, func() error {
		return l.want(r.session, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"name":"x"`, `"name":"b__x"`, `"name":"c__x"`)
	})
	l.user(&running, l.begun)
	use := func() (leave func()) {
		ctx, leave := context.WithCancel(ctx)
		running.Go(func() {
			for ctx.Err() == nil {
				answer, _, err := l.send(ctx, http.MethodPost, r.session, call("b__x"))
				switch {
				case err != nil && ctx.Err() == nil:
					t.Error(err)
					return
				case strings.Contains(answer, "done by b"):
					l.well.Add(1)
				case strings.Contains(answer, `"error_type":"upstream_`):
					l.failed.Add(1)
				case ctx.Err() == nil:
					t.Errorf("a call of the failing server is answered with %s", answer)
					return
				}
			}
		})
		return leave
	}
	leave := use()
	l.throughout()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d calls failed while all was well", n)
	}
	works := func() {
		t.Helper()
		n := l.well.Load()
		eventually(t, "the server is used again", func() bool { return l.well.Load() > n+3 || t.Failed() })
	}
	fails := func() {
		t.Helper()
		n := l.failed.Load()
		eventually(t, "calls of the server fail", func() bool { return l.failed.Load() > n+3 || t.Failed() })
	}
	works()

	b.stop() // killed
	fails()
	l.throughout()
	b.start(t)
	works()

	b.hangs.Store(true)
	l.throughout()
	leave() // those who wait for the server that hangs
	use()
	fails()
	b.hangs.Store(false)
	works()

	b.stop() // restarted
	b.restarts.Add(1)
	b.start(t)
	works()
	l.throughout()
	if t.Failed() {
		return
	}
	t.Logf("%d calls of the server succeeded, %d failed", l.well.Load(), l.failed.Load())
	eventually(t, "all is well", func() bool { return !strings.Contains(r.list(), "thoughtgate/") })
}
