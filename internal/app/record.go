package app

import (
	"context"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// newRecord returns the record of calls in the open store.
func (ap *approvals) newRecord() *callrecord.Log {
	return callrecord.New(callrecord.Config{
		Store:    ap.store.Store,
		Key:      func(ctx context.Context) ([]byte, error) { return ap.store.ring.Key(ctx, keyring.Arguments) },
		Redact:   func(arguments []byte) []byte { return review.Redact(arguments, ap.workflows.redacted()) },
		Now:      time.Now,
		Log:      ap.base.log,
		Dropped:  ap.base.metrics.CallsNotRecorded,
		Settings: recordSettings(ap.base.cfg),
	})
}

func recordSettings(cfg config.Config) callrecord.Settings {
	r := cfg.Record
	s := callrecord.Settings{
		Off: r.MaxSize == 0, Arguments: callrecord.Detail(r.Arguments), Retention: r.Retention, MaxSize: r.MaxSize, Wait: r.WhenFull == "wait",
	}
	if most, bounded := Storage(cfg).SizeLimit(); bounded {
		s.MaxSize = min(s.MaxSize, most/4) // held calls need the rest
	}
	return s
}

// redacted returns the paths that any workflow hides from approvers. A forwarded call has no
// workflow, and secrets have the same names in it.
func (ws *workflows) redacted() []string {
	var paths []string
	for _, w := range *ws.current.Load() {
		paths = append(paths, w.Redact...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// recordEnd records the end of a held call.
func (ap *approvals) recordEnd(t task.Task) {
	if !ap.record.Records() {
		return
	}
	ap.record.Add(ap.service.Viewer().EndOf(t))
}
