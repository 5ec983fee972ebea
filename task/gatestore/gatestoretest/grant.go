package gatestoretest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

func grantCases() []testCase {
	return []testCase{
		{"GrantKept", grantKept},
		{"GrantFound", grantFound},
		{"GrantLastUse", func(t reporter, s gatestore.Store) { grantLastUse(t, []gatestore.Store{s}) }},
		{"GrantRevoked", grantRevoked},
		{"GrantSwept", grantSwept},
	}
}

// wide are limits that these cases never reach.
var wide = grantstore.Limits{Longest: 1000 * time.Hour, Uses: grantstore.MaxUses, Reach: string(gatetask.ReachAgent)}

// scope returns the scope of a grant for calls of owner.
func scope(owner string, free ...string) grantstore.Scope {
	d := draft("tg_1", owner)
	return grantstore.Scope{Owner: owner, Workflow: d.Workflow, ToolDigest: "d1", Call: d.Call, GrantShape: gatetask.GrantShape{Free: free}}
}

// grant returns a grant with the given number of uses.
func grant(t reporter, s grantstore.Scope, uses int) grantstore.Grant {
	t.Helper()
	pattern, err := s.Digest()
	must(t, err)
	return grantstore.Grant{
		ID: grantstore.NewID(s), Workflow: s.Workflow, Pattern: pattern, GrantShape: s.GrantShape, ReadOnly: s.Tools, Meta: map[string]task.Digest{"m": {1}},
		From: "tg_1", By: []gatetask.Decision{{By: "bob", Authority: gatetask.Authority{Groups: []string{"oncall"}}, At: epoch}},
		GivenAt: epoch, Until: epoch.Add(ttl), MaxUses: uses, Facts: `{"é":1}`,
	}
}

// give stores a grant with the given number of uses.
func give(t reporter, s gatestore.Store, of grantstore.Scope, uses int) grantstore.Grant {
	t.Helper()
	g := grant(t, of, uses)
	must(t, grantstore.Store{Records: s}.Add(t.Context(), g))
	return g
}

func grantKept(t reporter, s gatestore.Store) {
	ctx, kept := t.Context(), grantstore.Store{Records: s}
	_, err := kept.Get(ctx, grantstore.NewID(scope("alice")))
	mustBe(t, err, task.ErrNotFound)
	of := scope("alice", "path")
	g := grant(t, of, 3)
	g.Below = []gatetask.GrantBelow{{Argument: "é", Directory: "/tmp"}}
	g.ReadOnly = []gatetask.GrantTool{{Name: "read", Digest: "d1"}}
	g.Reach, g.Tools = gatetask.ReachReadOnly, grantstore.ToolsDigest(g.ReadOnly)
	must(t, kept.Add(ctx, g))
	got, err := kept.Get(ctx, g.ID)
	must(t, err)
	mustEqual(t, "the grant that was kept", got, g)
	used, err := kept.Use(ctx, g.ID, "tg_2", epoch, wide)
	must(t, err)
	g.Uses = []grantstore.Use{{Task: "tg_2", At: epoch}}
	mustEqual(t, "the grant after a use", used, g)
	got, err = kept.Get(ctx, g.ID)
	must(t, err)
	mustEqual(t, "the grant that is kept after a use", got, g)
	mustBe(t, kept.Add(ctx, g), task.ErrConcurrentModification) // it exists already
}

func grantFound(t reporter, s gatestore.Store) {
	ctx, kept := t.Context(), grantstore.Store{Records: s}
	want := map[string][]gatetask.GrantID{}
	for i := range 205 { // more than one page of the store
		owner := "owner" + strconv.Itoa(i%2)
		want[owner] = append(want[owner], give(t, s, scope(owner), 1).ID)
	}
	must(t, s.PutRecord(ctx, gatestore.Record{Name: "grants", Version: 1, Value: []byte("x")}))
	for owner, ids := range want {
		found, err := kept.For(ctx, scope(owner))
		must(t, err)
		mustEqual(t, "the grants of "+owner, sortedIDs(found), slices.Sorted(slices.Values(ids)))
	}
	all, err := kept.All(ctx)
	must(t, err)
	if len(all) != 205 {
		t.Fatalf("%d of 205 grants are listed", len(all))
	}
	none, err := kept.For(ctx, scope("unknown"))
	must(t, err)
	if len(none) > 0 {
		t.Fatalf("an owner without grants has %d", len(none))
	}
}

func sortedIDs(all []grantstore.Grant) []gatetask.GrantID {
	var ids []gatetask.GrantID
	for _, g := range all {
		ids = append(ids, g.ID)
	}
	slices.Sort(ids)
	return ids
}

