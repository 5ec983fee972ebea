package channel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A reporter records the reports that it gets, unless it fails.
type reporter struct {
	mu      sync.Mutex
	err     error
	reports []Report
}

func (r *reporter) Report(_ context.Context, one Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.reports = append(r.reports, one)
	}
	return r.err
}

// TestReportIsSentOnce checks that one of several replicas sends each day's report, also after a
// restart, a failure, the death of a replica, and a time without a gate.
func TestReportIsSentOnce(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }()
	now := time.Date(2026, 11, 18, 15, 0, 0, 0, time.UTC)
	to := new(reporter)
	replica := func(name string) *reporting {
		return &reporting{name: "ops", to: to, cfg: Config{
			Store: store, Name: name, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
			Summarize: func(_ context.Context, since, until time.Time) (Report, error) {
				return Report{Title: since.Format("02T15") + " " + until.Format("02T15")}, nil
			},
		}}
	}
	rounds := func(want ...string) {
		t.Helper()
		var running sync.WaitGroup
		for i := range 4 {
			r := replica(fmt.Sprint(i)) // as after a restart
			running.Go(func() {
				if err := r.round(t.Context()); err != nil && !errors.Is(err, to.err) {
					t.Error(err)
				}
			})
		}
		running.Wait()
		var got []string
		for _, one := range to.reports {
			got = append(got, one.Title)
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %s: reports %q; want %q", now, got, want)
		}
	}
	rounds() // the channel is new
	now = now.Add(15 * time.Hour)
	rounds() // calls may not be in the record yet
	now = now.Add(time.Minute)
	rounds("18T06 19T06")
	rounds("18T06 19T06")

	now, to.err = now.Add(24*time.Hour), errors.New("the service is down")
	rounds("18T06 19T06")
	to.err = nil
	rounds("18T06 19T06") // too early
	now = now.Add(reportPause)
	rounds("18T06 19T06", "19T06 20T06")

	now = now.Add(48 * time.Hour) // no gate ran
	dead := replica("dead")
	s, version, err := dead.load(t.Context())
	s.Claim, s.Ends = "dead", now.Add(reportClaim)
	if err := errors.Join(err, dead.store(t.Context(), s, version+1)); err != nil {
		t.Fatal(err)
	}
	rounds("18T06 19T06", "19T06 20T06")
	now = now.Add(reportClaim)
	rounds("18T06 19T06", "19T06 20T06", "20T06 22T06")
	if ids := []string{to.reports[0].ID, to.reports[2].ID}; !slices.Equal(ids, []string{"summary.ops.2026-11-19", "summary.ops.2026-11-22"}) {
		t.Errorf("ids %q", ids)
	}
}

// TestManyCallsAreSummarized checks that counting calls may take longer than sending a message does.
func TestManyCallsAreSummarized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer func() { _ = store.Close() }()
		to := new(reporter)
		r := &reporting{name: "ops", to: to, cfg: Config{
			Store: store, Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Summarize: func(ctx context.Context, _, _ time.Time) (Report, error) {
				select {
				case <-time.After(3 * time.Minute):
					return Report{}, nil
				case <-ctx.Done():
					return Report{}, ctx.Err()
				}
			},
		}}
		for range 2 {
			if err := r.round(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(24 * time.Hour)
		}
		if len(to.reports) != 1 {
			t.Errorf("%d reports", len(to.reports))
		}
	})
}
