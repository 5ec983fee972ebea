package task

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// Grants keeps grants as records of a store. Nothing is remembered between calls: a
// grant that one replica revokes is revoked on all of them as soon as Revoke has
// returned.
type Grants struct{ Records Records }

const (
	grantRecords = "grant/"
	grantsKept   = 24 * time.Hour // how long a grant is kept after its time, for people to see
	grantPage    = 100
)

// Give keeps a new grant.
func (g Grants) Give(ctx context.Context, grant Grant) error {
	if wrong := grant.check(); wrong != "" {
		return &Error{Kind: KindInvalid, Action: ActionPutRecord, Detail: "grant: " + wrong}
	}
	return g.put(ctx, grant, 1)
}

// Use counts a use of a grant, for a task that is to be created with that ID, and
// returns the grant as it is then. If several try to have the last use, one of them
// does. The error is [ErrGrantRevoked], [ErrGrantExpired], [ErrGrantSpent] or
// [ErrNotFound] if there is none to be had.
func (g Grants) Use(ctx context.Context, id GrantID, of ID, now time.Time, l GrantLimits) (Grant, error) {
	return g.change(ctx, id, func(grant Grant) (Grant, error) { return grant.use(of, now, l) })
}

// Return gives back a use that was counted for a task. The caller must know that the
// task was not created, and will not be.
func (g Grants) Return(ctx context.Context, id GrantID, of ID) error {
	_, err := g.change(ctx, id, func(grant Grant) (Grant, error) {
		grant.Uses = slices.DeleteFunc(slices.Clone(grant.Uses), func(u GrantUse) bool { return u.Task == of })
		return grant, nil
	})
	return err
}

// Revoke ends a grant. A grant that was revoked before stays as it is.
func (g Grants) Revoke(ctx context.Context, id GrantID, r Revocation) (Grant, error) {
	return g.change(ctx, id, func(grant Grant) (Grant, error) {
		if grant.Revoked != nil {
			return grant, ErrGrantRevoked
		}
		r.At = precise(r.At)
		grant.Revoked = &r
		return grant, nil
	})
}

// Get returns a grant, or [ErrNotFound].
func (g Grants) Get(ctx context.Context, id GrantID) (Grant, error) {
	grant, _, err := g.get(ctx, id)
	return grant, err
}

// Of returns the grants for calls of the tool and owner of a scope, and perhaps some
// others, in no particular order: compare their patterns.
func (g Grants) Of(ctx context.Context, s GrantScope) ([]Grant, error) {
	return g.list(ctx, s.idPrefix())
}

// All returns all grants that are kept, the newest first.
func (g Grants) All(ctx context.Context) ([]Grant, error) {
	all, err := g.list(ctx, "")
	slices.SortStableFunc(all, func(a, b Grant) int { return b.GivenAt.Compare(a.GivenAt) })
	return all, err
}

func (g Grants) list(ctx context.Context, prefix string) ([]Grant, error) {
	q := RecordQuery{Prefix: grantRecords + prefix, Limit: grantPage}
	var all []Grant
	for {
		page, err := g.Records.ListRecords(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			if r.Name <= q.After {
				return nil, &Error{Kind: KindUnreadable, Action: ActionListRecords, Detail: "the records are out of order"}
			}
			q.After = r.Name
			if grant, err := decodeGrant(r); err == nil { // one that cannot be read lets nothing run
				all = append(all, grant)
			}
		}
		if len(page) < q.Limit {
			return all, nil
		}
	}
}

// change replaces a grant by what become makes of it. If others change it in
// between, change starts over.
func (g Grants) change(ctx context.Context, id GrantID, become func(Grant) (Grant, error)) (Grant, error) {
	for {
		before, version, err := g.get(ctx, id)
		if err != nil {
			return Grant{}, err
		}
		after, err := become(before)
		if err != nil {
			return before, err
		}
		if err = g.put(ctx, after, version+1); !errors.Is(err, ErrConcurrentModification) {
			return after, err
		}
	}
}

func (g Grants) get(ctx context.Context, id GrantID) (Grant, int64, error) {
	name := grantRecords + string(id)
	if !id.Valid() {
		return Grant{}, 0, NoRecord(name)
	}
	r, err := g.Records.GetRecord(ctx, name)
	if err != nil {
		return Grant{}, 0, err
	}
	grant, err := decodeGrant(r)
	return grant, r.Version, err
}

func (g Grants) put(ctx context.Context, grant Grant, version int64) error {
	value, err := json.Marshal(&grant, json.Deterministic(true))
	if err != nil {
		return &Error{Kind: KindInvalid, Action: ActionPutRecord, Detail: "grant", Err: err}
	}
	return g.Records.PutRecord(ctx, Record{
		Name: grantRecords + string(grant.ID), Version: version, Value: value, Expires: precise(grant.Until.Add(grantsKept)),
	})
}

// decodeGrant returns the grant of a record. A member that this version does not
// know may make the grant narrower, so such a grant is not read.
func decodeGrant(r Record) (Grant, error) {
	var grant Grant
	err := json.Unmarshal(r.Value, &grant, json.RejectUnknownMembers(true))
	if err == nil && r.Name != grantRecords+string(grant.ID) {
		err = errors.New("it has another name")
	}
	if err != nil {
		return Grant{}, &Error{Kind: KindUnreadable, Action: ActionGetRecord, Detail: "a grant", Err: err}
	}
	return grant, nil
}
