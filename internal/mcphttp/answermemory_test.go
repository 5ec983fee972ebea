package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A haltedAnswer is an answer whose first part can be read at once, and the rest after release.
type haltedAnswer struct {
	size, part, read int
	waiting          *atomic.Int64 // number of answers that have reached that point
	release          <-chan struct{}
}

func (a *haltedAnswer) Read(p []byte) (int, error) {
	if a.read == a.part {
		a.waiting.Add(1)
		<-a.release
		a.waiting.Add(-1)
		a.part = a.size
	}
	if a.read == a.size {
		return 0, io.EOF
	}
	n := min(len(p), a.part-a.read)
	clear(p[:n])
	a.read += n
	return n, nil
}

// At most two large answers, and a few medium ones, that must be held as a whole are in
// memory at once. All answers arrive.
func TestLargeAnswersShareMemory(t *testing.T) {
	for _, tt := range []struct {
		name       string
		size, want int
	}{
		{"large", 15 << 20, 2},
		{"medium", 1 << 19, 32},
		{"small", 1 << 15, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const answers = 50
			limit := upstream.NewAnswerLimit()
			var waiting atomic.Int64
			release, done := make(chan struct{}), make(chan error, answers)
			for range answers {
				go func() {
					text, permit, err := limit.ReadWhole(t.Context(), &haltedAnswer{size: tt.size, part: tt.size - 1, waiting: &waiting, release: release}, time.Hour)
					if err == nil && len(text) != tt.size {
						err = fmt.Errorf("%d bytes", len(text))
					}
					permit.Release()
					done <- err
				}()
			}
			eventually(t, "the limit is reached", func() bool { return waiting.Load() == int64(tt.want) })
			close(release)
			for range answers {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// An answer is also given up if its client has left or if it is too large. None of these uses
// memory afterwards.
func TestAnswerWithoutMemoryIsGivenUp(t *testing.T) {
	limit := upstream.NewAnswerLimit()
	large := func() io.Reader { return io.LimitReader(zeros{}, 15<<20) }
	var permits [2]*upstream.Permit
	for i := range permits {
		var err error
		if _, permits[i], err = limit.ReadWhole(t.Context(), large(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := limit.ReadWhole(t.Context(), large(), time.Millisecond); !errors.Is(err, upstream.ErrTooManyAnswers) {
		t.Errorf("all memory in use: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := limit.ReadWhole(gone, large(), time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has left: %v", err)
	}
	permits[0].Release()
	permits[1].Release()
	for range 3 {
		if _, _, err := limit.ReadWhole(t.Context(), io.LimitReader(zeros{}, 17<<20), time.Hour); err == nil {
			t.Error("an answer that is too large is read")
		}
	}
	if _, _, err := limit.ReadWhole(t.Context(), large(), time.Hour); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Large lists arrive as JSON and as events.
func TestConcurrentLargeListsArrive(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			const clients, size = 6, 5 << 18 // larger than medium
			list := `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get_x","description":"` + strings.Repeat("d", size) + `"}]}}`
			up := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if !events {
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, list)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "data: "+list+"\n\n")
			})
			h := &fixture{t: t, gateway: startGate(t, up, func(s settings) {
				s.handler.Catalog = catalog.New(&catalog.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}, time.Now, s.handler.Log, nil)
				s.handler.Limits.WriteTimeout, s.upstream.ResponseTimeout = time.Minute, time.Minute
			})}
			var asked []*request
			for range clients {
				asked = append(asked, h.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
			}
			for _, one := range asked {
				<-one.done
				if one.status != http.StatusOK || len(one.body) < size || !strings.Contains(one.body, `"get_x"`) {
					t.Errorf("status %d, %d bytes: %.200s", one.status, len(one.body), one.body)
				}
			}
		})
	}
}
