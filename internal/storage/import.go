package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// A Target says what an import may find in the store.
type Target int

// Kinds of stores to import into, by their content.
const (
	Empty  Target = iota // nothing at all
	Shared               // other tasks, and some of the same: those stay as they are
)

// ErrNotEmpty says that an import could mix up two stores.
var ErrNotEmpty = errors.New("the store is not empty")

// group is how many tasks are added to the store at the same time.
const group = 64

// An importer takes the lines of an export.
type importer struct {
	to     *sealedstore.Store
	target Target
	lines  int
	moved  Moved
	anchor task.Link
	at     task.Link // the last entry of the journal that was read

	tasks  []task.Task // to be added
	notes  []task.Note // to be added
	adding bool        // there is an entry that was not imported before
	ended  bool
}

// Import adds what an export has to a store, encrypted with the store's key if
// it has one, and nothing to what is there already. If it is interrupted, do it
// again with a target that may be in use. The journal is chained anew where it
// does not begin at its beginning or there is another one; a note, as of now,
// then says what it was.
func Import(ctx context.Context, s *sealedstore.Store, r io.Reader, target Target, now time.Time) (Moved, error) {
	i := importer{to: s, target: target}
	if err := i.prepare(ctx); err != nil {
		return i.moved, err
	}
	in := jsontext.NewDecoder(r)
	for {
		var line record
		err := json.UnmarshalDecode(in, &line, json.RejectUnknownMembers(true))
		if errors.Is(err, io.EOF) {
			break
		}
		i.lines++
		if err == nil {
			err = i.take(ctx, &line)
		}
		if err != nil {
			return i.moved, fmt.Errorf("line %d: %w", i.lines, err)
		}
	}
	if !i.ended {
		return i.moved, errors.New("the export is incomplete: its end is missing")
	}
	return i.moved, i.finish(ctx, now)
}

// prepare makes sure that nothing is mixed up that should not be.
func (i *importer) prepare(ctx context.Context) error {
	if i.target != Empty {
		return nil
	}
	page, err := i.to.Unwrap().List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 1})
	if err != nil {
		return err
	}
	ends, err := i.to.Ends(ctx)
	if err != nil {
		return err
	}
	if len(page.Tasks) > 0 || ends.Head.Seq > 0 {
		return ErrNotEmpty
	}
	return nil
}

// take does with a line what is to be done with it.
func (i *importer) take(ctx context.Context, r *record) error {
	switch {
	case i.ended:
		return errors.New("there is data after the end")
	case (i.lines == 1) != (r.Header != nil):
		return errors.New("this is not an export: it must begin with a header and have only one")
	case r.Header != nil:
		i.anchor, i.at = r.Header.Anchor, r.Header.Anchor
		if r.Header.Export != exportVersion {
			return fmt.Errorf("export version %d is not supported, only %d", r.Header.Export, exportVersion)
		}
		return nil
	case r.Task != nil:
		return i.task(ctx, r.Task)
	case r.Chunk != nil:
		return i.chunk(ctx, r.Chunk)
	case r.Entry != nil:
		return i.entry(ctx, r.Entry)
	case r.End != nil:
		i.ended = true
		if err := errors.Join(i.addTasks(ctx), i.addNotes(ctx)); err != nil {
			return err
		}
		return i.complete(*r.End)
	default:
		return errors.New("there is nothing in it")
	}
}

func (i *importer) complete(want Moved) error {
	if i.moved != want {
		return fmt.Errorf("the export is incomplete: it has %+v, expected %+v", i.moved, want)
	}
	return nil
}

func (i *importer) task(ctx context.Context, document []byte) error {
	t, err := task.Decode(document)
	if err == nil {
		t, err = i.to.Keys().Open(t)
	}
	if err != nil {
		return err
	}
	i.moved.Tasks++
	if i.tasks = append(i.tasks, t); len(i.tasks) < group {
		return nil
	}
	return i.addTasks(ctx)
}

// addTasks adds what was read, at the same time: a store that flushes takes
// no longer for many than for one.
func (i *importer) addTasks(ctx context.Context) error {
	adding, ctx := errgroup.WithContext(ctx)
	for _, t := range i.tasks {
		adding.Go(func() error { return i.add(ctx, t) })
	}
	i.tasks = i.tasks[:0]
	return adding.Wait()
}

func (i *importer) add(ctx context.Context, t task.Task) error {
	err := i.to.Create(ctx, t, task.Limits{})
	if !errors.Is(err, task.ErrExists) {
		return err
	}
	if i.target == Empty {
		return fmt.Errorf("the export contains it twice: %w", err)
	}
	there, err := i.to.Get(ctx, task.AnyOwner().Ref(t.ID))
	if err != nil {
		return err
	}
	if there.Version != t.Version || there.Owner != t.Owner || there.Digest != t.Digest {
		return fmt.Errorf("task %s already exists and differs", t.ID)
	}
	return nil
}

func (i *importer) chunk(ctx context.Context, c *chunk) error {
	if err := i.addTasks(ctx); err != nil {
		return err
	}
	data, err := i.to.Keys().OpenChunk(c.Task, c.N, c.Data)
	if err != nil {
		return err
	}
	i.moved.Chunks++
	return i.to.WriteChunk(ctx, task.AnyOwner().Ref(c.Task), c.N, data)
}

func (i *importer) entry(ctx context.Context, e *task.Entry) error {
	if err := i.at.Follow(*e); err != nil {
		return err
	}
	i.at = e.Link()
	i.moved.Entries++
	if there, err := i.has(ctx, e); there || err != nil {
		return err
	}
	if i.notes = append(i.notes, e.Note); len(i.notes) < group {
		return nil
	}
	return i.addNotes(ctx)
}

// has reports whether an entry was imported before. From the first that was not,
// none was.
func (i *importer) has(ctx context.Context, e *task.Entry) (bool, error) {
	if i.target == Empty || i.adding {
		return false, nil
	}
	there, err := i.to.Entries(ctx, task.JournalQuery{After: e.Seq - i.anchor.Seq - 1, Limit: 1})
	if err != nil {
		return false, err
	}
	i.adding = len(there) == 0 || task.Link{}.Next(there[0].Note).Hash != task.Link{}.Next(e.Note).Hash
	return !i.adding, nil
}

func (i *importer) addNotes(ctx context.Context) error {
	if len(i.notes) == 0 {
		return nil
	}
	err := i.to.Append(ctx, i.notes...)
	i.notes = i.notes[:0]
	return err
}

// finish notes in the journal where it comes from, if its hashes do not.
func (i *importer) finish(ctx context.Context, now time.Time) error {
	ends, err := i.to.Ends(ctx)
	if err != nil || ends.Head == i.at || i.moved.Entries == 0 || i.target != Empty && !i.adding {
		return err
	}
	return i.to.Append(ctx, task.Note{
		At: now, Step: "journal_imported", Actor: "store import",
		Reason: fmt.Sprintf("the last %d entries follow %s and end with %s in the journal they come from", i.moved.Entries, i.anchor, i.at),
	})
}
