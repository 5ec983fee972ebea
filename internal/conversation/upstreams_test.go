package conversation

import (
	"context"
	"testing"
	"time"
)

// If a client joins while the upstream refuses a subscription, the gate asks again. Otherwise it
// asks when the next client joins.
func TestJoiningClientRestartsSubscription(t *testing.T) {
	var s subscriptions
	asked, refuse := make(chan struct{}), make(chan struct{})
	listen := func(ctx context.Context, _ func() int) {
		asked <- struct{}{}
		select {
		case <-refuse:
		case <-ctx.Done():
		}
	}
	wait := func(what string) {
		t.Helper()
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("the upstream is not asked " + what)
		}
	}
	leave := []func(){s.join("tg_1", listen)}
	wait("for the first client")
	leave = append(leave, s.join("tg_1", listen))
	refuse <- struct{}{}
	wait("again for the client that has joined")
	refuse <- struct{}{}
	s.running.Wait()
	leave = append(leave, s.join("tg_1", listen))
	wait("for the next client")
	for _, l := range leave {
		l()
	}
	s.close()
}
