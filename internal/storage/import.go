package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Target is what the store may contain before an import.
type Target int

// The targets of an import.
const (
	IntoEmpty Target = iota // the store must be empty
	Merge                   // the store may contain other tasks, and equal ones, which stay as they are
)

// ErrNotEmpty reports that the store has content and the target is [IntoEmpty].
var ErrNotEmpty = errors.New("the store is not empty")

// batchSize is how many tasks or notes are added to the store together.
const batchSize = 64

// An importer adds the lines of an export to a store.
type importer struct {
	to     *sealedstore.Store
	target Target
	lines  int
	counts Counts
	anchor auditlog.Link // the link before the first added journal entry
	last   auditlog.Link // the last journal entry that was read
	ended  bool

	tasks   []task.Task           // not added yet
	result  pendingResult         // of the last task that was read
	plain   *bool                 // the first task was not encrypted; nil before it
	notes   []task.Note           // not added yet
	added   int                   // journal entries that the store did not have
	present map[auditlog.Hash]int // counts the notes that the journal had before, by hash
}

// A pendingResult is the result of the last task, whose chunks are still being read.
type pendingResult struct {
	task  task.ID
	size  int64 // missing bytes
	next  int   // number of the next chunk
	count int   // chunks in all
}

// checkComplete returns an error if chunks are missing.
func (b *pendingResult) checkComplete() error {
	if b.next == b.count && b.size == 0 {
		return nil
	}
	return fmt.Errorf("the result of task %s is incomplete: it has %d of %d chunks, and %d bytes are missing", b.task, b.next, b.count, b.size)
}

// Import adds an export to a store, encrypted with the store's first key if it has one. It
// never changes existing tasks. After an interruption, repeat the import with [Merge].
// If the imported entries get other hashes in the store's journal, Import appends a note,
// with the time now, that names the original ones.
func Import(ctx context.Context, s *sealedstore.Store, r io.Reader, target Target, now time.Time) (Counts, error) {
	i := importer{to: s, target: target}
	if err := i.prepare(ctx); err != nil {
		return i.counts, err
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
			err = i.line(ctx, &line)
		}
		if err != nil {
			return i.counts, fmt.Errorf("line %d: %w", i.lines, err)
		}
	}
	if !i.ended {
		return i.counts, errors.New("the export is incomplete: its end is missing")
	}
	return i.counts, errors.Join(i.finish(ctx, now), toolhistory.Store{Records: i.to}.ResetIndex(ctx))
}

