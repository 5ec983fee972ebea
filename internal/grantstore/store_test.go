package grantstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A moody store passes writes of version 2 of a record to second.
type moody struct {
	gatestore.Records

	second func(put func() error) error
}

// PutRecord implements [gatestore.Records].
func (m *moody) PutRecord(ctx context.Context, r gatestore.Record) error {
	put := func() error { return m.Records.PutRecord(ctx, r) }
	if r.Version != 2 {
		return put()
	}
	return m.second(put)
}

// If the approver was told that a grant is not in force, it never takes effect, even if the
// store did not confirm its writes. If that is unknown, the approver is told so.
func TestRefusedGrantNeverTakesEffect(t *testing.T) {
	lost := errors.New("no answer")
	var writes int
	var late func() error
	for name, tt := range map[string]struct {
		second  func(put func() error) error
		record  func(s grantstore.Store, id gatetask.GrantID) error
		after   func() error
		want    error
		inForce bool
	}{
		"written":                        {second: func(put func() error) error { return put() }, inForce: true},
		"written, not confirmed":         {second: func(put func() error) error { return errors.Join(put(), lost) }, inForce: true},
		"not written":                    {second: func(put func() error) error { return failOnce(&writes, lost, put) }, want: lost},
		"written late":                   {second: func(put func() error) error { return deferOnce(&writes, &late, lost, put) }, after: func() error { return late() }, want: lost},
		"store unavailable":              {second: func(func() error) error { return lost }, want: grantstore.ErrUncertain},
		"not recorded":                   {record: func(grantstore.Store, gatetask.GrantID) error { return lost }, want: lost},
		"revoked meanwhile":              {second: func(put func() error) error { return put() }, record: revoke, want: task.ErrConcurrentModification},
		"revoked meanwhile, not written": {second: func(put func() error) error { return failOnce(&writes, lost, put) }, record: revoke, want: lost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes, late = 0, nil
				store := memstore.New(memstore.Options{})
				defer store.Close()
				s := grantstore.Store{Records: &moody{store, tt.second}}
				g := validGrant(t)
				err := s.AddRecorded(t.Context(), g, "gate", func() error {
					if tt.record == nil {
						return nil
					}
					return tt.record(grantstore.Store{Records: store}, g.ID)
				})
				if !errors.Is(err, tt.want) {
					t.Errorf("error %v; want %v", err, tt.want)
				}
				if tt.after != nil {
					if err := tt.after(); !errors.Is(err, task.ErrConcurrentModification) {
						t.Errorf("late write: %v", err)
					}
				}
				if kept, err := s.Get(t.Context(), g.ID); err != nil || (kept.Revoked == nil) != tt.inForce {
					t.Errorf("in force: %t, %v; want %t", kept.Revoked == nil, err, tt.inForce)
				}
			})
		})
	}
}

// failOnce fails the first time, without writing.
func failOnce(writes *int, err error, put func() error) error {
	if *writes++; *writes == 1 {
		return err
	}
	return put()
}

// deferOnce fails the first time, and leaves the write for later.
func deferOnce(writes *int, late *func() error, err error, put func() error) error {
	if *writes++; *writes == 1 {
		*late = put
		return err
	}
	return put()
}

func revoke(s grantstore.Store, id gatetask.GrantID) error {
	_, err := s.Revoke(context.Background(), id, grantstore.Revocation{By: "ann", At: time.Now()})
	return err
}

// validGrant returns a grant that can be added now.
func validGrant(t *testing.T) grantstore.Grant {
	t.Helper()
	scope := grantScope(seen)
	pattern, err := scope.Digest()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	return grantstore.Grant{
		ID: grantstore.NewID(scope), Workflow: "ops", Pattern: pattern, From: task.NewID(now), Facts: "{}",
		By: []gatetask.Decision{{By: "ann", At: now}}, GivenAt: now, Until: now.Add(time.Hour), MaxUses: 2,
	}
}
