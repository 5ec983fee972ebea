package operator

import (
	"context"
	"sync"
	"time"
)

// callbacks limits the requests that OIDC callbacks cause at the identity provider: one for
// each login, and few at the same time. There is no limit for each address, because
// anybody can begin a login and all users may share the address of a proxy.
type callbacks struct {
	redeeming chan struct{} // one value for each code that is being redeemed

	mu    sync.Mutex
	until map[string]time.Time // the expiry of each completed login, by its state
}

const (
	maxRedeeming = 16               // codes redeemed at the same time
	maxCallbacks = 10_000           // remembered logins
	redeemWait   = 30 * time.Second // how long a callback waits for others
)

func newCallbacks() *callbacks {
	return &callbacks{redeeming: make(chan struct{}, maxRedeeming), until: make(map[string]time.Time)}
}

// first reports whether this is the first remembered callback for a state at this replica.
func (b *callbacks) first(state string, until, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, before := b.until[state]; before {
		return false
	}
	b.dropExpired(now)
	b.until[state] = until
	return true
}

// dropExpired forgets expired logins if there are too many, and otherwise all of them: the
// store also has the logins that began a session.
func (b *callbacks) dropExpired(now time.Time) {
	if len(b.until) < maxCallbacks {
		return
	}
	for state, until := range b.until {
		if !until.After(now) {
			delete(b.until, state)
		}
	}
	if len(b.until) >= maxCallbacks {
		clear(b.until)
	}
}

// acquire waits until a code may be redeemed, and reports false if that took too long. Done
// must be called when the code is redeemed.
func (b *callbacks) acquire(ctx context.Context) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, redeemWait)
	defer cancel()
	select {
	case b.redeeming <- struct{}{}:
		return func() { <-b.redeeming }, true
	case <-ctx.Done():
		return nil, false
	}
}
