package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A countedStore counts how often it is read by lists, and written to.
type countedStore struct {
	task.GateStore

	lists, writes atomic.Int64
}

func (s *countedStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	s.lists.Add(1)
	return s.GateStore.List(ctx, q)
}

func (s *countedStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	s.writes.Add(1)
	return s.GateStore.Swap(ctx, t, notes...)
}

// floodSize is how many statuses a hostile upstream sends.
const floodSize = 5000

// most is how much work a flood may cause: a little at once, and then some in
// each interval that it lasts, however slow the machine is.
func most(start time.Time) int64 { return 20 + 4*int64(time.Since(start)/conversation.ReportInterval) }

// An upstream that floods its GET stream with statuses of its task costs the
// store no more than one write per interval, and the last status is not lost.
func TestFloodOfStatuses(t *testing.T) {
	store := &countedStore{}
	p := newTaskFixture(t, func(c *approval.Config, w *conversation.Waiting) {
		store.GateStore = c.Store
		c.Store = store
		w.Beat = time.Hour
	})
	flood := make(chan string)
	p.server.mu.Lock()
	p.server.speak = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for text := range flood {
			io.WriteString(w, "data: "+text+"\n\n")
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	p.server.mu.Unlock()
	p.stream(t, http.MethodGet, "")
	own := taskID(t, p.ask(toolCall("3", "hold_required", `,"task":{}`)))
	p.approve(task.ID(own))
	ref := task.AnyOwner().Ref(task.ID(own))
	eventually(t, "the gate knows the upstream's task", func() bool {
		p.ask(legacyAbout("tasks/get", own))
		now, err := p.desk.Get(t.Context(), ref)
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	upstreams := p.server.made()[0]
	status := func(id, status, message string) string {
		text := modernStatus(id, status, message)
		return strings.Replace(strings.Replace(text, "notifications/tasks", "notifications/tasks/status", 1), "ttlMs", "ttl", 1)
	}

	start, lists, writes := time.Now(), store.lists.Load(), store.writes.Load()
	for i := range floodSize {
		flood <- status(upstreams, "working", fmt.Sprintf("step %d", i))
	}
	flood <- status(upstreams, "completed", "the last word")
	flood <- status(upstreams, "working", "no, wait") // a task that has ended does not begin again
	close(flood)
	eventually(t, "the last status is noted", func() bool {
		now, err := store.Get(t.Context(), ref)
		return err == nil && now.Execution.Upstream.Ended()
	})
	if n := store.writes.Load() - writes; n > most(start) {
		t.Errorf("%d statuses in %v caused %d writes", floodSize, time.Since(start), n)
	}
	if n := store.lists.Load() - lists; n > most(start) {
		t.Errorf("%d statuses in %v caused %d lists to be read", floodSize, time.Since(start), n)
	}
	now, err := store.Get(t.Context(), ref)
	if err != nil || now.Execution.Upstream != task.UpstreamReady {
		t.Errorf("the task is %v, %v; want its upstream to be done", now.Execution, err)
	}
	now, err = p.desk.Report(t.Context(), ref, approval.Report{Task: upstreams, Message: "too late"})
	if err != nil || now.Execution.Upstream != task.UpstreamReady {
		t.Errorf("after a late report the task is %v, %v", now.Execution, err)
	}
}

// A modern upstream that says again and again that its task has ended is not
// asked for the outcome each time.
func TestFloodOfEnds(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	message, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, message, headers...)
	next()
	next()
	eventually(t, "the upstream is listened to", func() bool { now, _ := radio.listeners(); return now == 1 })
	start, before := time.Now(), len(p.server.heard("tasks/get"))
	for i := range 2000 {
		radio.say(modernStatus(upstreams, "completed", fmt.Sprint(i)))
	}
	if n := int64(len(p.server.heard("tasks/get")) - before); n > most(start) {
		t.Errorf("the upstream was asked %d times within %v", n, time.Since(start))
	}
	p.server.done(`{"content":[{"type":"text","text":"made"}]}`)
	eventually(t, "the upstream is done", func() bool { return p.server.ended(upstreams) })
	radio.say(modernStatus(upstreams, "completed", ""))
	for told := ""; !strings.Contains(told, `"status":"completed"`); {
		told = next()
	}
}

// A report that is queued when the gate ends is still noted.
func TestQueuedReportIsNoted(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	radio.greets = false
	p.stream(t, http.MethodGet, "")
	own := taskID(t, p.ask(toolCall("3", "hold_required", `,"task":{}`)))
	p.approve(task.ID(own))
	ref := task.AnyOwner().Ref(task.ID(own))
	eventually(t, "the gate knows the upstream's task", func() bool {
		p.ask(legacyAbout("tasks/get", own))
		now, err := p.desk.Get(t.Context(), ref)
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	upstreams := p.server.made()[0]
	for _, status := range []string{"working", "working", "failed"} {
		text := modernStatus(upstreams, status, "said "+status)
		radio.say(strings.Replace(strings.Replace(text, "notifications/tasks", "notifications/tasks/status", 1), "ttlMs", "ttl", 1))
	}
	eventually(t, "all three were heard", func() bool {
		return strings.Contains(scrape(p.gateway), `notifications_total{source="upstream"} 3`)
	})
	p.handler.EndStreams()
	now, err := p.desk.Get(t.Context(), ref)
	if err != nil || now.Execution.Upstream != task.UpstreamFailed {
		t.Errorf("the task is %+v, %v; want its upstream to have failed", now.Execution, err)
	}
}
