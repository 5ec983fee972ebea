package operator

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A rateLimit limits events.
type rateLimit struct {
	perSecond rate.Limit // per second, in the long run
	burst     int
}

// The limits of wrong tokens from one address, of wrong tokens from all addresses, and of
// requests of one operator.
var (
	failureRate      = rateLimit{rate.Every(6 * time.Second), 10}
	totalFailureRate = rateLimit{20, 500}
	requestRate      = rateLimit{50, 200}
)

// tokenFailures limits wrong tokens, for each address and for all addresses. After too many,
// tokens are not compared, since the response would tell whether a token is right.
type tokenFailures struct {
	mu        sync.Mutex
	byAddress keyedLimiter // by address
	all       *rate.Limiter
	proven    map[string]time.Time // the time of the last right token, by address
}

const (
	maxProven    = 1000           // addresses
	provenLately = 24 * time.Hour // how long an address counts as used by operators
)

func newTokenFailures() *tokenFailures {
	return &tokenFailures{byAddress: newKeyedLimiter(failureRate), all: rate.NewLimiter(totalFailureRate.perSecond, totalFailureRate.burst), proven: make(map[string]time.Time)}
}

// wait returns how long an address must wait before the next token is compared. The limit
// for all addresses does not apply to addresses of operators, so that an attacker cannot
// lock operators out.
func (g *tokenFailures) wait(address string, now time.Time) time.Duration {
	wait := g.byAddress.wait(address, now)
	if now.Sub(g.proven[address]) < provenLately {
		return wait
	}
	return max(wait, waitFor(g.all, now))
}

// attempt calls compare and counts a failure. After too many failures it returns how long
// to wait instead.
func (g *tokenFailures) attempt(address string, now time.Time, compare func() bool) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait := g.wait(address, now); wait > 0 {
		return wait
	}
	if compare() {
		g.prove(address, now)
	} else {
		g.byAddress.take(address, now)
		g.all.AllowN(now, 1)
	}
	return 0
}

func (g *tokenFailures) prove(address string, now time.Time) {
	if len(g.proven) >= maxProven {
		clear(g.proven)
	}
	g.proven[address] = now
}

// waitFor returns how long it takes until l allows one more event. It counts nothing.
func waitFor(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// A keyedLimiter has a rate limit for each key, for a limited number of keys.
type keyedLimiter struct {
	rate  rateLimit
	mu    *sync.Mutex
	byKey map[string]*rate.Limiter
}

// maxLimiters is the number of keys with a limiter.
const maxLimiters = 10_000

func newKeyedLimiter(p rateLimit) keyedLimiter {
	return keyedLimiter{rate: p, mu: new(sync.Mutex), byKey: make(map[string]*rate.Limiter)}
}

// take counts an event, and returns how long to wait if it exceeds the limit.
func (l keyedLimiter) take(key string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	lim := l.byKey[key]
	if lim == nil {
		l.dropIdle(now)
		lim = rate.NewLimiter(l.rate.perSecond, l.rate.burst)
		l.byKey[key] = lim
	}
	r := lim.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// wait returns how long a key must wait. It counts nothing.
func (l keyedLimiter) wait(key string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lim := l.byKey[key]; lim != nil {
		return waitFor(lim, now)
	}
	return 0
}

// dropIdle forgets the limiters that are not in use if there are too many, and otherwise all
// of them.
func (l keyedLimiter) dropIdle(now time.Time) {
	if len(l.byKey) < maxLimiters {
		return
	}
	for key, lim := range l.byKey {
		if lim.TokensAt(now) >= float64(l.rate.burst) {
			delete(l.byKey, key)
		}
	}
	if len(l.byKey) >= maxLimiters {
		clear(l.byKey)
	}
}

// addressOf returns the address of a client, or the IPv6 network of a subscriber.
func addressOf(r *http.Request) string { return admission.Address(r.RemoteAddr).Network() }
