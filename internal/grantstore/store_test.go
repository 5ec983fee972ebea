package grantstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// moody is a store that treats the writes of version 2 of a record as it likes.
type moody struct {
	task.Records

	second func(put func() error) error
}

// PutRecord implements [task.Records].
func (m *moody) PutRecord(ctx context.Context, r task.Record) error {
	put := func() error { return m.Records.PutRecord(ctx, r) }
	if r.Version != 2 {
		return put()
	}
	return m.second(put)
}

// A grant that its giver was told is not in force never is, whatever the store did not
// say. If that is not known, the giver is told so.
func TestGiveRecorded(t *testing.T) {
	lost := errors.New("no answer")
	var writes int
	var late func() error
	for name, tt := range map[string]struct {
		second  func(put func() error) error
		record  func(s grantstore.Store, id task.GrantID) error
		after   func() error
		want    error
		inForce bool
	}{
		"it is made":               {second: func(put func() error) error { return put() }, inForce: true},
		"it is made, unheard":      {second: func(put func() error) error { return errors.Join(put(), lost) }, inForce: true},
		"it is not made":           {second: func(put func() error) error { return failOnce(&writes, lost, put) }, want: lost},
		"it comes later":           {second: func(put func() error) error { return deferOnce(&writes, &late, lost, put) }, after: func() error { return late() }, want: lost},
		"the store is away":        {second: func(func() error) error { return lost }, want: grantstore.ErrUncertain},
		"it is not recorded":       {record: func(grantstore.Store, task.GrantID) error { return lost }, want: lost},
		"it is revoked meanwhile":  {second: func(put func() error) error { return put() }, record: revoke, want: task.ErrConcurrentModification},
		"it is revoked, and fails": {second: func(put func() error) error { return failOnce(&writes, lost, put) }, record: revoke, want: lost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes, late = 0, nil
				store := memstore.New(memstore.Options{})
				defer store.Close()
				s := grantstore.Store{Records: &moody{store, tt.second}}
				g := validGrant(t)
				err := s.GiveRecorded(t.Context(), g, "gate", func() error {
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
						t.Errorf("the late write: %v", err)
					}
				}
				if kept, err := s.Get(t.Context(), g.ID); err != nil || (kept.Revoked == nil) != tt.inForce {
					t.Errorf("in force: %t, %v; want %t", kept.Revoked == nil, err, tt.inForce)
				}
			})
		})
	}
}

// failOnce fails the first time, without a write.
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

func revoke(s grantstore.Store, id task.GrantID) error {
	_, err := s.Revoke(context.Background(), id, grantstore.Revocation{By: "ann", At: time.Now()})
	return err
}

// validGrant returns a grant that can be kept now.
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
		By: []task.Decision{{By: "ann", At: now}}, GivenAt: now, Until: now.Add(time.Hour), MaxUses: 2,
	}
}