// grantLastUse lets many users use a grant with fewer uses at the same time. Each use is given
// to one user.
func grantLastUse(t reporter, replicas []gatestore.Store) {
	const uses, users = 3, 24
	g := give(t, replicas[0], scope("racer"), uses)
	var all sync.WaitGroup
	all.Add(users)
	errs := together(users, func(i int) error {
		records := &recordMeeting{Records: replicas[i%len(replicas)], all: &all}
		_, err := grantstore.Store{Records: records}.Use(t.Context(), g.ID, useID(i), epoch, wide)
		return err
	})
	if n := succeeded(t, errs, grantstore.ErrSpent); n != uses {
		t.Fatalf("%d of %d users got one of %d uses", n, users, uses)
	}
	got, err := grantstore.Store{Records: replicas[0]}.Get(t.Context(), g.ID)
	must(t, err)
	if len(got.Uses) != uses {
		t.Fatalf("%d uses are recorded, want %d", len(got.Uses), uses)
	}
	usesRecorded(t, got, errs)
}

func useID(i int) task.ID { return task.ID("tg_" + strconv.Itoa(i)) }

// usesRecorded checks that a grant has recorded exactly the successful uses.
func usesRecorded(t reporter, g grantstore.Grant, errs []error) {
	t.Helper()
	for i, err := range errs {
		recorded := slices.ContainsFunc(g.Uses, func(u grantstore.Use) bool { return u.Task == useID(i) })
		if recorded != (err == nil) {
			t.Fatalf("use %d: recorded %t, error %v", i, recorded, err)
		}
	}
}

// A recordMeeting is a store in which all participants read a record before one of them writes
// it back.
type recordMeeting struct {
	gatestore.Records
	all *sync.WaitGroup // starts at the number of participants
	met bool
}

func (m *recordMeeting) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	got, err := m.Records.GetRecord(ctx, name)
	if !m.met {
		m.met = true
		m.all.Done()
		m.all.Wait()
	}
	return got, err
}

func grantRevoked(t reporter, s gatestore.Store) {
	ctx, kept := t.Context(), grantstore.Store{Records: s}
	g := give(t, s, scope("alice"), grantstore.MaxUses)
	const users = 12
	var all sync.WaitGroup
	all.Add(users + 1)
	errs := together(users+1, func(i int) error {
		met := grantstore.Store{Records: &recordMeeting{Records: s, all: &all}}
		var err error
		if i == users {
			_, err = met.Revoke(ctx, g.ID, grantstore.Revocation{By: "bob", At: epoch, Reason: "enough"})
		} else {
			_, err = met.Use(ctx, g.ID, useID(i), epoch, wide)
		}
		return err
	})
	succeeded(t, errs, grantstore.ErrRevoked)
	must(t, errs[users])
	got, err := kept.Get(ctx, g.ID)
	must(t, err)
	usesRecorded(t, got, errs[:users])
	mustEqual(t, "the revocation", got.Revoked, &grantstore.Revocation{By: "bob", At: epoch, Reason: "enough"})
	_, err = kept.Use(ctx, g.ID, "tg_late", epoch, wide)
	mustBe(t, err, grantstore.ErrRevoked)
	_, err = kept.Revoke(ctx, g.ID, grantstore.Revocation{By: "eve", At: epoch})
	mustBe(t, err, grantstore.ErrRevoked)
}

// grantSwept checks that a grant can be swept from a day after its end.
func grantSwept(t reporter, s gatestore.Store) {
	g := give(t, s, scope("alice"), 1)
	for at, want := range map[time.Time]int{epoch.Add(ttl): 0, epoch.Add(ttl + 24*time.Hour): 0} {
		if n, err := s.SweepRecords(t.Context(), at, 10); n != want || err != nil {
			t.Fatalf("swept %d grants at %v, want %d: %v", n, at, want, err)
		}
	}
	if n, err := s.SweepRecords(t.Context(), g.Until.Add(25*time.Hour), 10); n != 1 || err != nil {
		t.Fatalf("swept %d grants, want 1: %v", n, err)
	}
	_, err := grantstore.Store{Records: s}.Get(t.Context(), g.ID)
	mustBe(t, err, task.ErrNotFound)
}

// grantsOf checks that replicas count the uses of a grant together, and that a grant which one
// replica revokes is revoked on all replicas at once.
func grantsOf(t reporter, replicas []gatestore.Store) {
	grantLastUse(t, replicas)
	g := give(t, replicas[0], scope("alice"), 10)
	last := grantstore.Store{Records: replicas[len(replicas)-1]}
	_, err := last.Use(t.Context(), g.ID, "tg_1", epoch, wide)
	must(t, err)
	_, err = grantstore.Store{Records: replicas[0]}.Revoke(t.Context(), g.ID, grantstore.Revocation{By: "bob", At: epoch})
	must(t, err)
	_, err = last.Use(t.Context(), g.ID, "tg_2", epoch, wide)
	mustBe(t, err, grantstore.ErrRevoked)
}
