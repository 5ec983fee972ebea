package grantstore

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Store keeps grants as records. It caches nothing: a revoked grant is revoked on all replicas
// as soon as Revoke returns.
type Store struct{ Records gatestore.Records }

const (
	grantRecords = "grant/"
	grantsKept   = 24 * time.Hour // how long an expired grant is kept for display
	grantPage    = 100
)

// Add stores a new grant.
func (s Store) Add(ctx context.Context, grant Grant) error {
	if wrong := grant.check(); wrong != "" {
		return &task.Error{Kind: task.ErrInvalid, Action: action.PutRecord, Detail: "grant: " + wrong}
	}
	return s.put(ctx, grant, 1)
}

// NeverInForce is the reason for revoking a grant that could not be recorded.
const NeverInForce = "it never took effect: the gate could not keep it"

// AddRecorded stores a new grant, calls record, and then puts the grant in force. Until then, and
// if record fails, it is stored as revoked by the named gate.
func (s Store) AddRecorded(ctx context.Context, grant Grant, gate string, record func() error) error {
	waiting := grant
	waiting.Revoked = &Revocation{By: gate, At: precise(grant.GivenAt), Reason: NeverInForce}
	if err := s.Add(ctx, waiting); err != nil {
		return err
	}
	if err := record(); err != nil {
		return err
	}
	err := s.put(ctx, grant, 2)
	if err == nil {
		return nil
	}
	return s.takeBack(ctx, waiting, err)
}

// ErrUncertain means that the store did not confirm whether a new grant is in force.
var ErrUncertain = errors.New("grantstore: it is not known whether the grant is in force")

// takeBack revokes a grant that could not be put in force because of cause, and returns cause. It
// returns nil if the grant is in force anyway, and [ErrUncertain] if the store does not answer in
// time.
func (s Store) takeBack(ctx context.Context, waiting Grant, cause error) error {
	ctx, stop := context.WithTimeout(ctx, takeBackTime)
	defer stop()
	again := time.NewTicker(takeBackPause)
	defer again.Stop()
	for {
		err := s.put(ctx, waiting, 2)
		if err == nil {
			return cause
		}
		if errors.Is(err, task.ErrConcurrentModification) {
			if kept, failed := s.Get(ctx, waiting.ID); failed == nil && kept.Revoked == nil {
				return nil
			} else if failed == nil {
				return cause // it is revoked
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(ErrUncertain, cause)
		}
	}
}

// How long [Store.takeBack] retries, and its pause.
const (
	takeBackTime  = 10 * time.Second
	takeBackPause = 200 * time.Millisecond
)

// Use counts a use of a grant for a task that will be created with the given id, and returns the
// updated grant. Only one of several concurrent calls gets the last use. The error is
// [ErrRevoked], [ErrExpired], [ErrSpent] or [task.ErrNotFound].
func (s Store) Use(ctx context.Context, id gatetask.GrantID, of task.ID, now time.Time, l Limits) (Grant, error) {
	return s.change(ctx, id, func(grant Grant) (Grant, error) { return grant.use(of, now, l) })
}

// Return returns a use that was counted for a task. The caller must know that the task was not
// created and will not be.
func (s Store) Return(ctx context.Context, id gatetask.GrantID, of task.ID) error {
	_, err := s.change(ctx, id, func(grant Grant) (Grant, error) {
		grant.Uses = slices.DeleteFunc(slices.Clone(grant.Uses), func(u Use) bool { return u.Task == of })
		return grant, nil
	})
	return err
}

// Revoke ends a grant. It returns [ErrRevoked] for a revoked grant, except for one that is not in
// force yet.
func (s Store) Revoke(ctx context.Context, id gatetask.GrantID, r Revocation) (Grant, error) {
	return s.change(ctx, id, func(grant Grant) (Grant, error) {
		if was := grant.Revoked; was != nil && was.Reason != NeverInForce {
			return grant, ErrRevoked
		}
		r.At = precise(r.At)
		grant.Revoked = &r
		return grant, nil
	})
}

// Get returns a grant, or [task.ErrNotFound].
func (s Store) Get(ctx context.Context, id gatetask.GrantID) (Grant, error) {
	grant, _, err := s.get(ctx, id)
	return grant, err
}

// For returns the grants for the owner and tool of a scope that have its reach, and possibly
// others, unordered. Compare their patterns.
func (s Store) For(ctx context.Context, scope Scope) ([]Grant, error) {
	return s.list(ctx, scope.idPrefix())
}

// All returns all stored grants, newest first.
func (s Store) All(ctx context.Context) ([]Grant, error) {
	all, err := s.list(ctx, "")
	sort.SliceStable(all, func(i, j int) bool { return all[i].GivenAt.After(all[j].GivenAt) }) // slices.SortFunc would be compiled for this large type alone
	return all, err
}

func (s Store) list(ctx context.Context, prefix string) ([]Grant, error) {
	var all []Grant
	for r, err := range gatestore.EachRecord(ctx, s.Records, gatestore.RecordQuery{Prefix: grantRecords + prefix, Limit: grantPage}) {
		if err != nil {
			return nil, err
		}
		if grant, err := decodeGrant(r); err == nil { // an unreadable grant approves nothing
			all = append(all, grant)
		}
	}
	return all, nil
}

// change replaces a grant by the result of become, and retries after concurrent changes.
func (s Store) change(ctx context.Context, id gatetask.GrantID, become func(Grant) (Grant, error)) (Grant, error) {
	for {
		before, version, err := s.get(ctx, id)
		if err != nil {
			return Grant{}, err
		}
		after, err := become(before)
		if err != nil {
			return before, err
		}
		if err = s.put(ctx, after, version+1); !errors.Is(err, task.ErrConcurrentModification) {
			return after, err
		}
	}
}

func (s Store) get(ctx context.Context, id gatetask.GrantID) (Grant, int64, error) {
	name := grantRecords + string(id)
	if !ValidID(id) {
		return Grant{}, 0, gatestore.NoRecord(name)
	}
	r, err := s.Records.GetRecord(ctx, name)
	if err != nil {
		return Grant{}, 0, err
	}
	grant, err := decodeGrant(r)
	return grant, r.Version, err
}

func (s Store) put(ctx context.Context, grant Grant, version int64) error {
	value, err := json.Marshal(&grant, json.Deterministic(true))
	if err != nil {
		return &task.Error{Kind: task.ErrInvalid, Action: action.PutRecord, Detail: "grant", Err: err}
	}
	return s.Records.PutRecord(ctx, gatestore.Record{
		Name: grantRecords + string(grant.ID), Version: version, Value: value, Expires: precise(grant.Until.Add(grantsKept)),
	})
}

// decodeGrant decodes a grant. It refuses unknown members, which might make the grant narrower.
func decodeGrant(r gatestore.Record) (Grant, error) {
	var grant Grant
	err := json.Unmarshal(r.Value, &grant, json.RejectUnknownMembers(true))
	if err == nil && r.Name != grantRecords+string(grant.ID) {
		err = errors.New("it has another name")
	}
	if err != nil {
		return Grant{}, &task.Error{Kind: task.ErrUnreadable, Action: action.GetRecord, Detail: "a grant", Err: err}
	}
	return grant, nil
}
