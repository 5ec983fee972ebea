package admission_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

var (
	ann  = admission.Principal("ann")
	here = admission.Address("192.0.2.1:1234")
	near = admission.Address("192.0.2.2:1234")
)

func want(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

func TestTryAcquire(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 10, Anonymous: 6, Client: 4})
	want(t, "more than the share", p.TryAcquire(here, 5), admission.ErrClient)
	want(t, "the whole share", p.TryAcquire(here, 4), nil)
	want(t, "beyond the share", p.TryAcquire(here, 1), admission.ErrClient)
	want(t, "another client", p.TryAcquire(near, 2), nil)
	want(t, "beyond the share of anonymous clients", p.TryAcquire(near, 1), admission.ErrFull)
	want(t, "a principal", p.TryAcquire(ann, 4), nil)
	want(t, "beyond the total", p.TryAcquire(admission.Principal("bob"), 1), admission.ErrFull)
	p.Release(here, 4)
	want(t, "after a release", p.TryAcquire(near, 2), nil)
	if used, peak, after := p.Used(), p.Peak(), p.Peak(); used != 8 || peak != 10 || after != 8 {
		t.Errorf("used %d, at most %d, and then %d; want 8, 10 and 8", used, peak, after)
	}
}

func TestZeroMeansNoLimit(t *testing.T) {
	p := admission.NewPool(admission.Limits{})
	want(t, "no limits", p.TryAcquire(here, 1<<40), nil)
}

// A request that fits is served before an earlier one whose client has reached its limit.
func TestQueueIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admission.NewPool(admission.Limits{Total: 10, Client: 6})
		want(t, "first", p.Acquire(t.Context(), here, 6, time.Second), nil)
		var waiting sync.WaitGroup
		var order []string
		var mu sync.Mutex
		queue := func(name string, c admission.Client, n int64) {
			waiting.Go(func() {
				want(t, name, p.Acquire(t.Context(), c, n, time.Minute), nil)
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
			})
			synctest.Wait()
		}
		queue("own share", here, 1)
		queue("fits", near, 3)
		queue("large", ann, 5)
		queue("behind the large one", near, 1)
		if len(order) != 1 || order[0] != "fits" {
			t.Errorf("served %q; want the one that fits", order)
		}
		p.Release(here, 6)
		waiting.Wait()
		if len(order) != 4 || p.Used() != 10 {
			t.Errorf("served %q, %d used; want all, and 10", order, p.Used())
		}
	})
}

// A request that exceeds the share of its client does not block others, also when it
// exceeds the total at the same time.
func TestClientAtLimitDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []admission.Limits{{Total: 10, Client: 6}, {Total: 10, Anonymous: 6}} {
			p := admission.NewPool(l)
			want(t, "a share", p.TryAcquire(here, 6), nil)
			want(t, "a principal", p.TryAcquire(ann, 3), nil)
			go p.Acquire(t.Context(), here, 5, time.Minute)
			synctest.Wait()
			want(t, "another client", p.Acquire(t.Context(), admission.Principal("bob"), 1, time.Second), nil)
			p.Release(here, 6)
			p.Release(ann, 3)
		}
	})
}

// Acquire ends after its timeout or with its context, and leaves nothing in the queue.
func TestAcquireEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admission.NewPool(admission.Limits{Total: 2, Client: 2})
		want(t, "first", p.TryAcquire(here, 2), nil)
		start := time.Now()
		want(t, "a full pool", p.Acquire(t.Context(), near, 1, time.Second), admission.ErrFull)
		want(t, "own share", p.Acquire(t.Context(), here, 1, time.Second), admission.ErrClient)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("waited %v; want 2s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "context", p.Acquire(ctx, near, 1, time.Minute), context.DeadlineExceeded)
		p.Release(here, 2)
		want(t, "afterwards", p.TryAcquire(near, 2), nil)
	})
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct{ remote, network string }{
		{"192.0.2.1:1234", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:9", "192.0.2.1"},
		{"[2001:db8::1%eth0]:9", "2001:db8::/64"},
		{"[2001:db8::ffff]:9", "2001:db8::/64"},
		{"@", "unknown"},
	} {
		if got := admission.Address(tt.remote).Network(); got != tt.network {
			t.Errorf("%s is %q; want %q", tt.remote, got, tt.network)
		}
	}
	if ann.Network() != "" || !ann.Identified() || here.Identified() {
		t.Error("a principal has no network, and only a principal is identified")
	}
	if admission.Principal("") == admission.Address("@") {
		t.Error("a principal without a name is an unknown address")
	}
}

func TestConcurrentUseIsCounted(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 8, Client: 6})
	var running sync.WaitGroup
	for i := range 50 {
		running.Go(func() {
			c := []admission.Client{ann, here, near}[i%3]
			for range 50 {
				if p.Acquire(t.Context(), c, 3, time.Minute) == nil {
					p.Release(c, 3)
				}
			}
		})
	}
	running.Wait()
	if used := p.Used(); used != 0 {
		t.Errorf("%d used in the end; want 0", used)
	}
}

func BenchmarkTryAcquire(b *testing.B) {
	p := admission.NewPool(admission.Limits{Total: 1000, Client: 1000})
	b.ReportAllocs()
	for b.Loop() {
		c := admission.Address("192.0.2.1:1234")
		if p.TryAcquire(c, 1) == nil {
			p.Release(c, 1)
		}
	}
}
