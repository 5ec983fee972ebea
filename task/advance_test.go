package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

func newStore(t *testing.T) *memstore.Store {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	return s
}

// store adds a task in the given state to s.
func store(t *testing.T, s gatestore.Store, state task.State) task.Task {
	t.Helper()
	made := inState(t, state)
	if err := s.Create(t.Context(), made, task.Limits{}); err != nil {
		t.Fatal(err)
	}
	return made
}

func advance(t *testing.T, s gatestore.Store, e lifecycle.Event, at time.Time) task.Task {
	t.Helper()
	after, err := lifecycle.Advance(t.Context(), s, ref, e, at)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

var ref = task.OwnedBy("ann").Ref("tg_1")

func ended(t task.Task) bool { return t.State.Terminal() }

func mustBe(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

// TestEdgeCases covers the edge cases of GOV-001, section 9.1, by their ids.
func TestEdgeCases(t *testing.T) {
	tests := map[string]func(t *testing.T, s gatestore.Store){
		"EC-TASK-001 create": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Working)
			got, err := s.Get(t.Context(), ref)
			if err != nil || got.State != task.Working || got.Version != 1 {
				t.Errorf("%s in version %d, %v; want working in 1", got.State, got.Version, err)
			}
		},
		"EC-TASK-002 get": func(t *testing.T, s gatestore.Store) {
			want := store(t, s, task.InputRequired)
			got, err := s.Get(t.Context(), ref)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		},
		"EC-TASK-003 get what is not there": func(t *testing.T, s gatestore.Store) {
			_, err := s.Get(t.Context(), ref)
			mustBe(t, err, task.ErrNotFound)
			_, err = lifecycle.Advance(t.Context(), s, ref, lifecycle.Contact{}, epoch)
			mustBe(t, err, task.ErrNotFound)
		},
		"EC-TASK-004 result of a completed task": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Completed)
			got, err := storekit.Wait(t.Context(), s, ref, ended)
			var answer bytes.Buffer
			if err == nil {
				err = storekit.ReadResult(t.Context(), s, got, &answer)
			}
			if err != nil || answer.String() != "{}" {
				t.Errorf("result %q, %v", &answer, err)
			}
		},
		"EC-TASK-005 result of a pending task": resultOfPending,
		"EC-TASK-006 result of a failed task": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Failed)
			got, err := storekit.Wait(t.Context(), s, ref, ended)
			want := &task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "denied by rule 9", Ran: task.RanUnknown}
			if diff := cmp.Diff(want, got.Failure); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			mustBe(t, storekit.ReadResult(t.Context(), s, got, io.Discard), task.ErrChunkMissing)
		},
		"EC-TASK-007 cancel a pending task": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.InputRequired)
			if got := advance(t, s, lifecycle.Cancel{By: "ann"}, epoch); got.State != task.Cancelled || got.Failure.Ran != task.RanNo {
				t.Errorf("%s, ran: %s", got.State, got.Failure.Ran)
			}
		},
		"EC-TASK-008 cancel a completed task": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Completed)
			_, err := lifecycle.Advance(t.Context(), s, ref, lifecycle.Cancel{By: "ann"}, epoch)
			mustBe(t, err, task.ErrAlreadyTerminal)
		},
		// The seed refuses this, but MCP requires it; see section 5 of the design.
		"EC-TASK-009 cancel an executing task": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Executing)
			if got := advance(t, s, lifecycle.Cancel{By: "ann"}, epoch); got.State != task.Cancelled || got.Failure.Ran != task.RanUnknown {
				t.Errorf("%s, ran: %s", got.State, got.Failure.Ran)
			}
			_, err := lifecycle.Advance(t.Context(), s, ref, complete, epoch) // the run ends, but the state stays
			mustBe(t, err, task.ErrAlreadyTerminal)
		},
		"EC-TASK-010 list": func(t *testing.T, s gatestore.Store) {
			want := store(t, s, task.InputRequired)
			foreign, err := task.New(draft("tg_2", "bob"), epoch)
			if err == nil {
				err = s.Create(t.Context(), foreign, task.Limits{})
			}
			if err != nil {
				t.Fatal(err)
			}
			page, err := s.List(t.Context(), task.Query{Scope: task.OwnedBy("ann")})
			if diff := cmp.Diff(task.Page{Tasks: []task.Task{want}}, page); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			_, err = s.Get(t.Context(), task.OwnedBy("ann").Ref("tg_2"))
			mustBe(t, err, task.ErrOwnerMismatch)
		},
		"EC-TASK-011 list in pages": listInPages,
		"EC-TASK-012 expire": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.InputRequired)
			_, err := lifecycle.Advance(t.Context(), s, ref, approve, epoch.Add(deadline+time.Second))
			mustBe(t, err, task.ErrExpired)
			settled, err := lifecycle.Updater{Store: s}.SettleOverdue(t.Context(), "gate", epoch.Add(deadline+time.Second))
			if err != nil || len(settled) != 1 || settled[0].State != task.Expired {
				t.Errorf("settled %+v, %v", settled, err)
			}
		},
		"EC-TASK-013 concurrent transitions": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.InputRequired)
			raced := &racing{Store: s, first: lifecycle.Reject{By: "eve"}}
			_, err := lifecycle.Advance(t.Context(), raced, ref, approve, epoch)
			e, ok := errors.AsType[*task.Error](err)
			if !ok || !errors.Is(err, task.ErrConcurrentModification) || e.Expected != task.InputRequired || e.Actual != task.Rejected {
				t.Errorf("err = %#v; want a conflict with the expected and the actual state", err)
			}
		},
		"EC-TASK-014 too many of one owner": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Working)
			more, err := task.New(draft("tg_2", "ann"), epoch)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Create(t.Context(), more, task.Limits{PerOwner: 1, RetryAfter: time.Minute})
			e, ok := errors.AsType[*task.Error](err)
			if !ok || !errors.Is(err, task.ErrRateLimited) || e.RetryAfter != time.Minute {
				t.Errorf("err = %#v; want a retry time", err)
			}
		},
		"EC-TASK-015 too many of all": func(t *testing.T, s gatestore.Store) {
			store(t, s, task.Working)
			more, err := task.New(draft("tg_2", "bob"), epoch)
			if err != nil {
				t.Fatal(err)
			}
			mustBe(t, s.Create(t.Context(), more, task.Limits{PerOwner: 1, Total: 1}), task.ErrCapacityExceeded)
		},
		"EC-TASK-016 shut down": shutDown,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, newStore(t)) })
	}
}

