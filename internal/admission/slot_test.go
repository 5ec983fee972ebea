package admission_test

import (
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A connection has a slot and notes whether it was revoked.
type connection struct {
	slot    *admission.Slot
	revoked bool
}

func connect(t *testing.T, p *admission.Pool, c admission.Client) *connection {
	t.Helper()
	conn := new(connection)
	var err error
	if conn.slot, err = p.AcquireSlot(c, func() { conn.revoked = true }); err != nil {
		t.Fatal(err)
	}
	return conn
}

func wantRevoked(t *testing.T, name string, c *connection, want bool) {
	t.Helper()
	if c.revoked != want {
		t.Errorf("%s: revoked %v; want %v", name, c.revoked, want)
	}
}

// The longest idle slot of the client with the most slots is revoked.
func TestIdleSlotIsRevoked(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 5, Client: 4})
	single := connect(t, p, near)
	busy, first, second, third := connect(t, p, here), connect(t, p, here), connect(t, p, here), connect(t, p, here)
	if !busy.slot.Use() || !first.slot.Use() {
		t.Fatal("a slot is lost")
	}
	first.slot.SetIdle() // after second and third
	connect(t, p, ann)
	wantRevoked(t, "longest idle", second, true)
	if second.slot.Use() {
		t.Error("a revoked slot can be used")
	}
	second.slot.SetIdle()
	second.slot.Release() // without effect
	connect(t, p, admission.Principal("bob"))
	wantRevoked(t, "next", third, true)
	for _, c := range []*connection{busy, first, single} {
		wantRevoked(t, "in use, idle for a shorter time, or of a client with fewer slots", c, false)
	}
	if used := p.Used(); used != 5 {
		t.Errorf("%d slots in use", used)
	}
}

// A client at its limit loses one of its own slots.
func TestClientAtLimitLosesOwnSlot(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 10, Client: 2})
	single := connect(t, p, near)
	first, second := connect(t, p, here), connect(t, p, here)
	third := connect(t, p, here)
	wantRevoked(t, "first", first, true)
	wantRevoked(t, "second", second, false)
	wantRevoked(t, "of another client", single, false)
	second.slot.Use()
	third.slot.Use()
	_, err := p.AcquireSlot(here, func() {})
	want(t, "all in use", err, admission.ErrClient)
	for _, c := range []*connection{second, third, single, second} {
		c.slot.Release()
	}
	if used := p.Used(); used != 0 {
		t.Errorf("%d slots in use in the end", used)
	}
}

// An anonymous client at the limit of all anonymous clients takes no slot of a principal.
func TestAnonymousClientCannotTakeSlotOfPrincipal(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 3, Anonymous: 1})
	known, unknown := connect(t, p, ann), connect(t, p, here)
	unknown.slot.Use()
	_, err := p.AcquireSlot(near, func() {})
	want(t, "anonymous clients are at their limit", err, admission.ErrFull)
	wantRevoked(t, "of a principal", known, false)
}

func TestConcurrentSlotsAreCounted(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 4, Client: 2})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c := []admission.Client{here, near, ann}[i%3]
			for range 2000 {
				slot, err := p.AcquireSlot(c, func() {})
				if err != nil {
					continue
				}
				if slot.Use() && i%2 == 0 {
					slot.SetIdle()
				}
				slot.Release()
			}
		})
	}
	clients.Wait()
	if used := p.Used(); used != 0 {
		t.Errorf("%d slots in use in the end", used)
	}
}
