package inbox_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestSlowPagesDelayOnlyTheirOperator checks that slow pages of one operator do not delay
// the pages of others.
func TestSlowPagesDelayOnlyTheirOperator(t *testing.T) {
	o := open(t)
	alice, bob := o.signIn(t, "alice"), o.signIn(t, "bob")
	slow, other := o.hold(t, held{}), o.hold(t, held{args: `{"path":"/b"}`})
	ctx, leave := context.WithCancel(t.Context())
	o.store.stuck.Store(&slow)
	var opened sync.WaitGroup
	defer opened.Wait()
	defer leave()
	begun := o.gets.Load()
	for range 6 {
		opened.Go(func() { alice.leaving(ctx, "/approvals/"+string(slow)) })
	}
	for o.gets.Load() < begun+2 { // the limit for one operator
		time.Sleep(time.Millisecond)
	}
	bob.client.Timeout = time.Minute
	mustHave(t, bob.get("/approvals/"+string(other)), "/b")
}

// leaving requests a page and cancels the request when ctx ends.
func (v *browser) leaving(ctx context.Context, path string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+path, http.NoBody)
	if err != nil {
		v.t.Error(err)
		return
	}
	if answer, err := v.client.Do(r); err == nil {
		answer.Body.Close()
	}
}