// prepare checks that the store is empty, or reads its journal for a merge.
func (i *importer) prepare(ctx context.Context) error {
	if i.target != IntoEmpty {
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

// readJournal counts the notes that the journal already has. It keeps a hash of each in
// memory until the import ends.
func (i *importer) readJournal(ctx context.Context) error {
	i.present = make(map[auditlog.Hash]int)
	for e, err := range auditlog.Each(ctx, i.to, auditlog.Query{}) {
		if err != nil {
			return err
		}
		i.present[contentHash(e)]++
	}
	return nil
}

// contentHash returns a hash of an entry's note that does not depend on its position.
func contentHash(e auditlog.Entry) auditlog.Hash { return auditlog.Link{}.Next(e.Note).Hash }

// line handles one line of the export.
func (i *importer) line(ctx context.Context, r *record) error {
	switch {
	case i.ended:
		return errors.New("data after the end of the export")
	case (i.lines == 1) != (r.Header != nil):
		return errors.New("not an export: exactly the first line must be a header")
	case r.Header != nil:
		i.last = r.Header.Anchor
		if r.Header.Export != exportVersion {
			return fmt.Errorf("export version %d is not supported, only %d", r.Header.Export, exportVersion)
		}
		return nil
	case r.Chunk != nil:
		return i.chunk(ctx, r.Chunk)
	}
	if err := i.result.checkComplete(); err != nil {
		return err
	}
	switch {
	case r.Task != nil:
		return i.task(ctx, r.Task)
	case r.Entry != nil:
		return i.entry(ctx, r.Entry)
	case r.End != nil:
		i.ended = true
		if err := errors.Join(i.addTasks(ctx), i.addNotes(ctx)); err != nil {
			return err
		}
		return i.checkCounts(*r.End)
	default:
		return errors.New("empty line object")
	}
}

func (i *importer) checkCounts(want Counts) error {
	if i.counts != want {
		return fmt.Errorf("the export is incomplete: it has %+v, expected %+v", i.counts, want)
	}
	return nil
}

func (i *importer) task(ctx context.Context, document []byte) error {
	t, err := storekit.Decode(document)
	if err != nil {
		return err
	}
	if plain := sealedstore.KeyOf(t) == ""; i.plain == nil {
		i.plain = &plain
		//mutate:false TestImportRefusesMixture an import accepts calls in plain text among encrypted ones
	} else if plain != *i.plain {
		// A person without a key may have written the task into an encrypted store.
		return fmt.Errorf("either this task or the first one of the export %w", sealedstore.ErrNotSealed)
	}
	if t, err = i.to.Keys().OpenAny(t); err == nil {
		//mutate:swap "err" "_" TestImportRefusesInvalidContent an import accepts any task
		err = t.Check()
	}
	if err != nil {
		return err
	}
	i.result = pendingResult{task: t.ID}
	if r := t.Result; r != nil && r.Chunks > 0 {
		i.result.size, i.result.count = r.Size, r.Chunks
	}
	i.counts.Tasks++
	if i.tasks = append(i.tasks, t); len(i.tasks) < batchSize {
		return nil
	}
	return i.addTasks(ctx)
}

// addTasks adds the tasks concurrently: a store that flushes to disk takes no longer for
// many than for one.
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
	if i.target == IntoEmpty {
		return fmt.Errorf("the export contains task %s twice: %w", t.ID, err)
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

// chunk adds the next chunk of the last task, unless the store has it.
func (i *importer) chunk(ctx context.Context, c *chunk) error {
	if err := i.addTasks(ctx); err != nil {
		return err
	}
	//mutate:swap " || c.N != i.result.next || c.N >= i.result.count" "" TestImportRefusesInvalidContent an import accepts chunks in any order
	if c.Task != i.result.task || c.N != i.result.next || c.N >= i.result.count {
		return fmt.Errorf("unexpected chunk %d of task %s: next is chunk %d of %d of task %s", c.N, c.Task, i.result.next, i.result.count, i.result.task)
	}
	data, err := i.to.Keys().OpenAnyChunk(c.Task, c.N, c.Data)
	if err != nil {
		return err
	}
	i.counts.Chunks++
	i.result.next++
	i.result.size -= int64(len(data))
	ref := task.AnyOwner().Ref(c.Task)
	if i.target == Merge {
		there, err := i.to.ReadChunk(ctx, ref, c.N)
		switch {
		case err == nil && bytes.Equal(there, data):
			return nil
		case err == nil:
			return fmt.Errorf("the result of task %s already exists and differs", c.Task)
		case !errors.Is(err, task.ErrChunkMissing):
			return err
		}
	}
	return i.to.WriteChunk(ctx, ref, c.N, data)
}

func (i *importer) entry(ctx context.Context, e *auditlog.Entry) error {
	before := i.last
	if err := before.Verify(*e); err != nil {
		return err
	}
	i.last = e.Link()
	i.counts.Entries++
	if content := contentHash(*e); i.present[content] > 0 {
		i.present[content]--
		return nil
	}
	if i.added++; i.added == 1 {
		i.anchor = before
	}
	if i.notes = append(i.notes, e.Note); len(i.notes) < batchSize {
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

// finish appends a note with the original hashes, if the imported entries got other ones.
func (i *importer) finish(ctx context.Context, now time.Time) error {
	ends, err := i.to.Ends(ctx)
	if err != nil || ends.Head == i.last || i.added == 0 {
		return err
	}
	return i.to.Append(ctx, task.Note{
		At: now, Step: auditlog.Imported, Actor: "store import",
		Reason: fmt.Sprintf("the last %d entries follow %s and end with %s in the audit log they come from", i.added, i.anchor, i.last),
	})
}
