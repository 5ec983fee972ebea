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
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A countedStore counts reads of lists, and writes.
type countedStore struct {
	gatestore.Store

	lists, writes atomic.Int64
}

func (s *countedStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, q)
}

func (s *countedStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	s.writes.Add(1)
	return s.Store.Swap(ctx, t, notes...)
}

// floodSize is the number of statuses that a hostile upstream sends.
const floodSize = 5000

// most is the work that a flood may cause: a burst, and then some work per interval.
func most(start time.Time) int64 { return 20 + 4*int64(time.Since(start)/conversation.ReportInterval) }

// A flood of statuses on the GET stream costs at most one write per interval, and the last
// status is stored.
func TestStatusFloodIsLimited(t *testing.T) {
	store := &countedStore{}
	p := newTaskFixture(t, func(c *approval.Config, w *conversation.Waiting) {
		store.Store = c.Store
		c.Store = store
		w.Heartbeat = time.Hour
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
		now, err := p.approvals.Get(t.Context(), ref)
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
	if err != nil || now.Execution.Upstream != gatetask.UpstreamReady {
		t.Errorf("the task is %v, %v; want its upstream to be done", now.Execution, err)
	}
	now, err = p.approvals.Report(t.Context(), ref, approval.Report{Task: upstreams, Message: "too late"})
	if err != nil || now.Execution.Upstream != gatetask.UpstreamReady {
		t.Errorf("after a late report the task is %v, %v", now.Execution, err)
	}
}

// The outcome is not fetched for each repeated report that the task has ended.
func TestFinalReportFloodIsLimited(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	message, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, message, headers...)
	next()
	next()
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	start, before := time.Now(), len(p.server.heard("tasks/get"))
	for i := range 2000 {
		notifier.say(modernStatus(upstreams, "completed", fmt.Sprint(i)))
	}
	if n := int64(len(p.server.heard("tasks/get")) - before); n > most(start) {
		t.Errorf("the upstream was asked %d times within %v", n, time.Since(start))
	}
	p.server.done(`{"content":[{"type":"text","text":"made"}]}`)
	eventually(t, "the upstream is done", func() bool { return p.server.ended(upstreams) })
	notifier.say(modernStatus(upstreams, "completed", ""))
	for told := ""; !strings.Contains(told, `"status":"completed"`); {
		told = next()
	}
}

// A report that is queued at shutdown is stored.
func TestQueuedReportIsStored(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	notifier.acknowledges = false
	p.stream(t, http.MethodGet, "")
	own := taskID(t, p.ask(toolCall("3", "hold_required", `,"task":{}`)))
	p.approve(task.ID(own))
	ref := task.AnyOwner().Ref(task.ID(own))
	eventually(t, "the gate knows the upstream's task", func() bool {
		p.ask(legacyAbout("tasks/get", own))
		now, err := p.approvals.Get(t.Context(), ref)
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	upstreams := p.server.made()[0]
	for _, status := range []string{"working", "working", "failed"} {
		text := modernStatus(upstreams, status, "said "+status)
		notifier.say(strings.Replace(strings.Replace(text, "notifications/tasks", "notifications/tasks/status", 1), "ttlMs", "ttl", 1))
	}
	eventually(t, "the gate got all three reports", func() bool {
		return strings.Contains(scrape(p.gateway), `notifications_total{source="upstream"} 3`)
	})
	p.handler.EndStreams()
	now, err := p.approvals.Get(t.Context(), ref)
	if err != nil || now.Execution.Upstream != gatetask.UpstreamFailed {
		t.Errorf("the task is %+v, %v; want its upstream to have failed", now.Execution, err)
	}
}

// The client gets a message about the upstream's task with its own task ID, or not at all:
// alone, in a batch, and on any stream.
func TestUpstreamTaskIDsAreHidden(t *testing.T) {
	for _, batched := range []bool{false, true} {
		t.Run(fmt.Sprintf("batched %v", batched), func(t *testing.T) {
			p, notifier := newNotifierFixture(t, 5*time.Millisecond)
			notifier.acknowledges = false
			next := p.stream(t, http.MethodGet, "")
			own := taskID(t, p.ask(toolCall("3", "hold_required", `,"task":{}`)))
			p.approve(task.ID(own))
			eventually(t, "the gate knows the upstream's task", func() bool {
				p.ask(legacyAbout("tasks/get", own))
				now, err := p.approvals.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
				return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
			})
			upstreams := p.server.made()[0]
			const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%q%s}}`
			status := modernStatus(upstreams, "working", "half of it")
			status = strings.Replace(strings.Replace(status, "notifications/tasks", "notifications/tasks/status", 1), "ttlMs", "ttl", 1)
			messages := []string{
				status, fmt.Sprintf(log, "related", `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+upstreams+`"}}`),
				fmt.Sprintf(log, "last", ""),
			}
			if batched {
				messages = []string{"[" + strings.Join(messages, ",") + "]"}
			}
			check := func(where string, next func() string) {
				for all := ""; !strings.Contains(all, `"last"`); {
					told := next()
					all += told
					if strings.Contains(told, upstreams) {
						t.Errorf("%s: the client got the id of the upstream task: %s", where, told)
					}
					if strings.Contains(told, `"related"`) {
						wantText(t, where, told, `"taskId":"`+own+`"`)
					}
				}
			}
			for _, text := range messages {
				notifier.say(text)
			}
			check("GET", next)
			p.server.intercepted(func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
				if name, _ := m.Params.Name.Text(); name != "get_forbidden" {
					return false
				}
				w.Header().Set("Content-Type", "text/event-stream")
				for _, text := range append(messages, `{"jsonrpc":"2.0","id":9,"result":{}}`) {
					io.WriteString(w, "data: "+text+"\n\n")
				}
				return true
			})
			check("POST", p.stream(t, http.MethodPost, toolCall("9", "get_forbidden", "")))
		})
	}
}
