package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// largeList writes a list of one tool with a description of some megabytes, and
// counts how many are being written beyond the first megabyte of each.
type largeList struct {
	mu           sync.Mutex
	active, most int
	release      chan struct{} // closed when they may be written to their end
	served       atomic.Int64
}

func (l *largeList) serve(w http.ResponseWriter, r *http.Request, events bool) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	if events {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: ")
	}
	io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get_x","description":"`)
	megabyte := strings.Repeat("d", 1<<20)
	// More than fits into the buffers between the two, besides what the gate reads.
	for range 15 {
		io.WriteString(w, megabyte)
	}
	w.(http.Flusher).Flush()
	l.enter(1)
	<-l.release
	l.enter(-1)
	io.WriteString(w, `"}]}}`)
	if events {
		io.WriteString(w, "\n\n")
	}
	l.served.Add(1)
}

func (l *largeList) enter(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active += n
	l.most = max(l.most, l.active)
}

func (l *largeList) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active
}

// Of many large lists at once only some are in the gate's memory. All arrive,
// and lists of usual size do not wait for them.
func TestLargeListsAtOnce(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			const clients = 12
			lists := &largeList{release: make(chan struct{})}
			up := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Small") != "" {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get_small"}]}}`)
					return
				}
				lists.serve(w, r, events)
			})
			g := startGate(t, up, func(s settings) {
				s.handler.Gate = gate.New(&gate.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}, time.Now, s.handler.Log, nil)
				s.upstream.ResponseTimeout = time.Minute
			})
			h := &house{t: t, gateway: g}
			const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
			var asked []*request
			for range clients {
				asked = append(asked, h.send(list))
			}
			eventually(t, "the gate reads as many as it may", func() bool { return lists.now() == 2 })
			wantText(t, "a list of usual size", h.ask(list, "X-Small", "1"), "get_small")
			close(lists.release)
			for _, one := range asked {
				if body := one.wait(t); !strings.Contains(body, `"get_x"`) || one.status != http.StatusOK {
					t.Errorf("status %d, %d bytes: %.200s", one.status, len(body), body)
				}
			}
			if lists.most > 2 {
				t.Errorf("%d lists of 15 MiB were read at once", lists.most)
			}
		})
	}
}
