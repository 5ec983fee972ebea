package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// A line has the members of a log line that tests look at.
type line struct {
	Msg, Line, Reason, Source string
	Count                     int
}

// A record collects log lines while a test reads them.
type record struct {
	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements [io.Writer].
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

// take returns the lines since it was last called.
func (r *record) take(t *testing.T) []line {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []line
	for text := range bytes.Lines(r.out.Bytes()) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	r.out.Reset()
	return all
}

func wantLines(t *testing.T, out *record, want ...line) {
	t.Helper()
	if got := out.take(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("logged %+v; want %+v", got, want)
	}
}

func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out record
		log := logging.New(&out, "json", slog.LevelInfo)
		refuse := func(n int, ctx context.Context, reason, from string) {
			for range n {
				log.WarnContext(logging.Limited(ctx, reason, from), "request")
			}
		}
		left := func(count int) line {
			return line{Msg: "similar lines left out", Line: "request", Reason: "overloaded", Source: "10.0.0.7", Count: count}
		}
		first := []line{{Msg: "request"}}

		refuse(462, t.Context(), "overloaded", "10.0.0.7")
		wantLines(t, &out, slices.Repeat(first, 50)...)
		refuse(1, t.Context(), "parse_error", "10.0.0.7")
		refuse(1, t.Context(), "overloaded", "10.0.0.8")
		wantLines(t, &out, slices.Repeat(first, 2)...)
		refuse(5, aboutCall(t.Context()), "overloaded", "10.0.0.7")
		wantLines(t, &out, slices.Repeat(first, 5)...)
		after := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		after(time.Second)
		refuse(7, t.Context(), "overloaded", "10.0.0.7")
		wantLines(t, &out, slices.Repeat(first, 5)...)
		after(9 * time.Second)
		wantLines(t, &out, left(414))
		refuse(48, t.Context(), "overloaded", "10.0.0.7")
		wantLines(t, &out, slices.Repeat(first, 45)...)
		after(10 * time.Second)
		wantLines(t, &out, left(3))
		after(20 * time.Second)
		wantLines(t, &out)
		refuse(52, t.Context(), "overloaded", "10.0.0.7")
		wantLines(t, &out, slices.Repeat(first, 50)...)
		logging.Close(t.Context(), log)
		wantLines(t, &out, left(2))
		refuse(2, t.Context(), "overloaded", "10.0.0.7")
		after(10 * time.Second)
		wantLines(t, &out, slices.Repeat(first, 2)...)
	})
}

// A client with many addresses causes few lines, and the summaries count every line.
func TestManySourcesAreSummarised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out record
		log := logging.New(&out, "json", slog.LevelInfo).With("a", "b")
		const maxLines = 256 + 50 + 1 // one of each kind, a burst of all others, and one summary
		for round := range 3 {
			for i := range 1000 {
				log.WarnContext(logging.Limited(t.Context(), "overloaded", fmt.Sprint(i, round)), "request")
			}
			all := 0
			written := out.take(t)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			written = append(written, out.take(t)...)
			for _, l := range written {
				if l.Msg == "request" {
					all++
				}
				all += l.Count
			}
			if all != 1000 || len(written) > maxLines {
				t.Errorf("%d lines count %d refusals; want at most %d and 1000", len(written), all, maxLines)
			}
		}
		logging.Close(t.Context(), log)
	})
}
