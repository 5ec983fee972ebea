package gosdktask_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// Add refuses options that would fail later.
func TestAddChecksOptions(t *testing.T) {
	for want, change := range map[string]func(*gosdktask.Options){
		"TTL is negative":         func(o *gosdktask.Options) { o.TTL = -1 },
		"MaxTTL is negative":      func(o *gosdktask.Options) { o.MaxTTL = -1 },
		"Lease is negative":       func(o *gosdktask.Options) { o.Lease = -1 },
		"Grace is negative":       func(o *gosdktask.Options) { o.Grace = -1 },
		"Polling.Min is negative": func(o *gosdktask.Options) { o.Polling.Min = -1 },
		"Store is a nil":          func(o *gosdktask.Options) { o.Store = (*memstore.Store)(nil) },
		"unknown mode":            func(o *gosdktask.Options) { o.Tools = map[string]gosdktask.Tool{"wait": {Mode: "always"}} },
		"more than MaxTTL":        func(o *gosdktask.Options) { o.Tools = map[string]gosdktask.Tool{"wait": {TTL: 25 * time.Hour}} },
		"has no tool absent":      func(o *gosdktask.Options) { o.Tools = map[string]gosdktask.Tool{"absent": {}} },
	} {
		o := gosdktask.Options{Tools: modes()}
		change(&o)
		tasks, err := gosdktask.Add(newServer(), o)
		if tasks != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := gosdktask.Add(nil, gosdktask.Options{}); err == nil {
		t.Error("no server")
	}
}

// Tasks are added once, and run once.
func TestAddAndRunOnce(t *testing.T) {
	server := newServer()
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: modes()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gosdktask.Add(server, gosdktask.Options{Tools: modes()}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("the second Add: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := tasks.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := tasks.Run(ctx); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("the second Run: %v", err)
	}
}

// Run ends when its store does.
func TestRunEndsWithStore(t *testing.T) {
	store := memstore.New(memstore.Options{})
	tasks, err := gosdktask.Add(newServer(), gosdktask.Options{Tools: modes(), Store: store})
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	if err := tasks.Run(t.Context()); err == nil || !strings.Contains(err.Error(), string(task.ErrClosed)) {
		t.Errorf("Run: %v", err)
	}
}

// A server whose handler or transport is not wrapped says so to its first client of 2025-11-25.
func TestMissingWrapperIsReported(t *testing.T) {
	const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`
	var log strings.Builder
	server := newServer()
	if _, err := gosdktask.Add(server, gosdktask.Options{Tools: modes(), Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, stateless))
	defer listening.Close()
	s := &site{t: t, url: listening.URL}
	for _, a := range []answer{s.post("initialize", hello), s.post("tools/call", `{"name":"optional","task":{}}`)} {
		if a.Error == nil || !strings.Contains(a.Error.Message, "Tasks.Handler") {
			t.Errorf("%s %v", a.Result, a.Error)
		}
	}
	if !strings.Contains(log.String(), "Tasks.Handler") {
		t.Errorf("log: %s", log.String())
	}
	client, other := mcp.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), other, nil); err != nil {
		t.Fatal(err)
	}
	_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), client, &mcp.ClientSessionOptions{})
	if err != nil && !strings.Contains(err.Error(), "Tasks.Transport") {
		t.Errorf("connect: %v", err)
	}
}

// An answer that does not match its question is refused, and the question stays open.
func TestAnswersAreChecked(t *testing.T) {
	s := newSite(t, stateless)
	id := s.modern("tools/call", `{"name":"ask"}`).member("taskId")
	key := firstKey(t, s.until(s.current, id, "input_required"))
	for _, wrong := range []string{`{"action":"accept","content":{"name":5}}`, `{"action":"yes"}`, `[]`} {
		a := s.modern("tasks/update", `{"taskId":"`+id+`","inputResponses":{"`+key+`":`+wrong+`}}`)
		if a.Error == nil || a.Error.Code != -32602 {
			t.Errorf("%s: %s %v", wrong, a.Result, a.Error)
		}
	}
	s.until(s.current, id, "input_required")
	s.modern("tasks/update", update(id, key))
	s.until(s.current, id, "completed")
}
