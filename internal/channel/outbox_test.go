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
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A chat is a channel that records its messages.
type chat struct {
	mu    sync.Mutex
	got   []string // the stage of each message, with the reference for updates
	times []time.Time
	fail  func(n int) error // the error of attempt n, from 0; nil means that all succeed
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

// noMetrics implements [channel.Metrics] and counts nothing.
type noMetrics struct{}

func (noMetrics) ChannelSent(string, error)     {}
func (noMetrics) ChannelWaiting(string, int)    {}
func (noMetrics) ChannelReceives(string, error) {}

// A fixture is an approval service with outboxes.
type fixture struct {
	t         *testing.T
	store     gatestore.Store
	approvals *approval.Service
	chat      *chat
	plan      policy.Workflow // the workflow, without its channels

	between channel.Store // replaces the store for outboxes, unless it is nil
	log     slog.Handler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, store: memstore.New(memstore.Options{}), chat: &chat{}, log: slog.DiscardHandler}
	t.Cleanup(func() { f.store.Close() })
	var err error
	f.approvals, err = approval.New(approval.Config{
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

// outboxTo returns the outbox of a gate with one channel, for the tasks of that gate.
func (f *fixture) outboxTo(name string, to channel.Channel, mine func(task.Task) bool) *channel.Outbox {
	return f.outboxWith(name, map[string]channel.Channel{"chat": to}, mine)
}

// outboxWith returns the outbox of a gate with several channels.
func (f *fixture) outboxWith(name string, channels map[string]channel.Channel, mine func(task.Task) bool) *channel.Outbox {
	var store channel.Store = f.store
	if f.between != nil {
		store = f.between
	}
	return channel.New(channel.Config{
		Store: store, Cases: f.approvals.Viewer(), Channels: channels,
		Workflow: func(t task.Task) policy.Workflow {
			if !mine(t) {
				return policy.Workflow{}
			}
			p := f.plan
			p.Channels = []string{"inbox", t.Workflow}
			return p
		},
		Page: func(id task.ID) string { return "https://gate/approvals/" + string(id) },
		Name: name, Metrics: noMetrics{}, Now: time.Now, Log: slog.New(f.log),
	})
}

// run runs an outbox until the test ends or stop is called.
func (f *fixture) run(o *channel.Outbox) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { o.Run(ctx); close(done) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	f.t.Cleanup(stop)
	return stop
}

// hold holds a call for a workflow. The name of the workflow is also the name of its channel.
func (f *fixture) hold(workflow string, n int) task.ID {
	f.t.Helper()
	held, _, err := f.approvals.Hold(f.t.Context(), approval.Call{
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
	if _, err := f.approvals.Decide(f.t.Context(), id, approval.Approver{Name: "bob"}, approval.Ruling{Decision: approval.Reject}); err != nil {
		f.t.Fatal(err)
	}
}

// TestQuestionAndOutcomeAreSent checks that a channel gets one question about each call of its
// workflows, and the outcome.
func TestQuestionAndOutcomeAreSent(t *testing.T) {
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

// TestReplicasSendOnce checks that several replicas send each message once.
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

// TestFailedMessageIsRetried checks that a failed message is retried after increasing pauses,
// and not before the time of a RetryError. The status shows the waiting message.
func TestFailedMessageIsRetried(t *testing.T) {
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

// TestOutcomeSentAfterOutage checks that a call that was decided before the question could be
// sent causes no message. If a call ends while the channel is down, the outcome is sent
// afterwards, even if the task was deleted meanwhile.
func TestOutcomeSentAfterOutage(t *testing.T) {
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

// TestDeadReplicaDoesNotBlockMessage checks that another replica sends a message if the first
// one dies while sending it.
func TestDeadReplicaDoesNotBlockMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.hold("chat", 1)
		dead := fmt.Appendf(nil, `{"claim":"dead","until":%q}`, time.Now().Add(40*time.Second).UTC().Format(time.RFC3339Nano))
		if err := f.store.PutRecord(t.Context(), gatestore.Record{Name: "channel/chat/" + string(id), Version: 1, Value: dead}); err != nil {
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

// TestGatesSendOnlyOwnQuestions checks gates with different configurations that share a store
// and have a channel of the same name. Each gate sends questions about its own calls only.
func TestGatesSendOnlyOwnQuestions(t *testing.T) {
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

// TestOtherGateSendsOutcome checks that another gate with the same channel sends the outcome if
// the gate that sent the question is gone.
func TestOtherGateSendsOutcome(t *testing.T) {
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

// TestNewAddressIsAskedAgain checks that pending questions and their outcomes are sent to the
// new address if the address of a channel changes.
func TestNewAddressIsAskedAgain(t *testing.T) {
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
		f.run(f.outbox("b")) // the channel of this gate has the old address
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"pending", "rejected"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestEachAddressIsAskedOnce checks a rolling change of the address of a channel. While replicas
// have different addresses, each address gets the question and the outcome once.
func TestEachAddressIsAskedOnce(t *testing.T) {
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

// A brokenStore fails to store records.
type brokenStore struct {
	channel.Store

	why error
}

func (s *brokenStore) PutRecord(context.Context, gatestore.Record) error { return s.why }

// TestDeliveryErrorsAreLoggedOnce checks that an error that prevents a message is logged once.
// The outbox does not log that the store is unavailable.
func TestDeliveryErrorsAreLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		why  error
		want int
	}{
		"disk full":      {errors.New("disk full"), 1},
		"store is away":  {&task.Error{Kind: task.ErrUnavailable}, 0},
		"others send it": {&task.Error{Kind: task.ErrConcurrentModification}, 0},
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

// TestStartRetriesAtOnce checks that an outbox retries failed messages as soon as it starts,
// since an operator may have fixed the error.
func TestStartRetriesAtOnce(t *testing.T) {
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
		time.Sleep(200 * time.Second) // eight attempts; the next one is minutes later
		stop()
		f.run(f.outbox("a"))
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"pending"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// A sendOnlyChannel sends messages, but receives no answers.
type sendOnlyChannel struct{ chat }

func (d *sendOnlyChannel) Run(ctx context.Context, report func(error)) {
	report(errors.New("token revoked"))
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Minute):
	}
	report(nil)
	<-ctx.Done()
}

// TestMissingAnswersShownInStatus checks that the status shows that answers do not arrive, and
// that they arrive again.
func TestMissingAnswersShownInStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		o := f.outboxTo("a", &sendOnlyChannel{}, func(task.Task) bool { return true })
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

// A busyChannel is slow to close.
type busyChannel struct {
	chat

	waiting, done chan struct{}
}

func (b *busyChannel) Close() {
	close(b.waiting)
	<-b.done
}

// TestOutboxClosesChannels checks that Run waits until the channels are closed.
func TestOutboxClosesChannels(t *testing.T) {
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
			t.Error("Close was not called")
		}
		select {
		case <-ended:
			t.Error("the outbox ended before the channel was closed")
		default:
		}
		close(c.done)
		<-ended
	})
}

// An endingStore stores nothing for a context that has ended, like a database.
type endingStore struct{ gatestore.Store }

func (s endingStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.PutRecord(ctx, r)
}

// TestSentMessageIsStored checks that a message that was sent while the gate stops is not sent
// again, and that its outcome does not wait for the claim to end.
func TestSentMessageIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.between = endingStore{f.store}
		var stop func()
		f.chat.fail = func(int) error {
			f.chat.fail = nil
			go stop()
			synctest.Wait()
			return nil
		}
		stop = f.run(f.outbox("a"))
		id := f.hold("chat", 1)
		time.Sleep(time.Second)
		f.run(f.outbox("b"))
		f.reject(id)
		time.Sleep(10 * time.Second)
		if got := f.chat.sent(); !slices.Equal(got, []string{"pending", "rejected"}) {
			t.Errorf("sent %v", got)
		}
	})
}
