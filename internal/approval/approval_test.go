package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice = approval.Approver{Name: "alice"}
	bob   = approval.Approver{Name: "bob", Groups: []string{"oncall"}}
	carol = approval.Approver{Name: "carol"}
)

// A fixture is a service with its dependencies, and a record of the steps that it took.
type fixture struct {
	*approval.Service
	views *review.Viewer

	config   approval.Config
	store    gatestore.Store
	upstream *fakeUpstream

	mu        sync.Mutex
	policy    func(policy.Call) policy.Verdict
	workflows map[string]approval.Workflow
	steps     []approval.Event
}

// open returns a fixture with the workflows ops and finance, and a policy that holds every call
// for ops. Change, if not nil, adjusts the configuration.
func open(t testing.TB, change func(*approval.Config)) *fixture {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	return branch(t, store, change)
}

// branch returns another fixture, a replica, on the same store.
func branch(t testing.TB, store gatestore.Store, change func(*approval.Config)) *fixture {
	t.Helper()
	o := &fixture{
		store: store, upstream: newFakeUpstream(),
		policy: func(policy.Call) policy.Verdict { return held },
		workflows: map[string]approval.Workflow{
			"admins":  {Approvers: []string{"role:admin"}},
			"ops":     {Approvers: []string{"alice", "carol", "requester", "group:oncall"}, Timeout: 15 * time.Minute, Redact: []string{"arguments.password"}},
			"finance": {Approvers: []string{"alice"}, Quorum: 2},
			"two":     {Quorum: 2},
			"self":    {SelfApproval: true},
			"brief":   {Validity: time.Minute},
		},
	}
	c := approval.Config{
		Store: store,
		Judge: func(c policy.Call) policy.Verdict { o.mu.Lock(); defer o.mu.Unlock(); return o.policy(c) },
		Observe: func(_ context.Context, e approval.Event) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.steps = append(o.steps, e)
		},
		Workflow: func(name string) (approval.Workflow, bool) {
			o.mu.Lock()
			defer o.mu.Unlock()
			w, ok := o.workflows[name]
			return w, ok
		},
	}
	if change != nil {
		change(&c)
	}
	d, err := approval.New(c)
	if err != nil {
		t.Fatal(err)
	}
	o.Service, o.views, o.config = d, d.Viewer(), c
	return o
}

var held = policy.Verdict{Action: policy.Approve, Workflow: "ops", Reason: "rules[1] delete_*", Snapshot: "s1"}

// rule changes the policy.
func (o *fixture) rule(v policy.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.policy = func(policy.Call) policy.Verdict { return v }
}

func (o *fixture) setWorkflow(name string, w approval.Workflow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.workflows[name] = w
}

// count returns how often a step was reported.
func (o *fixture) count(s approval.Step) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, e := range o.steps {
		if e.Step == s {
			n++
		}
	}
	return n
}

// A fakeUpstream records the calls that reach it.
type fakeUpstream struct {
	send approval.Sender // records each call, which succeeds

	mu   sync.Mutex
	runs []string
}

func (l *fakeUpstream) entries() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.runs...)
}

func (l *fakeUpstream) record(message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, string(message))
}

// newFakeUpstream returns an upstream whose calls all succeed.
func newFakeUpstream() *fakeUpstream {
	l := &fakeUpstream{}
	l.send = plain(func(_ context.Context, message []byte) (approval.Outcome, error) {
		l.record(message)
		return answer(`{"content":[]}`), nil
	})
	return l
}

// A plain sender makes calls. The upstream makes no tasks of them.
type plain func(ctx context.Context, message []byte) (approval.Outcome, error)

var errNoTasks = errors.New("this upstream has no tasks")

func (p plain) Call(ctx context.Context, t task.Task, _ approval.UpstreamRequest) (approval.Outcome, error) {
	return p(ctx, []byte(t.Call.Message))
}

func (p plain) Poll(context.Context, task.Task) (approval.Report, error) {
	return approval.Report{}, errNoTasks
}

func (p plain) Fetch(context.Context, task.Task) (approval.Outcome, error) {
	return approval.Outcome{}, errNoTasks
}

func (p plain) Answer(context.Context, task.Task, json.RawMessage) error { return errNoTasks }

func (p plain) Cancel(context.Context, task.Task) error { return nil }

func answer(text string) approval.Outcome { return approval.Outcome{Body: strings.NewReader(text)} }

// slow returns a sender whose call takes the given time unless it is interrupted.
func (l *fakeUpstream) slow(long time.Duration) approval.Sender {
	return plain(func(ctx context.Context, message []byte) (approval.Outcome, error) {
		l.record(message)
		select {
		case <-time.After(long):
			return answer(`{"content":["late"]}`), nil
		case <-ctx.Done():
			return approval.Outcome{}, ctx.Err()
		}
	})
}

func message(tool, args string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)
}

// call returns a request of owner to delete a file.
func call(owner, file string) approval.Call {
	return approval.Call{
		Owner: owner, Principal: policy.Principal{ID: owner}, Upstream: "files", Verdict: held,
		Message: message("delete_file", fmt.Sprintf(`{"path":%q}`, file)),
	}
}

// hold makes a task of c, and fails the test unless the task is new.
func (o *fixture) hold(t testing.TB, c approval.Call) task.Task {
	t.Helper()
	held, attached, err := o.Hold(t.Context(), c)
	if err != nil || attached {
		t.Fatalf("Hold = %v, attached %t, %v; want a new task", held.ID, attached, err)
	}
	return held
}

func (o *fixture) approve(t testing.TB, id task.ID) task.Task {
	t.Helper()
	after, err := o.decide(t.Context(), id, alice, approval.Approve, "fine")
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// now returns the stored task.
func (o *fixture) now(t testing.TB, id task.ID) task.Task {
	t.Helper()
	got, err := o.store.Get(t.Context(), task.AnyOwner().Ref(id))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mine(t task.Task) task.Ref { return task.OwnedBy(t.Owner).Ref(t.ID) }

func mustBe(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

func mustState(t testing.TB, got task.Task, want task.State) {
	t.Helper()
	if got.State != want {
		t.Fatalf("state = %s (%+v); want %s", got.State, got.Failure, want)
	}
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// result returns the answer to an ended task, and records that it was delivered.
func (o *fixture) result(t testing.TB, ref task.Ref) (string, task.Task, error) {
	t.Helper()
	got, err := o.Get(t.Context(), ref)
	if err != nil {
		return "", got, err
	}
	var b strings.Builder
	if _, err := io.Copy(&b, o.Open(t.Context(), got)); err != nil {
		return b.String(), got, err
	}
	return b.String(), got, o.Delivered(t.Context(), got)
}

// A waiter is a request that waits for a task.
type waiter struct {
	task task.Task
	err  error
	done chan struct{}
}

func (o *fixture) wait(ctx context.Context, ref task.Ref, send approval.Sender) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.task, w.err = o.Wait(ctx, ref, send)
	}()
	return w
}

// runHousekeeping runs the service's housekeeping until stop is called.
func (o *fixture) runHousekeeping(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

var _ io.Reader = brokenReader{}

// decide views a call and then decides about it, as an approver does.
func (o *fixture) decide(ctx context.Context, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if what == approval.Approve {
		// The store does not end overdue tasks; the service would.
		held, err := o.store.Get(ctx, task.AnyOwner().Ref(id))
		if err == nil && held.State == task.InputRequired && time.Now().Before(held.Approval.Deadline) {
			shown, _ := o.views.ShowAll(ctx, id)
			r.Shown = shown.ShownDigest
		}
	}
	return o.Decide(ctx, id, who, r)
}
