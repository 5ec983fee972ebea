package channel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A chat is a channel that keeps what it was sent.
type chat struct {
	mu    sync.Mutex
	got   []string // stages, with the reference of updates
	times []time.Time
	fail  func(n int) error // of attempt n, from 0; nil means none fails
	tries int

	address string
}

func (c *chat) take(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, time.Now())
	c.tries++
	if c.fail != nil {
		if err := c.fail(c.tries - 1); err != nil {
			return err
		}
	}
	c.got = append(c.got, text)
	return nil
}

func (c *chat) Ask(_ context.Context, q channel.Question) (string, error) {
	if err := c.take(string(q.Stage)); err != nil {
		return "", err
	}
	return "ref of " + string(q.Approval.ID), nil
}

func (c *chat) Update(_ context.Context, ref string, q channel.Question) error {
	if ref == "" {
		return c.take(string(q.Stage) + " without a reference")
	}
	if ref != "ref of "+string(q.Approval.ID) {
		return fmt.Errorf("wrong reference %q", ref)
	}
	return c.take(string(q.Stage))
}

func (c *chat) Remind(_ context.Context, ref string, q channel.Question) error {
	if ref != "ref of "+string(q.Approval.ID) || q.Stage != channel.Pending {
		return fmt.Errorf("reminder %q of %s", ref, q.Stage)
	}
	text := fmt.Sprintf("reminder %d", q.Reminder)
	if q.NewlyEscalated {
		text += " escalated to " + q.Escalated
	}
	return c.take(text)
}

func (c *chat) Address() string { return c.address }

func (c *chat) sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// counted is for those who count nothing.
type counted struct{}

func (counted) ChannelSent(string, error)    {}
func (counted) ChannelWaiting(string, int)   {}
func (counted) ChannelListens(string, error) {}

// A fixture is a desk with an outbox.
type fixture struct {
	t     *testing.T
	store task.GateStore
	desk  *approval.Desk
	chat  *chat
	plan  channel.Plan // without its channels

	between channel.Store // what outboxes use in the place of the store, if there is any
	log     slog.Handler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, store: memstore.New(memstore.Options{}), chat: &chat{}, log: slog.DiscardHandler}
	t.Cleanup(func() { f.store.Close() })
	var err error
	f.desk, err = approval.New(approval.Config{
		Store:    f.store,
		Judge:    func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Deny} },
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{Timeout: time.Hour}, true },
		Settings: approval.Settings{MaxTTL: 48 * time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) outbox(name string) *channel.Outbox {
	return f.outboxTo(name, f.chat, func(task.Task) bool { return true })
}

// outboxTo returns an outbox of a gate that asks about its tasks on a channel.
func (f *fixture) outboxTo(name string, to channel.Channel, mine func(task.Task) bool) *channel.Outbox {
	return f.outboxWith(name, map[string]channel.Channel{"chat": to}, mine)
}

// outboxWith returns an outbox of a gate with several channels.
func (f *fixture) outboxWith(name string, channels map[string]channel.Channel, mine func(task.Task) bool) *channel.Outbox {
	var store channel.Store = f.store
	if f.between != nil {
		store = f.between
	}
	return channel.New(channel.Config{
		Store: store, Cases: f.desk.Cases(), Channels: channels,
		Plan: func(t task.Task) channel.Plan {
			if !mine(t) {
				return channel.Plan{}
			}
			p := f.plan
			p.Channels = []string{"inbox", t.Workflow}
			return p
		},
		Page: func(id task.ID) string { return "https://gate/approvals/" + string(id) },
		Name: name, Metrics: counted{}, Now: time.Now, Log: slog.New(f.log),
	})
}

// run runs an outbox until the test ends or the function is called.
func (f *fixture) run(o *channel.Outbox) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { o.Run(ctx); close(done) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	f.t.Cleanup(stop)
	return stop
}

