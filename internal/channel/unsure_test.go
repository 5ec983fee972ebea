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
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A question that may have been asked, and was decided before any gate knew whether it
// was, is told its end where it may have been asked. One that surely was not asked is
// not.
func TestDecidedWhileUnsure(t *testing.T) {
	dialed := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		kept string // of the question in the store
		fail error  // of the attempt to ask
		want []string
	}{
		"the gate died":              {kept: `{"claim":"dead"}`, want: []string{"rejected without a reference"}},
		"it died, and then a no":     {kept: `{"claim":"dead"}`, fail: channel.Unsent(errors.New("no")), want: []string{"rejected without a reference"}},
		"the gate was stopped":       {fail: context.Canceled, want: []string{"rejected without a reference"}},
		"no answer in time":          {fail: fmt.Errorf("post: %w", context.DeadlineExceeded), want: []string{"rejected without a reference"}},
		"the connection broke":       {fail: fmt.Errorf("post: %w", io.ErrUnexpectedEOF), want: []string{"rejected without a reference"}},
		"the connection ended":       {fail: &url.Error{Op: "Post", Err: io.EOF}, want: []string{"rejected without a reference"}},
		"the connection was reset":   {fail: &net.OpError{Op: "read", Err: syscall.ECONNRESET}, want: []string{"rejected without a reference"}},
		"stopped while it dialled":   {fail: channel.Unsent(context.Canceled)},
		"a proxy gave up":            {fail: errors.New("502 Bad Gateway"), want: []string{"rejected without a reference"}},
		"the proxy is busy":          {fail: &channel.RetryError{Err: errors.New("503")}, want: []string{"rejected without a reference"}},
		"the channel said no":        {fail: fmt.Errorf("post: %w", channel.Unsent(errors.New("no")))},
		"the channel said not now":   {fail: &channel.RetryError{Err: channel.Unsent(errors.New("429"))}},
		"the channel is unreachable": {fail: fmt.Errorf("post: %w", dialed)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				id := f.hold("chat", 1)
				if c.kept != "" {
					if err := f.store.PutRecord(t.Context(), task.Record{Name: "channel/chat/" + string(id), Version: 1, Value: []byte(c.kept)}); err != nil {
						t.Fatal(err)
					}
				}
				if c.fail != nil {
					f.askedInVain(c.fail)
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

// askedInVain runs an outbox for a moment. Its attempt to ask ends with err. If err says
// that the outbox was stopped, it is.
func (f *fixture) askedInVain(err error) {
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

// A slowStore has those who list records wait afterwards.
type slowStore struct {
	channel.Store

	goOn chan struct{}
}

func (s *slowStore) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
	found, err := s.Store.ListRecords(ctx, q)
	<-s.goOn
	return found, err
}

// A replica that has just seen a failure finds the call decided. Meanwhile another one,
// which did not know of the decision yet, has begun to ask: it tells the end too.
func TestDecidedWhileOtherAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.hold("chat", 1)
		f.askedInVain(channel.Unsent(errors.New("no")))
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

// A question that was decided before the channel could be asked is settled: nothing is
// said of it at any later stage.
func TestApprovedBeforeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.hold("chat", 1)
		f.askedInVain(channel.Unsent(errors.New("no")))
		shown, _, err := f.desk.Cases().ShowToAsk(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.desk.Decide(t.Context(), id, approval.Approver{Name: "bob"}, approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest}); err != nil {
			t.Fatal(err)
		}
		o := f.outbox("b")
		f.run(o)
		time.Sleep(100 * time.Hour)
		if got := f.chat.sent(); len(got) > 0 {
			t.Errorf("told %v", got)
		}
		if s := o.Statuses(); len(s) != 1 || s[0].Waiting != 0 {
			t.Errorf("status %+v", s)
		}
	})
}
