// Package precedent keeps, for each tool, how it was defined when people last approved a
// call of it. Approvers are warned if the tool has changed since, however many calls of
// other tools were held in the meantime.
//
// A tool has one record. The gate writes it when people have approved a call whose tool
// its server defines, so an agent can neither make records nor replace one.
package precedent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Tool names a tool, as the journal does.
type Tool struct{ Upstream, Method, Name string }

// An Approved is an approved call of a tool.
type Approved struct {
	Task   task.ID   `json:"task"`
	At     time.Time `json:"at"`     // when it was approved
	Digest string    `json:"digest"` // of the tool's definition
}

// A Store keeps the last approved calls of tools as records of a store.
type Store struct{ Records task.Records }

const (
	toolRecords = "approvedtool/"
	toolKept    = 2 * 365 * 24 * time.Hour // how long the record of a tool is kept after the last approval
	maxForms    = 4                        // in one record
)

// Last returns the last approved call of a tool whose digest can be compared with the
// given one. The error is [task.ErrNotFound] if there is none, and [task.ErrUnreadable] if
// there is a record that cannot be read.
func (s Store) Last(ctx context.Context, tool Tool, digest string) (Approved, error) {
	kept, _, err := s.get(ctx, tool)
	if err != nil {
		return Approved{}, err
	}
	for _, a := range kept {
		if Comparable(a.Digest, digest) {
			return a, nil
		}
	}
	return Approved{}, task.NoRecord(tool.record())
}

// Keep keeps an approved call of a tool as the last one, unless a later one is kept. It
// replaces a record that cannot be read.
func (s Store) Keep(ctx context.Context, tool Tool, a Approved) error {
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

// with returns the approved calls with one more, the latest first, and each with a digest
// of another form. It reports false if one of them makes a useless.
func with(kept []Approved, a Approved) ([]Approved, bool) {
	next := []Approved{a}
	for _, other := range kept {
		switch {
		case !Comparable(other.Digest, a.Digest):
			next = append(next, other)
		case other.At.After(a.At) || other == a:
			return nil, false
		}
	}
	slices.SortStableFunc(next, func(a, b Approved) int { return cmp.Compare(b.At.UnixMicro(), a.At.UnixMicro()) })
	return next[:min(len(next), maxForms)], true
}

func (s Store) get(ctx context.Context, tool Tool) ([]Approved, int64, error) {
	r, err := s.Records.GetRecord(ctx, tool.record())
	if err != nil {
		return nil, 0, err
	}
	var kept []Approved
	if err := json.Unmarshal(r.Value, &kept); err != nil {
		return nil, 0, &task.Error{Kind: task.KindUnreadable, Action: task.ActionGetRecord, Detail: "the last approval of a tool", Err: err}
	}
	return kept, r.Version, nil
}

func (s Store) put(ctx context.Context, tool Tool, kept []Approved, version int64) error {
	value, err := json.Marshal(kept, json.Deterministic(true))
	if err != nil {
		return &task.Error{Kind: task.KindInvalid, Action: task.ActionPutRecord, Detail: "the last approval of a tool", Err: err}
	}
	return s.Records.PutRecord(ctx, task.Record{Name: tool.record(), Version: version, Value: value, Expires: kept[0].At.Add(toolKept)})
}

// record returns the name of the record of a tool.
func (t Tool) record() string {
	var b []byte
	for _, part := range [...]string{"thoughtgate approved tool 1", t.Upstream, t.Method, t.Name} {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	return toolRecords + hex.EncodeToString(sum[:])
}

// Comparable reports whether two digests of definitions were made in the same way, so
// that they show whether the definitions differ. A digest that is not known cannot be
// compared.
func Comparable(one, other string) bool {
	return one != "" && other != "" && formOf(one) == formOf(other)
}

// formOf returns how a digest was made. Early digests do not say that.
func formOf(digest string) string {
	form, _, known := strings.Cut(digest, "-")
	if !known {
		return ""
	}
	return form
}