func resultOfPending(t *testing.T, _ gatestore.Store) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		store(t, s, task.Executing)
		brief, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := storekit.Wait(brief, s, ref, ended)
		mustBe(t, err, task.ErrNotReady)
		mustBe(t, err, context.DeadlineExceeded)
		if got.State != task.Executing {
			t.Errorf("state %s; want the last known state", got.State)
		}
		mustBe(t, storekit.ReadResult(t.Context(), s, got, io.Discard), task.ErrNotReady)

		answered := make(chan task.Task)
		go func() {
			got, err := storekit.Wait(t.Context(), s, ref, ended)
			if err != nil {
				t.Error(err)
			}
			answered <- got
		}()
		synctest.Wait()
		began := time.Now()
		advance(t, s, lifecycle.Contact{}, epoch)
		synctest.Wait()
		advance(t, s, complete, epoch)
		if got := <-answered; got.State != task.Completed || time.Since(began) != 0 {
			t.Errorf("%s after %v; want %s at once", got.State, time.Since(began), task.Completed)
		}
	})
}

func listInPages(t *testing.T, s gatestore.Store) {
	var want, got []task.ID
	for i := range 45 {
		made, err := task.New(draft(task.ID(fmt.Sprintf("tg_%02d", i)), "ann"), epoch.Add(time.Duration(i)*time.Second))
		if err == nil {
			err = s.Create(t.Context(), made, task.Limits{})
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append([]task.ID{made.ID}, want...)
	}
	var sizes []int
	for q := (task.Query{Scope: task.OwnedBy("ann")}); ; {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.Tasks))
		for _, found := range page.Tasks {
			got = append(got, found.ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{20, 20, 5}, sizes); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

func shutDown(t *testing.T, s gatestore.Store) {
	for i, state := range task.States() {
		made := inState(t, state)
		made.ID = task.ID(fmt.Sprint("tg_", state))
		made.Owner = fmt.Sprint("owner", i)
		if err := s.Create(t.Context(), made, task.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	late := draft("tg_late", "zoe")
	late.TTL = time.Millisecond
	made, err := task.New(late, epoch)
	if err == nil {
		err = s.Create(t.Context(), made, task.Limits{})
	}
	if err != nil {
		t.Fatal(err)
	}

	n, err := lifecycle.Updater{Store: s}.FailPending(t.Context(), "gate", epoch.Add(time.Second))
	if n != 5 || err != nil {
		t.Errorf("%d tasks ended, %v; want 5", n, err)
	}
	for id, want := range map[task.ID]*task.Failure{
		"tg_working":        {Stage: lifecycle.StageShutdown, Reason: "the gate was shut down", Ran: task.RanNo, Retriable: true},
		"tg_input_required": {Stage: lifecycle.StageShutdown, Reason: "the gate was shut down", Ran: task.RanNo, Retriable: true},
		"tg_approved":       {Stage: lifecycle.StageShutdown, Reason: "the gate was shut down", Ran: task.RanNo, Retriable: true},
		"tg_executing":      {Stage: lifecycle.StageShutdown, Reason: "the gate was shut down", Ran: task.RanUnknown},
		"tg_late":           {Stage: lifecycle.StageApprovalTimeout, Reason: "its time is over", Ran: task.RanNo, Retriable: true},
		"tg_completed":      nil,
	} {
		got, err := s.Get(t.Context(), task.AnyOwner().Ref(id))
		if diff := cmp.Diff(want, got.Failure); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", id, err, diff)
		}
	}
}

// racing applies another event between the first read and the first swap.
type racing struct {
	task.Store
	first lifecycle.Event
	once  sync.Once
}

func (r *racing) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	var err error
	r.once.Do(func() { _, err = lifecycle.Advance(ctx, r.Store, task.AnyOwner().Ref(t.ID), r.first, epoch) })
	if err != nil {
		return err
	}
	return r.Store.Swap(ctx, t, notes...)
}

// A lostRace is an event that comes after a concurrent event.
type lostRace struct {
	name          string
	from          task.Task
	first, second lifecycle.Event
	want          task.State // empty if the second event is refused
}

func (r lostRace) check(t *testing.T, got task.Task, err error) {
	t.Helper()
	if r.want == "" {
		mustBe(t, err, task.ErrConcurrentModification)
	} else if err != nil || got.State != r.want {
		t.Errorf("%s, %v; want %s", got.State, err, r.want)
	}
}

// TestEventAfterConcurrentEvent checks the effect of an event after a concurrent event (F-007).
func TestEventAfterConcurrentEvent(t *testing.T) {
	quorum := lifecycle.Submit{By: "gate", Quorum: 2, Deadline: epoch.Add(deadline)}
	tests := []lostRace{
		{"approve after a contact", inState(t, task.InputRequired), lifecycle.Contact{}, approve, task.Approved},
		{"second of two approvals", apply(t, newTask(t), quorum), lifecycle.Approve{By: "eve"}, approve, task.Approved},
		{"cancel after an approval", inState(t, task.InputRequired), approve, lifecycle.Cancel{By: "ann"}, task.Cancelled},
		{"a contact after an approval", inState(t, task.InputRequired), approve, lifecycle.Contact{}, task.Approved},
		{"policy drift after a claim", inState(t, task.Approved), claim, fail, ""},
		{"complete after a cancellation", inState(t, task.Executing), lifecycle.Cancel{By: "ann"}, complete, ""},
		{"claim after a claim", inState(t, task.Approved), claim, lifecycle.Claim{By: "gate-2", LeaseUntil: epoch.Add(lease)}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			if err := s.Create(t.Context(), tt.from, task.Limits{}); err != nil {
				t.Fatal(err)
			}
			got, err := lifecycle.Advance(t.Context(), &racing{Store: s, first: tt.first}, ref, tt.second, epoch)
			tt.check(t, got, err)
		})
		t.Run(tt.name+" with AdvanceFrom", func(t *testing.T) {
			s := newStore(t)
			if err := s.Create(t.Context(), tt.from, task.Limits{}); err != nil {
				t.Fatal(err)
			}
			if _, err := lifecycle.Advance(t.Context(), s, ref, tt.first, epoch); err != nil {
				t.Fatal(err)
			}
			got, err := lifecycle.Updater{Store: s}.AdvanceFrom(t.Context(), tt.from, tt.second, epoch)
			tt.check(t, got, err)
		})
	}
}

// AdvanceFrom does not read a task that has not changed since the caller read it.
func TestAdvanceFromReadsNothing(t *testing.T) {
	s := newStore(t)
	held := store(t, s, task.InputRequired)
	got, err := lifecycle.Updater{Store: unread{s}}.AdvanceFrom(t.Context(), held, approve, epoch)
	if err != nil || got.State != task.Approved {
		t.Fatalf("%s, %v", got.State, err)
	}
	stored, err := s.Get(t.Context(), ref)
	if diff := cmp.Diff(got, stored); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

// unread is a store whose Get fails.
type unread struct{ task.Store }

func (unread) Get(_ context.Context, ref task.Ref) (task.Task, error) {
	return task.Task{}, ref.NotFound(action.Get)
}

// TestOneOfAThousandWins lets a thousand executors and approvers attempt each transition of
// one task at the same time.
func TestOneOfAThousandWins(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Working)
	for _, step := range []func(who string) lifecycle.Event{
		func(who string) lifecycle.Event { return lifecycle.Submit{By: who, Deadline: epoch.Add(deadline)} },
		func(who string) lifecycle.Event { return lifecycle.Approve{By: who} },
		func(who string) lifecycle.Event { return lifecycle.Claim{By: who, LeaseUntil: epoch.Add(lease)} },
		func(who string) lifecycle.Event {
			return lifecycle.Fail{By: who, Failure: task.Failure{Stage: lifecycle.StageUpstreamError}}
		},
	} {
		const contenders = 1000
		errs := make(chan error, contenders)
		start := make(chan struct{})
		for i := range contenders {
			go func() {
				<-start
				_, err := lifecycle.Advance(t.Context(), s, ref, step(fmt.Sprint("contender ", i)), epoch)
				errs <- err
			}()
		}
		close(start)
		won := 0
		for range contenders {
			switch err := <-errs; {
			case err == nil:
				won++
			case errors.Is(err, task.ErrConcurrentModification), errors.Is(err, task.ErrInvalidTransition), errors.Is(err, task.ErrAlreadyTerminal):
			default:
				t.Error(err)
			}
		}
		if won != 1 {
			t.Errorf("%d of %d won %s", won, contenders, step("x").Action())
		}
	}
	if got, err := s.Get(t.Context(), ref); err != nil || len(got.Transitions) != 4 || got.Version != 5 {
		t.Errorf("%d transitions in version %d, %v; want 4 in 5", len(got.Transitions), got.Version, err)
	}
}

// TestCompleteWithResult covers STOR-02: state and result change together.
func TestCompleteWithResult(t *testing.T) {
	for kind, want := range map[task.ResultKind]task.State{
		task.ResultOK: task.Completed, task.ResultToolError: task.Completed, task.ResultRPCError: task.Failed,
	} {
		s := newStore(t)
		store(t, s, task.Executing)
		result := task.Result{Kind: kind, Inline: []byte(`{"code":1}`), Size: 10}
		got, err := lifecycle.CompleteWithResult(t.Context(), s, ref, lifecycle.Complete{By: "gate-1", Result: result}, epoch)
		if err != nil || got.State != want {
			t.Errorf("%s: %s, %v; want %s", kind, got.State, err, want)
		}
		if diff := cmp.Diff(&result, got.Result); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if ran := got.Failure; want == task.Failed && (ran == nil || ran.Ran != task.RanYes || ran.Stage != lifecycle.StageUpstreamError) {
			t.Errorf("failure %+v", ran)
		}
	}
}

// TestSettleOverdue covers F-008 of GOV-001, and of GOV-004.
func TestSettleOverdue(t *testing.T) {
	s := newStore(t)
	for i, state := range task.States() {
		made := inState(t, state)
		made.ID, made.Owner = task.ID(fmt.Sprint("tg_", state)), fmt.Sprint("owner", i)
		if err := s.Create(t.Context(), made, task.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		after time.Duration
		want  map[task.ID]task.State
	}{
		{lease, map[task.ID]task.State{}},
		{lease + time.Second, map[task.ID]task.State{"tg_executing": task.Failed}},
		{deadline + time.Second, map[task.ID]task.State{"tg_input_required": task.Expired}},
		{ttl, map[task.ID]task.State{}},
		{ttl + time.Second, map[task.ID]task.State{"tg_working": task.Expired, "tg_approved": task.Expired}},
		{2 * ttl, map[task.ID]task.State{}},
	} {
		settled, err := lifecycle.Updater{Store: s}.SettleOverdue(t.Context(), "gate", epoch.Add(step.after))
		got := make(map[task.ID]task.State)
		for _, x := range settled {
			got[x.ID] = x.State
		}
		if diff := cmp.Diff(step.want, got); err != nil || diff != "" {
			t.Errorf("after %v: %v (-want +got):\n%s", step.after, err, diff)
		}
	}
}

// TestRunWithLeaseExpiresAtTTL checks that a run with a valid lease expires at the end of the
// task's TTL, rather than as a lost executor.
func TestRunWithLeaseExpiresAtTTL(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	advance(t, s, lifecycle.RenewLease{By: "gate-1", Until: epoch.Add(2 * ttl)}, epoch)
	settled, err := lifecycle.Updater{Store: s}.SettleOverdue(t.Context(), "gate", epoch.Add(ttl+time.Second))
	if err != nil || len(settled) != 1 || settled[0].State != task.Expired || settled[0].Failure.Ran != task.RanUnknown {
		t.Errorf("settled %+v, %v", settled, err)
	}
}

// TestHousekeepingReturnsStoreErrors checks that housekeeping returns errors of the store, rather than
// assuming that another replica has settled the task.
func TestHousekeepingReturnsStoreErrors(t *testing.T) {
	s := newStore(t)
	store(t, s, task.InputRequired)
	broken := errors.New("disk full")
	for name, work := range map[string]func(task.Store) error{
		"settle": func(s task.Store) error {
			_, err := lifecycle.Updater{Store: s}.SettleOverdue(t.Context(), "gate", epoch.Add(2*ttl))
			return err
		},
		"fail pending": func(s task.Store) error {
			_, err := lifecycle.Updater{Store: s}.FailPending(t.Context(), "gate", epoch)
			return err
		},
	} {
		if err := work(readOnly{s, broken}); !errors.Is(err, broken) {
			t.Errorf("%s: err = %v; want %v", name, err, broken)
		}
		s := newStore(t)
		s.Close()
		if err := work(s); !errors.Is(err, task.ErrClosed) {
			t.Errorf("%s: err = %v; want %v", name, err, task.ErrClosed)
		}
	}
}

// TestHousekeepingSkipsUnreadableTasks checks that housekeeping ends the other tasks when some tasks cannot
// be read.
func TestHousekeepingSkipsUnreadableTasks(t *testing.T) {
	settled, err := lifecycle.Updater{Store: damagedIn(t)}.SettleOverdue(t.Context(), "gate", epoch.Add(2*ttl))
	if len(settled) != 1 || !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("SettleOverdue = %d tasks, %v; want 1 and an error for the unreadable tasks", len(settled), err)
	}
	ended, err := lifecycle.Updater{Store: damagedIn(t)}.FailPending(t.Context(), "gate", epoch)
	if ended != 1 || !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("FailPending = %d, %v; want 1 and an error for the unreadable tasks", ended, err)
	}
}

