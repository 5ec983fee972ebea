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

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A haltedAnswer is an answer of some size that can be read at once up to a part of
// it, and the rest once it is released.
type haltedAnswer struct {
	size, part, read int
	waiting          *atomic.Int64 // how many are read that far
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

// Of many answers at once that the gate has to see as a whole only two large
// ones, and some of a medium size, are in memory. All are read in the end.
func TestFewLargeAnswersAtOnce(t *testing.T) {
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
			room := upstream.NewRoom()
			var waiting atomic.Int64
			release, done := make(chan struct{}), make(chan error, answers)
			for range answers {
				go func() {
					text, seat, err := room.ReadWhole(t.Context(), &haltedAnswer{size: tt.size, part: tt.size - 1, waiting: &waiting, release: release}, time.Hour)
					if err == nil && len(text) != tt.size {
						err = fmt.Errorf("%d bytes", len(text))
					}
					seat.Leave()
					done <- err
				}()
			}
			eventually(t, "as many are read as may be", func() bool { return waiting.Load() == int64(tt.want) })
			close(release)
			for range answers {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// An answer for which there is no room in time is given up, and so is one of a
// client that has left, or that is too large. None of them takes up room then.
func TestNoRoom(t *testing.T) {
	room := upstream.NewRoom()
	large := func() io.Reader { return io.LimitReader(zeros{}, 15<<20) }
	var seats [2]*upstream.Seat
	for i := range seats {
		var err error
		if _, seats[i], err = room.ReadWhole(t.Context(), large(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := room.ReadWhole(t.Context(), large(), time.Millisecond); !errors.Is(err, upstream.ErrNoRoom) {
		t.Errorf("no room: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := room.ReadWhole(gone, large(), time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has left: %v", err)
	}
	seats[0].Leave()
	seats[1].Leave()
	for range 3 {
		if _, _, err := room.ReadWhole(t.Context(), io.LimitReader(zeros{}, 17<<20), time.Hour); err == nil {
			t.Error("an answer that is too large is read")
		}
	}
	if _, _, err := room.ReadWhole(t.Context(), large(), time.Hour); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Many large lists at once all arrive, as JSON and as events.
func TestLargeListsAtOnce(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			const clients, size = 6, 5 << 18 // above what counts as medium
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
				s.handler.Gate = gate.New(&gate.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}, time.Now, s.handler.Log, nil)
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
