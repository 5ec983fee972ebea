// Package storetest checks that a [task.Store] keeps its contract.
//
// Every store runs the same cases; none can be skipped:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) task.Store { return open(t) })
//	}
package storetest

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
)

// RunGate is [Run] for a store that a gateway can use. It has more cases: about large
// answers, watching, the journal, records and closing.
func RunGate(t *testing.T, open func(t *testing.T) task.GateStore) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// RunReplicas checks that several replicas write one journal, see each other's
// records, and count the uses of a grant together. The stores must be handles on the same, empty store.
func RunReplicas(t *testing.T, replicas ...task.GateStore) {
	t.Helper()
	journalOf(t, replicas)
	recordsOf(t, replicas)
	grantsOf(t, replicas)
}

// A reporter is the part of [testing.T] that cases need. It lets this
// package's own tests watch a case fail.
type reporter interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

type testCase struct {
	name string
	run  func(reporter, task.GateStore)
}

func cases() []testCase {
	return slices.Concat(createCases(), readCases(), swapCases(), listCases(), dueCases(), blobCases(), watchCases(), journalCases(), recordCases(), grantCases(), lifeCases())
}

// epoch has microseconds, the precision that a store must keep.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

const ttl = time.Hour

// draft returns what most cases make a task of.
func draft(id task.ID, owner string) task.Draft {
	const arguments = `{"path":"/tmp/` + "\u00e9" + `"}`
	return task.Draft{
		ID: id, Owner: owner, Workflow: "ops", TTL: ttl, PollInterval: 2 * time.Second,
		Verdict: task.Verdict{Reason: "rule 3", Snapshot: "s1", ToolDigest: "d1", Facts: `{"a":"é"}`},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: arguments,
			Message: ` {"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"delete_file","arguments":` + arguments + `}}`,
		},
	}
}

// build makes a task that is created at the given time.
func build(t reporter, d task.Draft, at time.Time) task.Task {
	t.Helper()
	made, err := task.New(d, at)
	must(t, err)
	return made
}

// add makes a task and has the store keep it.
func add(t reporter, s task.GateStore, id task.ID, owner string, at time.Time) task.Task {
	t.Helper()
	made := build(t, draft(id, owner), at)
	must(t, s.Create(t.Context(), made, task.Limits{}))
	return made
}

// apply returns what the events, one after the other, make of a task.
func apply(t reporter, from task.Task, at time.Time, events ...task.Event) task.Task {
	t.Helper()
	for _, e := range events {
		var err error
		from, err = from.Apply(e, at)
		must(t, err)
	}
	return from
}

// advance makes the events happen to a stored task.
func advance(t reporter, s task.GateStore, id task.ID, at time.Time, events ...task.Event) {
	t.Helper()
	for _, e := range events {
		_, err := task.Advance(t.Context(), s, anyone(id), e, at)
		must(t, err)
	}
}

// full returns a task in which nothing is left empty that can be filled.
func full(t reporter, id task.ID, owner string) task.Task {
	t.Helper()
	answer := []byte("{\"content\":[], \"raw\":\"\xff\"}")
	f := apply(t, build(t, draft(id, owner), epoch), epoch.Add(time.Second),
		task.SetVariables{Side: task.ClientSide, Values: task.Variables{
			"client.reason": json.RawMessage(`"because \u003c"`), "client.n": json.RawMessage(`{"b":1.0,"a":[1e2,null]}`),
		}},
		task.SetVariables{Side: task.ServerSide, Values: task.Variables{"server.x": json.RawMessage(`-0.0`)}},
		task.Submit{By: "gate", Quorum: 2, Deadline: epoch.Add(time.Minute)},
		task.Contact{PollInterval: 5 * time.Second, WaitsUntil: epoch.Add(10 * time.Second)},
		task.Approve{By: "bob", Reason: "fine", As: task.Authority{Groups: []string{"oncall"}, Roles: []string{"approver"}, Own: owner == "bob"}},
		task.Approve{By: "eve", Gives: &task.GrantTerms{Until: epoch.Add(time.Hour), Uses: 3, Free: []string{"path"}}},
		task.Claim{By: "gate-1", LeaseUntil: epoch.Add(time.Minute)},
		task.Progress{
			By: "gate-1", UpstreamTask: "u1", InputRequests: json.RawMessage(`{"q":{"method":"elicitation/create"}}`),
			RequestState: "s1", Message: "half way", PollInterval: 3 * time.Second,
		},
		task.Fail{
			By:      "gate-1",
			Failure: task.Failure{Stage: task.StageUpstreamError, Reason: "no", Ran: task.RanYes, Retriable: true},
			Result:  &task.Result{Kind: task.ResultRPCError, Inline: answer, Size: int64(len(answer))},
		},
		task.Deliver{},
	)
	f.Whole = &task.Digest{1, 2, 3}
	f.Approval.Approvals[1].Grant = "gr_1"
	return f
}

// rejected returns a task with what a full one cannot have.
func rejected(t reporter, id task.ID, owner string) task.Task {
	t.Helper()
	return apply(t, build(t, draft(id, owner), epoch), epoch.Add(time.Second),
		task.Submit{By: "gate", Quorum: 3, SelfApproval: true, Deadline: epoch.Add(time.Minute)},
		task.Approve{By: owner}, task.Reject{By: "eve", Reason: "not today"})
}

func anyone(id task.ID) task.Ref { return task.AnyOwner().Ref(id) }

func get(t reporter, s task.GateStore, id task.ID) task.Task {
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

// together runs f(0) to f(n-1) at the same time and returns what they return.
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

// A meeting is a store in which everybody has read the task before anybody
// writes it back.
type meeting struct {
	task.Store
	all *sync.WaitGroup // has a count of one for each who takes part
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

// collide makes n events happen to a task at the same time.
func collide(t reporter, s task.GateStore, id task.ID, n int, event func(i int) task.Event) []error {
	var all sync.WaitGroup
	all.Add(n)
	return together(n, func(i int) error {
		_, err := task.Advance(t.Context(), &meeting{Store: s, all: &all}, anyone(id), event(i), epoch)
		return err
	})
}

// succeeded returns how many of errs are nil, and fails the case for any other
// error than refusal.
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
