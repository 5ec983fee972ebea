package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Migrated describes how opening the store changed its tables.
func Migrated(s gatestore.Store) string {
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

// Rekey encrypts everything in a store with its first key, and returns how many tasks it
// changed. It then removes the old content from a file. Close the store afterwards.
func Rekey(ctx context.Context, s *sealedstore.Store) (int, error) {
	n, err := s.Rekey(ctx)
	if _, inFile := Backend(s).(*sqlitestore.Store); inFile {
		_, failed := Vacuum(ctx, s)
		err = errors.Join(err, failed)
	}
	return n, err
}

// Vacuum releases unused space, and reports whether this kind of store supports it.
func Vacuum(ctx context.Context, s gatestore.Store) (bool, error) {
	store, ok := Backend(s).(interface{ Vacuum(context.Context) error })
	if !ok {
		return false, nil
	}
	return true, store.Vacuum(ctx)
}

// A Health summarises the content of a store.
type Health struct {
	Tasks, Pending int
	Chunks         int
	Entries        int            // of the journal
	Keys           map[string]int // the number of tasks by key; "" counts tasks that are not encrypted
	Problems       int
}

// Check reads a whole store. It calls report for each problem with the content, and warn
// for each setting of the server that may lose content. The error means that the store
// could not be read.
func Check(ctx context.Context, s *sealedstore.Store, report, warn func(string)) (Health, error) {
	c := checker{store: s, health: Health{Keys: make(map[string]int)}}
	c.report = func(text string) { c.health.Problems++; report(text) }
	if err := c.backend(ctx, warn); err != nil {
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

// backend runs the check of the store itself, if it has one.
func (c *checker) backend(ctx context.Context, warn func(string)) error {
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
		warn(err.Error())
	default:
		return err
	}
	return nil
}

// tasks checks every stored task. It goes on after a task that cannot be read.
func (c *checker) tasks(ctx context.Context) error {
	store, ok := Backend(c.store).(interface {
		Documents(context.Context, func(task.ID, []byte) error) error
	})
	if !ok {
		return nil
	}
	err := store.Documents(ctx, func(id task.ID, document []byte) error {
		c.health.Tasks++
		if stored, err := storekit.DecodeAs(id, document); err == nil {
			return c.task(ctx, stored)
		}
		c.report(fmt.Sprintf("task %s cannot be read", id)) // the error may quote secret content
		return nil
	})
	if errors.Is(err, sqlitestore.ErrDamaged) {
		c.report(err.Error())
		return nil
	}
	return err
}

// records checks every stored record. A gate does not start if it cannot read one, such as
// the root key. A record that is not encrypted although there are keys is only reported if it
// belongs to the record of calls: a gate deletes others when it starts.
func (c *checker) records(ctx context.Context) error {
	unreadable := make(map[string]int) // counts by error
	for r, err := range gatestore.EachRecord(ctx, c.store.Unwrap(), gatestore.RecordQuery{Limit: 100}) {
		if errors.Is(err, sqlitestore.ErrDamaged) {
			c.report(err.Error())
			break
		}
		if err != nil {
			return err
		}
		if _, err := c.store.Keys().OpenRecord(r); err != nil && (!errors.Is(err, sealedstore.ErrNotSealed) || strings.HasPrefix(r.Name, callrecord.Prefix)) {
			unreadable[err.Error()]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(unreadable)) {
		c.report(fmt.Sprintf("the gate's root key, sessions of operators, recorded calls or other records cannot be read (%d of them): %s", unreadable[reason], reason))
	}
	return nil
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
	if digest, err := t.Call.Digest(); !t.Abridged() && (err != nil || digest != t.CallDigest()) {
		c.report(fmt.Sprintf("task %s: the call does not match its digest", t.ID))
	}
	if t.Result == nil || t.Result.Chunks == 0 {
		return nil
	}
	chunks := keyRecorder{Blobs: c.store, store: c.store, keys: make(map[string]bool)}
	err = storekit.ReadResult(ctx, &chunks, t, io.Discard)
	c.health.Chunks += chunks.count
	for key := range chunks.keys {
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

// A keyRecorder reads chunks, and records their number and their keys.
type keyRecorder struct {
	task.Blobs

	store *sealedstore.Store
	keys  map[string]bool
	count int
}

// ReadChunk implements [task.Blobs].
func (t *keyRecorder) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	data, err := t.store.Unwrap().ReadChunk(ctx, ref, n)
	if err != nil {
		return nil, err
	}
	t.count++
	t.keys[sealedstore.KeyOfChunk(data)] = true
	return t.store.Keys().OpenChunk(ref.ID, n, data)
}

// journal verifies the hash chain of the journal.
func (c *checker) journal(ctx context.Context) error {
	ends, err := c.store.Ends(ctx)
	if err != nil {
		return err
	}
	at := ends.Anchor
	for e, err := range auditlog.Each(ctx, c.store, auditlog.Query{}) {
		if err != nil {
			return err
		}
		c.health.Entries++
		if err := at.Verify(e); err != nil {
			c.report("audit log: " + strings.TrimPrefix(err.Error(), "journal: "))
		}
		at = e.Link()
	}
	if at.Seq < ends.Head.Seq { // a higher number is fine: the journal may have grown
		c.report(fmt.Sprintf("audit log: ends with entry %d, expected %d", at.Seq, ends.Head.Seq))
	}
	return nil
}
