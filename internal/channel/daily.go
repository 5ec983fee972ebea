package channel

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Reporter is a [Channel] that can send a summary of calls.
type Reporter interface {
	// Report sends a summary. Its errors are those of [Channel].
	Report(ctx context.Context, r Report) error
}

// A Report is a summary of the calls of a time. A repeated report has the same ID.
type Report struct {
	ID    string
	Title string
	Lines []string // plain text
}

// Text returns the lines of r, at most the given length of them.
func (r Report) Text(limit int) string { return Cut(strings.Join(r.Lines, "\n"), limit) }

const (
	reportHour   = 6 * time.Hour      // of the day, in UTC
	longestTime  = 7 * 24 * time.Hour // that a report is about
	summingTime  = 10 * time.Minute   // for a summary, which may be of millions of calls
	reportClaim  = 12 * time.Minute   // the validity of a claim
	reportPause  = 5 * time.Minute    // after a failure
	reportLife   = 90 * 24 * time.Hour
	reportChecks = time.Minute
	settleTime   = time.Minute // after which all calls are in the record
)

// A reportState is the stored state of the reports of a channel.
type reportState struct {
	Until time.Time `json:"until"`          // the end of the time of the last report
	Claim string    `json:"claim,omitzero"` // the replica that is sending
	Ends  time.Time `json:"ends,omitzero"`  // the end of the claim, or of a pause after a failure
}

// A reporting sends a report each day. Only one replica sends it: it claims the report in the
// store before, and records there that it was sent.
type reporting struct {
	cfg  Config
	name string
	to   Reporter
}

func (r *reporting) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.round(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrUnavailable) {
			r.cfg.Log.WarnContext(ctx, "summary not sent", "channel", r.name, "err", safetext.Text(err.Error(), maxError))
		}
		pause.For(ctx, reportChecks)
	}
}

// round sends the report if it is due. A gate that stops finishes sending first.
func (r *reporting) round(ctx context.Context) error {
	now := r.cfg.Now().UTC()
	due := now.Add(-reportHour - settleTime).Truncate(24 * time.Hour).Add(reportHour)
	s, version, err := r.load(ctx)
	switch {
	case err != nil:
		return err
	case version == 0: // the channel is new: its first report is due tomorrow
		if err = r.store(ctx, reportState{Until: due}, 1); errors.Is(err, task.ErrConcurrentModification) {
			return nil // another replica has stored it
		}
		return err
	case !s.Until.Before(due) || now.Before(s.Ends):
		return nil
	}
	s.Claim, s.Ends = r.cfg.Name, now.Add(reportClaim)
	if err := r.store(ctx, s, version+1); errors.Is(err, task.ErrConcurrentModification) {
		return nil // another replica sends it
	} else if err != nil {
		return err
	}
	since := s.Until
	if oldest := due.Add(-longestTime); since.Before(oldest) {
		since = oldest
	}
	if err = r.send(ctx, since, due); err != nil {
		s.Claim, s.Ends = "", r.cfg.Now().Add(reportPause)
	} else {
		s = reportState{Until: due}
	}
	return errors.Join(err, r.store(context.WithoutCancel(ctx), s, version+2))
}

// send sends the report about a time.
func (r *reporting) send(ctx context.Context, since, until time.Time) error {
	summing, stop := context.WithTimeout(ctx, summingTime)
	defer stop()
	report, err := r.cfg.Summarize(summing, since, until)
	if err != nil {
		return err
	}
	report.ID = "summary." + r.name + "." + until.Format("2006-01-02")
	ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer stop()
	return r.to.Report(ctx, report)
}

// load returns the stored state, with version 0 if there is none.
func (r *reporting) load(ctx context.Context) (s reportState, version int64, err error) {
	stored, err := r.cfg.Store.GetRecord(ctx, reportRecord(r.name))
	if errors.Is(err, task.ErrNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, err
	}
	return s, stored.Version, json.Unmarshal(stored.Value, &s)
}

// store stores the state. A replica that has stored another one first sends the report.
func (r *reporting) store(ctx context.Context, s reportState, version int64) error {
	value, err := json.Marshal(&s)
	if err != nil {
		return err
	}
	return r.cfg.Store.PutRecord(ctx, gatestore.Record{Name: reportRecord(r.name), Version: version, Value: value, Expires: r.cfg.Now().Add(reportLife)})
}

func reportRecord(channel string) string { return "summary/" + channel }
