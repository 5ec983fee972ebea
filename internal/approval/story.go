package approval

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Story returns what the journal tells of one held call, in the order in which
// it happened. It is there longer than the task: see [Config.Retention]. The
// error is [task.ErrNotFound] if there is nothing to tell.
func (d *Desk) Story(ctx context.Context, id task.ID) ([]task.Entry, error) {
	if id == "" {
		return nil, task.AnyOwner().Ref(id).NotFound(task.ActionRead)
	}
	story, err := d.cfg.Store.Entries(ctx, task.JournalQuery{Task: id, Limit: maxStory})
	if err == nil && len(story) == 0 {
		err = task.AnyOwner().Ref(id).NotFound(task.ActionRead)
	}
	return story, err
}

// maxStory is far above the number of steps that a call has.
const maxStory = 1000

// Audit returns a part of the journal.
func (d *Desk) Audit(ctx context.Context, f audit.Filter) (audit.Page, error) {
	return audit.Find(ctx, d.cfg.Store, f)
}

// AuditEnds returns where the journal begins and ends.
func (d *Desk) AuditEnds(ctx context.Context) (task.Ends, error) { return d.cfg.Store.Ends(ctx) }

// trimBatch is how many entries of the journal are removed at a time.
const trimBatch = 500

// trim removes what has been in the journal for long enough.
func (d *Desk) trim(ctx context.Context) error {
	if d.settings().Retention <= 0 {
		return nil
	}
	for {
		n, err := d.cfg.Store.Trim(ctx, d.cfg.Now().Add(-d.settings().Retention), trimBatch)
		if err != nil || n < trimBatch {
			return err
		}
	}
}

// headEvery is how often the head of the journal is logged.
const headEvery = time.Hour

// A signpost is where the journal ended when its head was last logged.
type signpost struct {
	at  time.Time
	seq int64
}

// logHead writes where the journal ends into the log, now and then if it goes
// on. Logs are kept elsewhere: whoever can write to the store can make a new
// chain, but not one with a head that somebody else has seen.
func (d *Desk) logHead(ctx context.Context, last signpost) signpost {
	now := d.cfg.Now()
	if now.Before(last.at.Add(headEvery)) {
		return last
	}
	ends, err := d.cfg.Store.Ends(ctx)
	if err != nil || ends.Head.Seq == last.seq {
		d.report(ctx, err)
		return last
	}
	d.cfg.Log.InfoContext(ctx, "audit head", "head", ends.Head.String(), "anchor", ends.Anchor.String())
	return signpost{now, ends.Head.Seq}
}
