package operator

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A pace is how often something may happen.
type pace struct {
	every rate.Limit // per second, in the long run
	burst int
}

// The paces of failures of one address and of all together, and of requests of
// one operator.
var (
	failures    = pace{rate.Every(6 * time.Second), 10}
	allFailures = pace{20, 500}
	requests    = pace{50, 200}
)

// guesses bound how often somebody can show a wrong token, by address and over
// all addresses. Once there were too many failures, nothing that is shown is
// compared with any token: an answer would show whether it was right.
type guesses struct {
	mu     sync.Mutex
	bad    limiters // by address
	all    *rate.Limiter
	proven map[string]time.Time // addresses at which a right token was shown, and when
}

const (
	maxProven    = 1000           // addresses
	provenLately = 24 * time.Hour // how long an address counts as one that people use
)

func newGuesses() *guesses {
	return &guesses{bad: newLimiters(failures), all: rate.NewLimiter(allFailures.every, allFailures.burst), proven: make(map[string]time.Time)}
}

// wait returns how long nothing may be tried from an address. Failures elsewhere
// do not count at an address where a right token was shown lately, so that
// strangers cannot lock operators out.
func (g *guesses) wait(address string, now time.Time) time.Duration {
	wait := g.bad.wait(address, now)
	if now.Sub(g.proven[address]) < provenLately {
		return wait
	}
	return max(wait, waitFor(g.all, now))
}

// attempt calls compare, unless there were too many failures: then it returns
// how long to wait. A failure counts.
func (g *guesses) attempt(address string, now time.Time, compare func() bool) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait := g.wait(address, now); wait > 0 {
		return wait
	}
	if compare() {
		g.prove(address, now)
	} else {
		g.bad.take(address, now)
		g.all.AllowN(now, 1)
	}
	return 0
}

func (g *guesses) prove(address string, now time.Time) {
	if len(g.proven) >= maxProven {
		clear(g.proven)
	}
	g.proven[address] = now
}

// waitFor returns how long it takes until l allows one more, which is not
// counted.
func waitFor(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// limiters hold a limiter for each of many, without growing without end.
type limiters struct {
	pace pace
	mu   *sync.Mutex
	of   map[string]*rate.Limiter
}

// maxLimiters is how many are remembered.
const maxLimiters = 10_000

func newLimiters(p pace) limiters {
	return limiters{pace: p, mu: new(sync.Mutex), of: make(map[string]*rate.Limiter)}
}

// take counts one more for who, and returns how long to wait if that is too many.
func (l limiters) take(who string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	lim := l.of[who]
	if lim == nil {
		l.makeRoom(now)
		lim = rate.NewLimiter(l.pace.every, l.pace.burst)
		l.of[who] = lim
	}
	r := lim.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// wait returns how long who has to wait, and counts nothing.
func (l limiters) wait(who string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lim := l.of[who]; lim != nil {
		return waitFor(lim, now)
	}
	return 0
}

// makeRoom forgets those that would be like new, and everybody if there are none.
func (l limiters) makeRoom(now time.Time) {
	if len(l.of) < maxLimiters {
		return
	}
	for who, lim := range l.of {
		if lim.TokensAt(now) >= float64(l.pace.burst) {
			delete(l.of, who)
		}
	}
	if len(l.of) >= maxLimiters {
		clear(l.of)
	}
}

// addressOf returns where a request comes from: an address, or the network that
// one subscriber usually has to themselves.
func addressOf(r *http.Request) string { return admission.Address(r.RemoteAddr).Network() }
