package operator

import (
	"context"
	"sync"
	"time"
)

// returns bound what people who come back from the identity provider can make the gate
// ask it: once for each login that they began, and few at a time. Anybody can begin a
// login, and behind a proxy all come from one address, so nobody is refused because of
// others.
type returns struct {
	redeeming chan struct{} // has room for those whose code is being redeemed

	mu    sync.Mutex
	until map[string]time.Time // when each login that somebody returned from would have expired, by its state
}

const (
	maxRedeeming = 16               // how many codes are redeemed at a time
	maxReturns   = 10_000           // how many are remembered
	turnTime     = 30 * time.Second // how long somebody waits until their code is redeemed
)

func newReturns() *returns {
	return &returns{redeeming: make(chan struct{}, maxRedeeming), until: make(map[string]time.Time)}
}

// first reports whether nobody has returned to this replica from the login with that
// state before, as far as that is remembered.
func (b *returns) first(state string, until, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, before := b.until[state]; before {
		return false
	}
	b.makeRoom(now)
	b.until[state] = until
	return true
}

// makeRoom forgets logins that have expired, and all if none has: the store, too, knows
// of those that began a session.
func (b *returns) makeRoom(now time.Time) {
	if len(b.until) < maxReturns {
		return
	}
	for state, until := range b.until {
		if !until.After(now) {
			delete(b.until, state)
		}
	}
	if len(b.until) >= maxReturns {
		clear(b.until)
	}
}

// turn waits until a code may be redeemed. The function that it returns is to be called
// after that. It reports false if it took too long.
func (b *returns) turn(ctx context.Context) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	select {
	case b.redeeming <- struct{}{}:
		return func() { <-b.redeeming }, true
	case <-ctx.Done():
		return nil, false
	}
}
