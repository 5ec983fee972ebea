package mcphttp_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// heapInUse returns the size of reachable memory.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees the memory of finalized objects
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// GOV-004 10.3 "100 concurrent Executing tasks", NF-002.1: tasks that run upstream take little
// memory in the gate, and no goroutine.
func TestHundredExecutingTasks(t *testing.T) {
	const tasks = 100
	p := newTaskFixture(t, nil)
	theirs := func(i int) {
		p.ask(strings.Replace(toolCall("7", "get_required", `,"task":{}`), `"x":1`, fmt.Sprintf(`"x":%d`, i), 1))
	}
	own := func(i int) {
		id := taskID(t, p.ask(strings.Replace(toolCall("7", "hold_required", `,"task":{}`), `"x":1`, fmt.Sprintf(`"x":%d`, i), 1)))
		p.approve(task.ID(id))
		eventually(t, "the upstream has the task", func() bool {
			x := p.state(id).Execution
			return x != nil && x.UpstreamTask != "" && x.Detached()
		})
	}
	begun := 0
	growth := func(begin func(i int)) int64 {
		begin(begun) // make the allocations that happen only once
		before := heapInUse()
		for i := range tasks {
			begin(begun + 1 + i)
		}
		return heapInUse() - before
	}
	// Memory of earlier tests may be freed during a measurement, so measure several times. The
	// tasks take the same memory each time.
	least, measured := int64(math.MaxInt64), 0
	for ; least > 1<<20 && measured < 3; measured++ {
		alone, both := growth(theirs), growth(own)
		t.Logf("%d tasks take %d KiB at the upstream, and %d KiB more at the gate", tasks, alone>>10, (both-alone)>>10)
		least, begun = min(least, both-max(0, alone)), begun+tasks+1
	}
	if least > 1<<20 {
		t.Errorf("%d tasks take %d bytes; want less than a mebibyte", tasks, least)
	}
	if made := len(p.server.made()); made != measured*2*(tasks+1) {
		t.Fatalf("the upstream has made %d tasks; want %d", made, measured*2*(tasks+1))
	}
	work := []string{"approval.(*runner).run", "approval.(*runner).collect", "upstream.(*Caller)"}
	stacks := make([]byte, 4<<20)
	eventually(t, "no task is running", func() bool {
		now := string(stacks[:runtime.Stack(stacks, true)])
		return !slices.ContainsFunc(work, func(w string) bool { return strings.Contains(now, w) })
	})
}

// GOV-004 10.3 "100 SSE client connections", NF-002.3: the limit includes the client's side of
// the connections.
func TestHundredListenersInLittleMemory(t *testing.T) {
	const listeners = 100
	h := newFixture(t, nil)
	ids := make([]string, listeners+1)
	for i := range ids {
		ids[i] = taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`), h.as(i)...))
	}
	listen := func(i int) {
		if resp := h.watch(t, eventsOf(ids[i]), h.as(i)...); resp.StatusCode != http.StatusOK {
			t.Fatalf("listener %d: %s", i, resp.Status)
		}
	}
	listen(listeners)
	before := heapInUse()
	for i := range listeners {
		listen(i)
	}
	wantText(t, "metrics", scrape(h.gateway), `thoughtgate_sse_streams_active{kind="events"} 101`)
	grown := heapInUse() - before
	t.Logf("%d listeners take %d KiB", listeners, grown>>10)
	if grown > 5<<20 {
		t.Errorf("%d listeners take %d bytes; want less than five mebibytes", listeners, grown)
	}
}

// GOV-004 10.3 "100 SSE upstream subscriptions": each is one upstream connection, which closes
// with its client.
func TestHundredUpstreamSubscriptions(t *testing.T) {
	const subscriptions = 100
	r := &notifier{acknowledges: true}
	s := newUnreliableFixture(t, func(_ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{ReconnectDelay: 20 * time.Millisecond, ReconnectAttempts: 3}
		w.Heartbeat = time.Hour
	})
	s.server.mu.Lock()
	s.server.speak = r.serve
	s.server.mu.Unlock()
	requests := make([]*request, subscriptions)
	for i := range subscriptions {
		own := taskID(t, s.ask(modernCall("hold_optional", tasksExtension), as(modernHeaders("hold_optional"), i)...))
		s.approve(task.ID(own))
		listen, headers := listenTo(own)
		requests[i] = s.send(listen, as(headers, i)...)
	}
	eventually(t, "the gate subscribes to all tasks", func() bool { now, _ := r.listeners(); return now == subscriptions })
	open := s.network.Connections() // including idle connections
	if open < subscriptions {
		t.Errorf("%d connections; want one for each", open)
	}
	for _, r := range requests {
		r.cancel()
	}
	eventually(t, "no subscription is left", func() bool { now, _ := r.listeners(); return now == 0 })
	eventually(t, "their connections are closed", func() bool { return s.network.Connections() <= open-subscriptions })
	eventually(t, "the metrics count it", func() bool {
		return strings.Contains(scrape(s.gateway), "thoughtgate_sse_upstream_connections_active 0")
	})
}

// GOV-004 10.2 "Large result streaming": the result can be fetched again from the store.
func TestHugeNestedResultInLittleMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // garbage does not count
	store, err := sqlitestore.Open(t.Context(), sqlitestore.Options{File: filepath.Join(t.TempDir(), "tasks.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var waiting conversation.Waiting
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		c.Store, c.Execution = store, time.Hour
		waiting = *w
	})
	want := make(chan string, 1)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil {
			t.Errorf("the upstream got %q: %v", body, err)
			return
		}
		w.Header().Set("Content-Type", asJSON)
		id := string(p.Messages[0].ID.Bytes)
		const ready = `"taskId":"theirs","status":"completed","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null`
		switch p.Messages[0].Method {
		case "tasks/result":
			want <- fmt.Sprintf("%x", writeHuge(w, id).Sum(nil))
		case "tasks/get":
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{`+ready+`}}`)
		case "tools/call":
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"task":{`+ready+`}}}`)
		default:
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"tools":[{"name":"hold_x","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}}`)
		}
	})
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, waiting
	})
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	var sent string
	for range 2 {
		heap := watchHeap()
		got := digest(t, h.answering(t.Context(), legacyAbout("tasks/result", id), "Accept", asJSON))
		heap.check(t, "tasks/result")
		if sent == "" {
			sent = <-want
		}
		if got != sent {
			t.Error("the client got another result")
		}
	}
	if len(want) != 0 {
		t.Error("the result was fetched again")
	}
}

// An agent that may not subscribe to a resource can still unsubscribe.
func TestUnsubscribePasses(t *testing.T) {
	h := newFixture(t, nil)
	about := `{"jsonrpc":"2.0","id":1,"method":"resources/METHOD","params":{"uri":"file:///etc/passwd"}}`
	wantText(t, "subscribe", h.ask(strings.Replace(about, "METHOD", "subscribe", 1)), "policy_denied")
	h.wantRan()
	wantText(t, "unsubscribe", h.ask(strings.Replace(about, "METHOD", "unsubscribe", 1)), `"result"`)
}
