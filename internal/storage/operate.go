package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// Migrated says how opening the store has changed its tables.
func Migrated(s task.GateStore) string {
	store, ok := Backend(s).(interface{ Migration() (from, to int) })
	if !ok {
		return "no tables to update"
	}
	switch from, to := store.Migration(); from {
	case to:
		return fmt.Sprintf("version %d is up to date", to)
	case 0:
		return fmt.Sprintf("created the tables, version %d", to)
	default:
		return fmt.Sprintf("updated the tables from version %d to version %d", from, to)
	}
}

// Rekey encrypts everything in a store with its first key, and reports how many
// tasks needed it. It then leaves nothing in a file of what was there before,
// and is not used any more.
func Rekey(ctx context.Context, s *sealedstore.Store) (int, error) {
	n, err := s.Rekey(ctx)
	if _, inFile := Backend(s).(*sqlitestore.Store); inFile {
		_, vacuumed := Vacuum(ctx, s)
		err = errors.Join(err, vacuumed)
	}
	return n, err
}

// Vacuum has the store give back room that it does not use, and reports whether
// it is of a kind that can.
func Vacuum(ctx context.Context, s task.GateStore) (bool, error) {
	store, ok := Backend(s).(interface{ Vacuum(context.Context) error })
	if !ok {
		return false, nil
	}
	return true, store.Vacuum(ctx)
}

// A Health is what was found in a store.
type Health struct {
	Tasks, Pending int
	Chunks         int
	Entries        int            // of the journal
	Keys           map[string]int // how many tasks need each; "" is for those that are not encrypted
	Problems       int
}

// Check reads all there is in a store and reports what is wrong with it, one
// thing at a time. Doubts are about what a server is told to do with what it
// has. The error is that of reading.
func Check(ctx context.Context, s *sealedstore.Store, report, doubt func(string)) (Health, error) {
	c := checker{store: s, health: Health{Keys: make(map[string]int)}}
	c.report = func(text string) { c.health.Problems++; report(text) }
	if err := c.whole(ctx, doubt); err != nil {
		return c.health, err
	}
	for _, part := range []func(context.Context) error{c.tasks, c.records, c.journal} {
		if err := part(ctx); err != nil {
			return c.health, err
		}
	}
	return c.health, nil
}

type checker struct {
	store  *sealedstore.Store
	health Health
	report func(string)
}

// whole has the store look at itself, if it can.
func (c *checker) whole(ctx context.Context, doubt func(string)) error {
	store, ok := Backend(c.store).(interface{ Check(context.Context) error })
	if !ok {
		return nil
	}
	err := store.Check(ctx)
	switch {
	case err == nil:
	case errors.Is(err, sqlitestore.ErrDamaged):
		c.report(err.Error())
	case errors.Is(err, redisstore.ErrEvicts), errors.Is(err, redisstore.ErrNotDurable):
		doubt(err.Error())
	default:
		return err
	}
	return nil
}

// tasks looks at every task as it is stored, so that one that cannot be read
// hides no other.
func (c *checker) tasks(ctx context.Context) error {
	store, ok := Backend(c.store).(interface {
		Documents(context.Context, func(task.ID, []byte) error) error
	})
	if !ok {
		return nil
	}
	err := store.Documents(ctx, func(id task.ID, document []byte) error {
		c.health.Tasks++
		if stored, err := task.Decode(document); err == nil {
			return c.task(ctx, stored)
		}
		c.report(fmt.Sprintf("task %s cannot be read", id)) // the error may quote what it cannot read
		return nil
	})
	if errors.Is(err, sqlitestore.ErrDamaged) {
		c.report(err.Error())
		return nil
	}
	return err
}

// records looks at every record as it is stored: without one of them, such as the
// root key, a gate does not start. One that is not encrypted although there are keys is
// no problem, because a gate that starts deletes it.
func (c *checker) records(ctx context.Context) error {
	unreadable := make(map[string]int) // how many, by the reason
	for r, err := range eachRecord(ctx, c.store.Unwrap()) {
		if errors.Is(err, sqlitestore.ErrDamaged) {
			c.report(err.Error())
			break
		}
		if err != nil {
			return err
		}
		if _, err := c.store.Keys().OpenRecord(r); err != nil && !errors.Is(err, sealedstore.ErrNotSealed) {
			unreadable[err.Error()]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(unreadable)) {
		c.report(fmt.Sprintf("the gate's root key, sessions of operators or other records cannot be read (%d of them): %s", unreadable[why], why))
	}
	return nil
}

// eachRecord goes through all records as they are stored.
func eachRecord(ctx context.Context, s task.Records) iter.Seq2[task.Record, error] {
	return func(yield func(task.Record, error) bool) {
		q := task.RecordQuery{Limit: 100}
		for {
			page, err := s.ListRecords(ctx, q)
			if err != nil {
				yield(task.Record{}, err)
				return
			}
			for _, r := range page {
				q.After = r.Name
				if !yield(r, nil) {
					return
				}
			}
			if len(page) < q.Limit {
				return
			}
		}
	}
}

func (c *checker) task(ctx context.Context, stored task.Task) error {
	c.health.Keys[sealedstore.KeyOf(stored)]++
	if !stored.State.Terminal() {
		c.health.Pending++
	}
	t, err := c.store.Keys().Open(stored)
	if err != nil {
		c.report(err.Error())
		return nil
	}
	if digest, err := t.Call.Digest(); err != nil || digest != t.CallDigest() {
		c.report(fmt.Sprintf("task %s: the call does not match its digest", t.ID))
	}
	if t.Result == nil || t.Result.Chunks == 0 {
		return nil
	}
	var size counter
	blob := tracer{c.store, make(map[string]bool)}
	err = task.ReadResult(ctx, blob, t, &size)
	c.health.Chunks += size.writes
	for key := range blob.used {
		if key != sealedstore.KeyOf(stored) {
			c.health.Keys[key]++
		}
	}
	if errors.Is(err, task.ErrChunkMissing) || errors.Is(err, task.ErrUnreadable) {
		c.report(err.Error())
		return nil
	}
	return err
}

// A tracer reads chunks, and notes the keys that they are encrypted with.
type tracer struct {
	*sealedstore.Store

	used map[string]bool
}

// ReadChunk implements [task.Blobs].
func (t tracer) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	data, err := t.Unwrap().ReadChunk(ctx, ref, n)
	if err != nil {
		return nil, err
	}
	t.used[sealedstore.KeyOfChunk(data)] = true
	return t.Keys().OpenChunk(ref.ID, n, data)
}

// A counter counts what is written to it.
type counter struct{ writes int }

// Write implements [io.Writer].
func (c *counter) Write(p []byte) (int, error) {
	c.writes++
	return len(p), nil
}

// journal follows the chain from one end to the other.
func (c *checker) journal(ctx context.Context) error {
	ends, err := c.store.Ends(ctx)
	if err != nil {
		return err
	}
	at := ends.Anchor
	for e, err := range task.EachEntry(ctx, c.store, task.JournalQuery{}) {
		if err != nil {
			return err
		}
		c.health.Entries++
		if err := at.Follow(e); err != nil {
			c.report("audit log: " + strings.TrimPrefix(err.Error(), "journal: "))
		}
		at = e.Link()
	}
	if at.Seq < ends.Head.Seq { // there may be more by now
		c.report(fmt.Sprintf("audit log: ends with entry %d, expected %d", at.Seq, ends.Head.Seq))
	}
	return nil
}
