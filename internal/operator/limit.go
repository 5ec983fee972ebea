package operator

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A pace is how often something may happen.
type pace struct {
	every rate.Limit // per second, in the long run
	burst int
}

// The paces of failures of one address, and of requests of one operator.
var (
	failures = pace{rate.Every(6 * time.Second), 10}
	requests = pace{50, 200}
)

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

// addressOf returns from where a request comes: an address, or the network that
// one subscriber usually has to themselves.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap(); addr.Is6() {
		if network, err := addr.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}
