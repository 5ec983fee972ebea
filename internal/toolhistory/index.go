package toolhistory

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// indexRecord is the name of the record of the [index].
const indexRecord = "approvedtools"

// An index is the progress of reading the journal for approvals without records, which an
// earlier version of the gate wrote or an import brought. The journal is read from its end to
// its beginning, so the first approval found of a tool is the last one given.
type index struct {
	Left int64 `json:"left"` // the number of the last unread entry; 0 if all were read
}

// indexPage is how many entries of the journal are read at a time.
const indexPage = 1000

// Index reads at most the given number of journal entries and records the approvals that it
// finds. It begins with the last entry, because later approvals have records, and continues on
// any replica where it stopped. Once it has read the first entry, it does nothing.
func (s Store) Index(ctx context.Context, j auditlog.Journal, most int) error {
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
	//mutate:swap "max(ends.Anchor.Seq, at.Left-int64(most))" "ends.Anchor.Seq; at.Left = min(at.Left, after+int64(most))" TestIndexNewestFirst the journal is read from its beginning
	after := max(ends.Anchor.Seq, at.Left-int64(most))
	found, err := approvals(ctx, j, after, at.Left)
	if err != nil {
		return err
	}
	for of, a := range found {
		if err := s.RecordApproval(ctx, of.tool, a); err != nil {
			return err
		}
	}
	if after == ends.Anchor.Seq {
		after = 0 // any remaining entries were trimmed
	}
	return s.putIndex(ctx, index{Left: after}, version+1)
}

// A definition is a tool and the form of the digest of its definition.
type definition struct {
	tool Tool
	form string
}

// approvals returns the last approvals among the entries with numbers greater than after, up to
// last.
func approvals(ctx context.Context, j auditlog.Journal, after, last int64) (map[definition]ApprovedCall, error) {
	found := map[definition]ApprovedCall{}
	q := auditlog.Query{After: after, Limit: int(max(1, min(indexPage, last-after)))}
	for e, err := range auditlog.Each(storekit.SlowRead(ctx), j, q) {
		if err != nil {
			return nil, err
		}
		if e.Seq > last {
			break
		}
		if IsApproval(&e) {
			found[definition{Tool{e.Upstream, e.Method, e.Tool}, formOf(e.ToolDigest)}] = ApprovedCall{e.Task, e.At, e.ToolDigest}
		}
	}
	return found, nil
}

// IsApproval reports whether e is the final approval, by a person, of a call of a tool with a
// known definition. Approvals by a grant do not count, because no person saw the call.
func IsApproval(e *auditlog.Entry) bool {
	return e.Approver != "" && e.Grant == "" && e.To == task.Approved && e.ToolDigest != ""
}

// index returns the progress, with version 0 before the first read.
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
	err = s.Records.PutRecord(ctx, gatestore.Record{Name: indexRecord, Version: version, Value: value})
	if errors.Is(err, task.ErrConcurrentModification) {
		return nil // another replica was faster
	}
	return err
}

// ResetIndex makes [Store.Index] read the whole journal again, after an import.
func (s Store) ResetIndex(ctx context.Context) error {
	return s.Records.DeleteRecord(ctx, indexRecord)
}
