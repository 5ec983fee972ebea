// Package toolhistory records how the definitions of tools change.
//
// A [Store] keeps the definition with which people last approved a call of each tool. Approvers
// are warned if the tool has changed since. The gate writes this record after an approval, so an
// agent can neither create nor replace one.
//
// It also keeps a [History]: the definition with which the tool was first seen, and those that
// operators have accepted since. Policy that uses hints goes by these definitions, so a server
// cannot loosen policy by changing its hints.
package toolhistory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Tool names a tool, as the journal does.
type Tool struct{ Upstream, Method, Name string }

// An ApprovedCall is an approved call of a tool.
type ApprovedCall struct {
	Task   task.ID   `json:"task"`
	At     time.Time `json:"at"`     // when it was approved
	Digest string    `json:"digest"` // of the tool's definition
}

// A Store keeps information about tools in records of a store.
type Store struct {
	Records gatestore.Records
	Journal auditlog.Journal // for [Store.Note]; may be nil
}

const (
	toolRecords = "approvedtool/"
	toolKept    = 2 * 365 * 24 * time.Hour // how long the record of a tool is kept after the last approval
	maxForms    = 4                        // in one record
)

// LastApproval returns the last approved call of a tool with a comparable digest. The error is
// [task.ErrNotFound] if there is no such call, and [task.ErrUnreadable] if the record is
// unreadable.
func (s Store) LastApproval(ctx context.Context, tool Tool, digest string) (ApprovedCall, error) {
	kept, _, err := s.get(ctx, tool)
	if err != nil {
		return ApprovedCall{}, err
	}
	for _, a := range kept {
		if Comparable(a.Digest, digest) {
			return a, nil
		}
	}
	return ApprovedCall{}, gatestore.NoRecord(tool.record())
}

// RecordApproval records an approved call of a tool, unless a later one is recorded. It
// replaces an unreadable record.
func (s Store) RecordApproval(ctx context.Context, tool Tool, a ApprovedCall) error {
	a.At = a.At.UTC().Truncate(time.Microsecond)
	for {
		kept, version, err := s.get(ctx, tool)
		switch {
		case errors.Is(err, task.ErrUnreadable):
			version, err = 0, s.Records.DeleteRecord(ctx, tool.record())
		case errors.Is(err, task.ErrNotFound):
			version, err = 0, nil
		}
		if err != nil {
			return err
		}
		next, later := with(kept, a)
		if !later {
			return nil
		}
		if err := s.put(ctx, tool, next, version+1); !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
}

// with returns the approved calls after adding a, the latest first, one per form of digest. It
// returns false if kept has a or a later call with a comparable digest.
func with(kept []ApprovedCall, a ApprovedCall) ([]ApprovedCall, bool) {
	next := []ApprovedCall{a}
	for _, other := range kept {
		switch {
		case !Comparable(other.Digest, a.Digest):
			next = append(next, other)
		//mutate:swap "other.At.After(a.At) || " "" TestLastApprovalCounts an earlier approval replaces a later one
		case other.At.After(a.At) || other == a:
			return nil, false
		}
	}
	slices.SortStableFunc(next, func(a, b ApprovedCall) int { return cmp.Compare(b.At.UnixMicro(), a.At.UnixMicro()) })
	return next[:min(len(next), maxForms)], true
}

func (s Store) get(ctx context.Context, tool Tool) ([]ApprovedCall, int64, error) {
	r, err := s.Records.GetRecord(ctx, tool.record())
	if err != nil {
		return nil, 0, err
	}
	var kept []ApprovedCall
	if err := json.Unmarshal(r.Value, &kept); err != nil {
		return nil, 0, &task.Error{Kind: task.ErrUnreadable, Action: action.GetRecord, Detail: "the last approval of a tool", Err: err}
	}
	return kept, r.Version, nil
}

func (s Store) put(ctx context.Context, tool Tool, kept []ApprovedCall, version int64) error {
	value, err := json.Marshal(kept, json.Deterministic(true))
	if err != nil {
		return &task.Error{Kind: task.ErrInvalid, Action: action.PutRecord, Detail: "the last approval of a tool", Err: err}
	}
	return s.Records.PutRecord(ctx, gatestore.Record{Name: tool.record(), Version: version, Value: value, Expires: kept[0].At.Add(toolKept)})
}

// record returns the name of the record of a tool.
func (t Tool) record() string {
	sum := sha256.Sum256(lengthPrefixed("thoughtgate approved tool 1", t.Upstream, t.Method, t.Name))
	return toolRecords + hex.EncodeToString(sum[:])
}

// Comparable reports whether two digests of definitions have the same form, so that different
// digests mean different definitions. An unknown digest is not comparable.
func Comparable(one, other string) bool {
	return one != "" && other != "" && formOf(one) == formOf(other)
}

// formOf returns the form of a digest. Early digests have the form "".
func formOf(digest string) string {
	form, _, known := strings.Cut(digest, "-")
	if !known {
		return ""
	}
	return form
}
