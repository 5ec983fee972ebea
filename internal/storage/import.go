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

	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
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
	anchor task.Link // what the first entry follows that is added to the journal
	at     task.Link // the last entry of the journal that was read
	ended  bool

	tasks []task.Task       // to be added
	notes []task.Note       // to be added
	added int               // entries that the journal did not have before
	there map[task.Hash]int // how often the journal had each note before
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
	return i.moved, errors.Join(i.finish(ctx, now), precedent.Store{Records: i.to}.IndexAgain(ctx))
}

// prepare makes sure that nothing is mixed up that should not be.
func (i *importer) prepare(ctx context.Context) error {
	if i.target != Empty {
		return i.readJournal(ctx)
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

// readJournal notes what the journal has already. A hash of each entry is in memory
// until the import is done.
func (i *importer) readJournal(ctx context.Context) error {
	i.there = make(map[task.Hash]int)
	for e, err := range task.EachEntry(ctx, i.to, task.JournalQuery{}) {
		if err != nil {
			return err
		}
		i.there[contentHash(e)]++
	}
	return nil
}

// contentHash returns a hash of what an entry says, wherever it stands.
func contentHash(e task.Entry) task.Hash { return task.Link{}.Next(e.Note).Hash }

// take does with a line what is to be done with it.
func (i *importer) take(ctx context.Context, r *record) error {
	switch {
	case i.ended:
		return errors.New("there is data after the end")
	case (i.lines == 1) != (r.Header != nil):
		return errors.New("this is not an export: it must begin with a header and have only one")
	case r.Header != nil:
		i.at = r.Header.Anchor
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
	before := i.at
	if err := before.Follow(*e); err != nil {
		return err
	}
	i.at = e.Link()
	i.moved.Entries++
	if content := contentHash(*e); i.there[content] > 0 {
		i.there[content]--
		return nil
	}
	if i.added++; i.added == 1 {
		i.anchor = before
	}
	if i.notes = append(i.notes, e.Note); len(i.notes) < group {
		return nil
	}
	return i.addNotes(ctx)
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
	if err != nil || ends.Head == i.at || i.added == 0 {
		return err
	}
	return i.to.Append(ctx, task.Note{
		At: now, Step: "journal_imported", Actor: "store import",
		Reason: fmt.Sprintf("the last %d entries follow %s and end with %s in the audit log they come from", i.added, i.anchor, i.at),
	})
}