// damagedIn returns a store with one readable task and some unreadable ones.
func damagedIn(t *testing.T) task.Store {
	s := newStore(t)
	store(t, s, task.InputRequired)
	return damaged{s}
}

// damaged is a store with some unreadable tasks.
type damaged struct{ task.Store }

func (d damaged) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := d.Store.List(ctx, q)
	return page, errors.Join(err, task.ErrUnreadable)
}

func (d damaged) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	found, err := d.Store.Overdue(ctx, at, limit)
	return found, errors.Join(err, task.ErrUnreadable)
}

// readOnly is a store that refuses writes.
type readOnly struct {
	task.Store
	err error
}

func (r readOnly) Swap(context.Context, task.Task, ...task.Note) error { return r.err }

// AdvanceAll makes one version of several events, and reads the task again if the caller's copy
// is outdated.
func TestAdvanceAll(t *testing.T) {
	s := newStore(t)
	old := store(t, s, task.Executing)
	by := old.Execution.Executor
	current := advance(t, s, lifecycle.Describe{By: by, Message: "newer"}, old.UpdatedAt)
	events := []lifecycle.Event{
		lifecycle.SetVariables{Side: task.ServerSide, Values: task.Variables{"server.a": []byte("1")}},
		lifecycle.Describe{By: "other", Message: "refused"},
		lifecycle.SetVariables{Side: task.ServerSide, Values: task.Variables{"server.b": []byte("2")}},
	}
	after, errs := lifecycle.AdvanceAll(t.Context(), s, old, events, old.UpdatedAt)
	if errs[0] != nil || !errors.Is(errs[1], lifecycle.ErrNotExecutor) || errs[2] != nil {
		t.Errorf("errors %v", errs)
	}
	if after.Version != current.Version+1 || len(after.Variables) != 2 || after.Execution.Message != "newer" {
		t.Errorf("version %d after %d: %s, %q", after.Version, current.Version, after.Variables, after.Execution.Message)
	}
	if stored, err := s.Get(t.Context(), ref); err != nil || stored.Version != after.Version {
		t.Errorf("stored version %d, %v", stored.Version, err)
	}
	same, errs := lifecycle.AdvanceAll(t.Context(), s, after, events[1:2], old.UpdatedAt)
	if errs[0] == nil || same.Version != after.Version {
		t.Errorf("a refused event makes version %d of %d, %v", same.Version, after.Version, errs)
	}
}
