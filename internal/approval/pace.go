package approval

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// turnover is how often a minute an owner may fill its share of pending tasks
// anew. Tasks that have ended are kept for a while, so without a bound an owner
// that makes and cancels calls could fill the store.
const turnover = 60

// A pace bounds how fast owners make tasks. The zero pace knows nobody.
type pace struct {
	mu     sync.Mutex
	owners map[string]*rate.Limiter
}

// take returns nil if an owner with the given share of pending tasks may make
// one more now. No share is no bound.
func (p *pace) take(owner string, share int, now time.Time) error {
	if share <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, known := p.owners[owner]
	if !known {
		if p.owners == nil {
			p.owners = make(map[string]*rate.Limiter)
		}
		l = rate.NewLimiter(rate.Limit(share)*turnover/60, share*turnover)
		p.owners[owner] = l
	}
	if l.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration(float64(time.Second) / float64(l.Limit())).Round(time.Second)
	return &task.Error{
		Kind: task.KindRateLimited, Action: task.ActionCreate, RetryAfter: max(wait, time.Second),
		Limit: int64(l.Burst()), Size: int64(l.Burst()),
	}
}

// prune forgets owners that have made none for a while.
func (p *pace) prune(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for owner, l := range p.owners {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(p.owners, owner)
		}
	}
}
