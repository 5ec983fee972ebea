// Package gatestoretest checks that a [gatestore.Store], the store of a gateway, keeps its
// contract. Every store runs the same cases; none can be skipped. Package storetest runs those
// for a store of tasks alone.
package gatestoretest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// Run checks a store. It runs each case against an empty store from open, which should close the
// store with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) gatestore.Store) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// RunReplicas checks that several replicas write one journal, see each other's records, and
// count the uses of a grant together. The stores must be handles of the same empty store.
func RunReplicas(t *testing.T, replicas ...gatestore.Store) {
	t.Helper()
	journalOf(t, replicas)
	recordsOf(t, replicas)
	grantsOf(t, replicas)
}

// A reporter is the part of [testing.T] that cases need. With it, the tests of this package can
// observe a failing case.
type reporter interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

type testCase struct {
	name string
	run  func(reporter, gatestore.Store)
}

func cases() []testCase {
	return slices.Concat(createCases(), readCases(), swapCases(), listCases(), dueCases(), reclaimCases(), blobCases(), watchCases(), journalCases(), recordCases(), grantCases(), lifeCases())
}

// epoch has microseconds, the precision that a store must keep.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

const ttl = time.Hour

// draft returns the draft that most cases use.
func draft(id task.ID, owner string) task.Draft {
	const arguments = `{"path":"/tmp/` + "\u00e9" + `"}`
	return task.Draft{
		ID: id, Owner: owner, Workflow: "ops", TTL: ttl, PollInterval: 2 * time.Second,
		Verdict: gatetask.Verdict{Reason: "rule 3", Snapshot: "s1", ToolDigest: "d1", Facts: `{"a":"é"}`},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: arguments,
			Message: ` {"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"delete_file","arguments":` + arguments + `}}`,
		},
	}
}

// build returns a task that was created at the given time.
func build(t reporter, d task.Draft, at time.Time) task.Task {
	t.Helper()
	made, err := task.New(d, at)
	must(t, err)
	return made
}

// add builds a task and stores it.
func add(t reporter, s gatestore.Store, id task.ID, owner string, at time.Time) task.Task {
	t.Helper()
	made := build(t, draft(id, owner), at)
	must(t, s.Create(t.Context(), made, task.Limits{}))
	return made
}

// apply returns the task after the events, which happen one after the other.
func apply(t reporter, from task.Task, at time.Time, events ...lifecycle.Event) task.Task {
	t.Helper()
	for _, e := range events {
		var err error
		from, err = lifecycle.Apply(from, e, at)
		must(t, err)
	}
	return from
}

// advance applies events to a stored task.
func advance(t reporter, s gatestore.Store, id task.ID, at time.Time, events ...lifecycle.Event) {
	t.Helper()
	for _, e := range events {
		_, err := lifecycle.Advance(t.Context(), s, anyone(id), e, at)
		must(t, err)
	}
}

// full returns a task in which every possible field is set.
func full(t reporter, id task.ID, owner string) task.Task {
	t.Helper()
	answer := []byte("{\"content\":[], \"raw\":\"\xff\"}")
	f := apply(t, build(t, draft(id, owner), epoch), epoch.Add(time.Second),
		lifecycle.SetVariables{Side: task.ClientSide, Values: task.Variables{
			"client.reason": json.RawMessage(`"because \u003c"`), "client.n": json.RawMessage(`{"b":1.0,"a":[1e2,null]}`),
		}},
		lifecycle.SetVariables{Side: task.ServerSide, Values: task.Variables{"server.x": json.RawMessage(`-0.0`)}},
		lifecycle.Submit{By: "gate", Quorum: 2, Deadline: epoch.Add(time.Minute)},
		lifecycle.Contact{PollInterval: 5 * time.Second, WaitsUntil: epoch.Add(10 * time.Second)},
		lifecycle.Approve{By: "bob", Reason: "fine", As: gatetask.Authority{Groups: []string{"oncall"}, Roles: []string{"approver"}, Own: owner == "bob"}},
		lifecycle.Approve{By: "eve", NewGrant: &gatetask.GrantTerms{Until: epoch.Add(time.Hour), Uses: 3, GrantShape: gatetask.GrantShape{Free: []string{"path"}}}},
		lifecycle.Claim{By: "gate-1", LeaseUntil: epoch.Add(time.Minute)},
		lifecycle.Progress{
			By: "gate-1", UpstreamTask: "u1", InputRequests: json.RawMessage(`{"q":{"method":"elicitation/create"}}`),
			RequestState: "s1", Message: "half way", PollInterval: 3 * time.Second,
		},
		lifecycle.Fail{
			By:      "gate-1",
			Failure: task.Failure{Stage: lifecycle.StageUpstreamError, Reason: "no", Ran: task.RanYes, Retriable: true},
			Result:  &task.Result{Kind: task.ResultRPCError, Inline: answer, Size: int64(len(answer))},
		},
		lifecycle.Deliver{},
	)
	f.FullDigest = &task.Digest{1, 2, 3}
	f.Approval.Approvals[1].Grant = "gr_1"
	return f
}

// rejected returns a task with the fields that a full one cannot have.
func rejected(t reporter, id task.ID, owner string) task.Task {
	t.Helper()
	return apply(t, build(t, draft(id, owner), epoch), epoch.Add(time.Second),
		lifecycle.Submit{By: "gate", Quorum: 3, SelfApproval: true, Deadline: epoch.Add(time.Minute)},
		lifecycle.Approve{By: owner}, lifecycle.Reject{By: "eve", Reason: "not today"})
}

func anyone(id task.ID) task.Ref { return task.AnyOwner().Ref(id) }

func get(t reporter, s gatestore.Store, id task.ID) task.Task {
	t.Helper()
	got, err := s.Get(t.Context(), anyone(id))
	must(t, err)
	return got
}

func must(t reporter, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

func mustBe(t reporter, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

func mustEqual(t reporter, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// together runs f(0) to f(n-1) at the same time and returns their errors.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			errs[i] = f(i)
		})
	}
	start.Done()
	done.Wait()
	return errs
}

// A meeting is a store in which all participants read the task before one of them writes it
// back.
type meeting struct {
	task.Store
	all *sync.WaitGroup // starts at the number of participants
	met bool
}

func (m *meeting) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	got, err := m.Store.Get(ctx, ref)
	if !m.met {
		m.met = true
		m.all.Done()
		m.all.Wait()
	}
	return got, err
}

// collide applies n events to a task at the same time.
func collide(t reporter, s gatestore.Store, id task.ID, n int, event func(i int) lifecycle.Event) []error {
	var all sync.WaitGroup
	all.Add(n)
	return together(n, func(i int) error {
		_, err := lifecycle.Advance(t.Context(), &meeting{Store: s, all: &all}, anyone(id), event(i), epoch)
		return err
	})
}

// succeeded returns the number of nil errors in errs. It fails the case if another error
// differs from refusal.
func succeeded(t reporter, errs []error, refusal error) int {
	t.Helper()
	n := 0
	for _, err := range errs {
		switch {
		case err == nil:
			n++
		case !errors.Is(err, refusal):
			t.Fatalf("unexpected error: %v", err)
		}
	}
	return n
}
