package precedent

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// indexRecord says how far the journal was read.
const indexRecord = "approvedtools"

// An index is how far the journal was read for approvals that have no record, and how far
// it must be: an earlier version of the gate has written it, or it was imported.
type index struct {
	Read  int64 `json:"read"`
	Until int64 `json:"until"`
}

// indexPage is how many entries of the journal are read at a time.
const indexPage = 1000

// Index reads at most so many entries of the journal and keeps the approvals that it finds
// there. It goes on where it stopped before, on whatever replica, up to what was the end of
// the journal when it began: later approvals have records. Once that is done, Index does
// nothing.
func (s Store) Index(ctx context.Context, j task.Journal, most int) error {
	at, version, err := s.index(ctx, j)
	if err != nil || version > 0 && at.Read >= at.Until {
		return err
	}
	found, after, err := at.read(ctx, j, most)
	if err != nil {
		return err
	}
	for of, a := range found {
		if err := s.Keep(ctx, of.tool, a); err != nil {
			return err
		}
	}
	return s.putIndex(ctx, after, version+1)
}

// A definition is a tool with the form of a digest of its definition.
type definition struct {
	tool Tool
	form string
}

// read reads on in the journal, and returns the last approvals that it finds, and how far
// it has come.
func (at index) read(ctx context.Context, j task.Journal, most int) (map[definition]Approved, index, error) {
	found := map[definition]Approved{}
	read := 0
	ctx = task.SlowRead(ctx)
	for e, err := range task.EachEntry(ctx, j, task.JournalQuery{After: at.Read, Limit: min(indexPage, most)}) {
		if err != nil {
			return nil, at, err
		}
		if Approves(&e) {
			found[definition{Tool{e.Upstream, e.Method, e.Tool}, formOf(e.ToolDigest)}] = Approved{e.Task, e.At, e.ToolDigest}
		}
		at.Read = e.Seq
		if read++; read == most || at.Read >= at.Until {
			return found, at, nil
		}
	}
	at.Read = at.Until // the rest was trimmed
	return found, at, nil
}

// Approves reports whether e is the approval that let a call run, of a tool whose
// definition was known.
func Approves(e *task.Entry) bool {
	return e.Approver != "" && e.To == task.Approved && e.ToolDigest != ""
}

// index returns how far the journal was read, and version 0 if that did not begin yet.
func (s Store) index(ctx context.Context, j task.Journal) (index, int64, error) {
	r, err := s.Records.GetRecord(ctx, indexRecord)
	if err == nil {
		var at index
		err = json.Unmarshal(r.Value, &at)
		return at, r.Version, err
	}
	if !errors.Is(err, task.ErrNotFound) {
		return index{}, 0, err
	}
	ends, err := j.Ends(ctx)
	return index{Read: ends.Anchor.Seq, Until: ends.Head.Seq}, 0, err
}

func (s Store) putIndex(ctx context.Context, at index, version int64) error {
	value, err := json.Marshal(&at)
	if err != nil {
		return err
	}
	err = s.Records.PutRecord(ctx, task.Record{Name: indexRecord, Version: version, Value: value})
	if errors.Is(err, task.ErrConcurrentModification) {
		return nil // another replica was faster
	}
	return err
}

// IndexAgain has [Store.Index] read the journal from its beginning: somebody has added to
// it.
func (s Store) IndexAgain(ctx context.Context) error {
	return s.Records.DeleteRecord(ctx, indexRecord)
}
