package channel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// TestOutcomeSentIfQuestionMayHaveArrived checks a call that was decided before any gate knew
// whether the question had arrived. The outcome is sent if the question may have arrived, and
// not if it certainly did not.
func TestOutcomeSentIfQuestionMayHaveArrived(t *testing.T) {
	dialed := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		kept string // the stored delivery of the question
		fail error  // the error of the attempt to ask
		want []string
	}{
		"the gate died":              {kept: `{"claim":"dead"}`, want: []string{"rejected without a reference"}},
		"it died, and then a no":     {kept: `{"claim":"dead"}`, fail: channel.NotSent(errors.New("no")), want: []string{"rejected without a reference"}},
		"the gate was stopped":       {fail: context.Canceled, want: []string{"rejected without a reference"}},
		"no answer in time":          {fail: fmt.Errorf("post: %w", context.DeadlineExceeded), want: []string{"rejected without a reference"}},
		"the connection broke":       {fail: fmt.Errorf("post: %w", io.ErrUnexpectedEOF), want: []string{"rejected without a reference"}},
		"the connection ended":       {fail: &url.Error{Op: "Post", Err: io.EOF}, want: []string{"rejected without a reference"}},
		"the connection was reset":   {fail: &net.OpError{Op: "read", Err: syscall.ECONNRESET}, want: []string{"rejected without a reference"}},
		"stopped while it dialled":   {fail: channel.NotSent(context.Canceled)},
		"a proxy gave up":            {fail: errors.New("502 Bad Gateway"), want: []string{"rejected without a reference"}},
		"the proxy is busy":          {fail: &channel.RetryError{Err: errors.New("503")}, want: []string{"rejected without a reference"}},
		"the channel said no":        {fail: fmt.Errorf("post: %w", channel.NotSent(errors.New("no")))},
		"the channel said not now":   {fail: &channel.RetryError{Err: channel.NotSent(errors.New("429"))}},
		"the channel is unreachable": {fail: fmt.Errorf("post: %w", dialed)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				id := f.hold("chat", 1)
				if c.kept != "" {
					if err := f.store.PutRecord(t.Context(), gatestore.Record{Name: "channel/chat/" + string(id), Version: 1, Value: []byte(c.kept)}); err != nil {
						t.Fatal(err)
					}
				}
				if c.fail != nil {
					f.failToAsk(c.fail)
				}
				f.reject(id)
				f.run(f.outbox("b"))
				time.Sleep(time.Minute)
				if diff := cmp.Diff(c.want, f.chat.sent()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// failToAsk runs an outbox for a short time, in which the attempt to ask fails with err. If
// err is a cancellation, failToAsk stops the outbox during the attempt.
func (f *fixture) failToAsk(err error) {
	ctx, stop := context.WithTimeout(f.t.Context(), 500*time.Millisecond)
	defer stop()
	f.chat.fail = func(int) error {
		if errors.Is(err, context.Canceled) {
			stop()
		}
		return err
	}
	f.outbox("a").Run(ctx)
	f.chat.fail = nil
}

// A slowStore delays the results of listing records.
type slowStore struct {
	channel.Store

	goOn chan struct{}
}

func (s *slowStore) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	found, err := s.Store.ListRecords(ctx, q)
	<-s.goOn
	return found, err
}

// TestOutcomeSentIfOtherReplicaAsked checks that a replica sends the outcome although it found
// the call decided before it asked. Another replica, which did not know of the decision, has
// begun to ask.
func TestOutcomeSentIfOtherReplicaAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.hold("chat", 1)
		f.failToAsk(channel.NotSent(errors.New("no")))
		slow := &slowStore{Store: f.store, goOn: make(chan struct{})}
		f.between = slow
		f.run(f.outbox("slow"))
		synctest.Wait()
		answer := make(chan struct{})
		f.chat.fail = func(int) error { <-answer; return nil }
		f.between = nil
		f.run(f.outbox("asks"))
		synctest.Wait()
		f.reject(id)
		close(slow.goOn)
		synctest.Wait()
		close(answer)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"pending", "rejected"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestDecidedQuestionIsNeverSent checks that a question that was decided before it could be sent
// causes no message at any later stage.
func TestDecidedQuestionIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.hold("chat", 1)
		f.failToAsk(channel.NotSent(errors.New("no")))
		shown, _, err := f.approvals.Viewer().ShowWithChange(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.approvals.Decide(t.Context(), id, approval.Approver{Name: "bob"}, approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest}); err != nil {
			t.Fatal(err)
		}
		o := f.outbox("b")
		f.run(o)
		time.Sleep(100 * time.Hour)
		if got := f.chat.sent(); len(got) > 0 {
			t.Errorf("messages %v, want none", got)
		}
		if s := o.Statuses(); len(s) != 1 || s[0].Waiting != 0 {
			t.Errorf("status %+v", s)
		}
	})
}