// hold holds a call for a workflow, which is the name of its channel.
func (f *fixture) hold(workflow string, n int) task.ID {
	f.t.Helper()
	held, _, err := f.desk.Hold(f.t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: workflow},
		Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"n":%d}}}`, n),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return held.ID
}

func (f *fixture) reject(id task.ID) {
	f.t.Helper()
	if _, err := f.desk.Decide(f.t.Context(), id, approval.Approver{Name: "bob"}, approval.Ruling{Decision: approval.Reject}); err != nil {
		f.t.Fatal(err)
	}
}

// A channel is asked about the calls of its workflows, once, and told how they end.
func TestAskedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		stop := f.run(f.outbox("a"))
		id := f.hold("chat", 1)
		f.hold("other", 2)
		time.Sleep(time.Minute)
		f.reject(id)
		time.Sleep(time.Minute)
		stop()
		if diff := cmp.Diff([]string{"pending", "rejected"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// Several replicas send each message once.
func TestReplicasSendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, name := range []string{"a", "b", "c"} {
			f.run(f.outbox(name))
		}
		const calls = 20
		var ids []task.ID
		for n := range calls {
			ids = append(ids, f.hold("chat", n))
		}
		time.Sleep(time.Minute)
		for _, id := range ids {
			f.reject(id)
		}
		time.Sleep(time.Minute)
		counts := map[string]int{}
		for _, stage := range f.chat.sent() {
			counts[stage]++
		}
		if counts["pending"] != calls || counts["rejected"] != calls {
			t.Errorf("sent %v; want %d each", counts, calls)
		}
	})
}

// A message that fails is sent again after growing pauses, and not while the
// channel asks to be left alone. Operators see that it waits.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.chat.fail = func(n int) error {
			switch {
			case n == 3:
				return &channel.RetryError{After: time.Minute, Err: errors.New("too many")}
			case n < 5:
				return errors.New("down")
			default:
				return nil
			}
		}
		o := f.outbox("a")
		f.run(o)
		f.hold("chat", 1)
		time.Sleep(10 * time.Second)
		if s := o.Statuses(); len(s) != 1 || s[0].Waiting != 1 || s[0].Error != "too many" || s[0].Since.IsZero() {
			t.Errorf("status %+v", s)
		}
		time.Sleep(10 * time.Minute)
		if diff := cmp.Diff([]string{"pending"}, f.chat.sent()); diff != "" {
			t.Fatal(diff)
		}
		for i, least := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, time.Minute, 16 * time.Second} {
			if pause := f.chat.times[i+1].Sub(f.chat.times[i]); pause < least || pause > 2*least+time.Second {
				t.Errorf("pause %d: %s; want about %s", i, pause, least)
			}
		}
		if s := o.Statuses(); s[0].Waiting != 0 || s[0].Error != "" {
			t.Errorf("status %+v", s)
		}
	})
}

// A call that is decided before its channel could be asked is not asked about. One
// that ended while the channel was down comes to its end there, even if the store
// has deleted the task meanwhile.
func TestEndedWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var down bool
		f.chat.fail = func(int) error {
			if down {
				return errors.New("down")
			}
			return nil
		}
		f.run(f.outbox("a"))
		asked := f.hold("chat", 1)
		time.Sleep(time.Second)
		f.chat.mu.Lock()
		down = true
		f.chat.mu.Unlock()
		f.reject(f.hold("chat", 2))
		f.reject(asked)
		time.Sleep(time.Hour)
		if n, err := f.store.Sweep(t.Context(), time.Now().Add(1000*time.Hour), 10); n != 2 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		f.chat.mu.Lock()
		down = false
		f.chat.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if diff := cmp.Diff([]string{"pending", "rejected"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// A replica that dies while it sends a message does not keep it from being sent.
func TestReplicaDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.hold("chat", 1)
		dead := fmt.Appendf(nil, `{"claim":"dead","until":%q}`, time.Now().Add(40*time.Second).UTC().Format(time.RFC3339Nano))
		if err := f.store.PutRecord(t.Context(), task.Record{Name: "channel/chat/" + string(id), Version: 1, Value: dead}); err != nil {
			t.Fatal(err)
		}
		f.run(f.outbox("a"))
		time.Sleep(39 * time.Second)
		if got := f.chat.sent(); len(got) > 0 {
			t.Errorf("sent %v while another replica may be sending", got)
		}
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff([]string{"pending"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// Gates with other configurations share a store, and each has a channel of the same
// name: each asks about its own calls, and leaves those of the other alone.
func TestOtherGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		others := &chat{address: "another place"}
		ids := map[task.ID]bool{}
		var mu sync.Mutex
		mine := func(own bool) func(task.Task) bool {
			return func(t task.Task) bool { mu.Lock(); defer mu.Unlock(); return ids[t.ID] == own }
		}
		f.run(f.outboxTo("a", f.chat, mine(true)))
		f.run(f.outboxTo("b", others, mine(false)))
		mu.Lock()
		one, two := f.hold("chat", 1), f.hold("chat", 2)
		ids[one] = true
		mu.Unlock()
		time.Sleep(time.Minute)
		f.reject(one)
		f.reject(two)
		time.Sleep(time.Minute)
		for who, c := range map[string]*chat{"this gate": f.chat, "the other gate": others} {
			if diff := cmp.Diff([]string{"pending", "rejected"}, c.sent()); diff != "" {
				t.Errorf("%s: %s", who, diff)
			}
		}
	})
}

// The gate that asked is gone for good: another one with the same channel says how the
// question ended.
func TestGateIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		stop := f.run(f.outbox("a"))
		id := f.hold("chat", 1)
		time.Sleep(time.Minute)
		stop()
		f.run(f.outboxTo("b", f.chat, func(task.Task) bool { return false }))
		f.reject(id)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"pending", "rejected"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// A channel that leads to another place than before is asked there about what is
// pending, and told there how it ends.
func TestAddressChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		stop := f.run(f.outbox("a"))
		id := f.hold("chat", 1)
		time.Sleep(time.Minute)
		stop()
		moved := &chat{address: "another place"}
		f.run(f.outboxTo("a", moved, func(task.Task) bool { return true }))
		time.Sleep(time.Minute)
		f.reject(id)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"pending", "rejected"}, moved.sent()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"pending"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
		f.run(f.outbox("b")) // the channel of this gate leads to the old place
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"pending", "rejected"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// While replicas are given another address for a channel, some have the old one and some
// have the new one: the question is asked once at each, and told its end there.
func TestAddressesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.plan.Remind = []float64{0.5}
		moved := &chat{address: "another place"}
		f.run(f.outbox("old"))
		f.run(f.outboxTo("new", moved, func(task.Task) bool { return true }))
		id := f.hold("chat", 1)
		time.Sleep(40 * time.Minute)
		f.reject(id)
		time.Sleep(time.Minute)
		for where, c := range map[string]*chat{"the old place": f.chat, "the new place": moved} {
			if diff := cmp.Diff([]string{"pending", "reminder 1", "rejected"}, c.sent()); diff != "" {
				t.Errorf("%s: %s", where, diff)
			}
		}
	})
}

// A brokenStore cannot keep records.
type brokenStore struct {
	channel.Store

	why error
}

func (s *brokenStore) PutRecord(context.Context, task.Record) error { return s.why }

// What keeps a message from being sent is logged, once. A store that is away is not
// logged here.
func TestTroubleIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		why  error
		want int
	}{
		"disk full":      {errors.New("disk full"), 1},
		"store is away":  {&task.Error{Kind: task.KindUnavailable}, 0},
		"others send it": {&task.Error{Kind: task.KindConcurrentModification}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				var out bytes.Buffer
				f.log = slog.NewTextHandler(&out, nil)
				f.between = &brokenStore{Store: f.store, why: c.why}
				stop := f.run(f.outbox("a"))
				f.hold("chat", 1)
				time.Sleep(10 * time.Minute)
				stop()
				if n := strings.Count(out.String(), "disk full"); n != c.want || c.want == 0 && out.Len() > 0 {
					t.Errorf("the log:\n%s", out.String())
				}
			})
		})
	}
}

// An outbox that is started tries at once what failed before: somebody may have put
// right what was wrong.
func TestStartTriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.chat.fail = func(n int) error {
			if n < 8 {
				return errors.New("token revoked")
			}
			return nil
		}
		stop := f.run(f.outbox("a"))
		f.hold("chat", 1)
		time.Sleep(200 * time.Second) // eight attempts, and the next is minutes away
		stop()
		f.run(f.outbox("a"))
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"pending"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// A deaf channel sends, and nobody's answers arrive.
type deaf struct{ chat }

func (d *deaf) Run(ctx context.Context, report func(error)) {
	report(errors.New("token revoked"))
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Minute):
	}
	report(nil)
	<-ctx.Done()
}

// Operators see that the answers on a channel do not arrive, and that they do again.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		o := f.outboxTo("a", &deaf{}, func(task.Task) bool { return true })
		f.run(o)
		time.Sleep(31 * time.Second)
		if s := o.Statuses(); len(s) != 1 || s[0].DecisionsError != "token revoked" || s[0].Channel != "chat" {
			t.Errorf("status %+v", s)
		}
		time.Sleep(time.Minute)
		if s := o.Statuses(); s[0].DecisionsError != "" {
			t.Errorf("status %+v", s)
		}
	})
}

// A busyChannel is still doing something when it has returned.
type busyChannel struct {
	chat

	waiting, done chan struct{}
}

func (b *busyChannel) Wait() {
	close(b.waiting)
	<-b.done
}

// An outbox ends when its channels have ended what they began.
func TestWaitsForChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := &busyChannel{waiting: make(chan struct{}), done: make(chan struct{})}
		o := f.outboxTo("a", c, func(task.Task) bool { return true })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { o.Run(ctx); close(ended) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-c.waiting:
		default:
			t.Error("it does not wait for the channel")
		}
		select {
		case <-ended:
			t.Error("it has ended before the channel")
		default:
		}
		close(c.done)
		<-ended
	})
}
