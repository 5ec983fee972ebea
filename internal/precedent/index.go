package precedent

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// indexRecord says how far the journal was read.
const indexRecord = "approvedtools"

// An index says which part of the journal was not yet read for approvals that have no
// record: an earlier version of the gate has written it, or it was imported. The journal is
// read from its end to its beginning, so that the first approval of a tool that is found is
// the last one that people gave.
type index struct {
	Left int64 `json:"left"` // the number of the last entry that was not read; 0 if all were
}

// indexPage is how many entries of the journal are read at a time.
const indexPage = 1000

// Index reads at most so many entries of the journal and keeps the approvals that it finds
// there. It begins with what is the last entry then, because later approvals have records,
// and goes on where it stopped before, on whatever replica. Once it has read the first entry,
// Index does nothing.
func (s Store) Index(ctx context.Context, j task.Journal, most int) error {
	at, version, err := s.index(ctx)
	if err != nil || version > 0 && at.Left == 0 {
		return err
	}
	ends, err := j.Ends(ctx)
	if err != nil {
		return err
	}
	if version == 0 {
		at.Left = ends.Head.Seq
	}
	after := max(ends.Anchor.Seq, at.Left-int64(most))
	found, err := approvals(ctx, j, after, at.Left)
	if err != nil {
		return err
	}
	for of, a := range found {
		if err := s.Keep(ctx, of.tool, a); err != nil {
			return err
		}
	}
	if after == ends.Anchor.Seq {
		after = 0 // the rest, if there was one, was trimmed
	}
	return s.putIndex(ctx, index{Left: after}, version+1)
}

// A definition is a tool with the form of a digest of its definition.
type definition struct {
	tool Tool
	form string
}

// approvals returns the last approvals among the entries after one number, up to another.
func approvals(ctx context.Context, j task.Journal, after, last int64) (map[definition]Approved, error) {
	found := map[definition]Approved{}
	q := task.JournalQuery{After: after, Limit: int(max(1, min(indexPage, last-after)))}
	for e, err := range task.EachEntry(task.SlowRead(ctx), j, q) {
		if err != nil {
			return nil, err
		}
		if e.Seq > last {
			break
		}
		if Approves(&e) {
			found[definition{Tool{e.Upstream, e.Method, e.Tool}, formOf(e.ToolDigest)}] = Approved{e.Task, e.At, e.ToolDigest}
		}
	}
	return found, nil
}

// Approves reports whether e is the approval by people that let a call run, of a tool whose
// definition was known. A standing approval is none: nobody looked at the call.
func Approves(e *task.Entry) bool {
	return e.Approver != "" && e.Grant == "" && e.To == task.Approved && e.ToolDigest != ""
}

// index returns how far the journal was read, and version 0 if that did not begin yet.
func (s Store) index(ctx context.Context) (index, int64, error) {
	r, err := s.Records.GetRecord(ctx, indexRecord)
	if err == nil {
		var at index
		err = json.Unmarshal(r.Value, &at)
		return at, r.Version, err
	}
	if errors.Is(err, task.ErrNotFound) {
		err = nil
	}
	return index{}, 0, err
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

// IndexAgain has [Store.Index] read the whole journal: somebody has added to
// it.
func (s Store) IndexAgain(ctx context.Context) error {
	return s.Records.DeleteRecord(ctx, indexRecord)
}
