package http1

import (
	"slices"
	"sync"
	"time"
)

// A pool keeps idle connections for their owners. If there are more than max, the least recently
// used one is closed.
type pool struct {
	max     int
	timeout time.Duration

	mu                sync.Mutex
	idle              []*conn // in the order of last use
	currentGeneration int     // how often close was called
	timer             *time.Timer
}

// generation returns the generation of a new connection.
func (p *pool) generation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.currentGeneration
}

// take returns the connection that owner has used last, or nil.
func (p *pool) take(owner string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.idle) {
		if c.owner == owner {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

// put keeps a connection for its owner.
func (p *pool) put(c *conn) {
	c.idleSince = time.Now()
	if over := p.add(c); over != nil {
		over.abort()
	}
}

// add keeps a connection, and returns the one to close in its place, if any.
func (p *pool) add(c *conn) (over *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.generation != p.currentGeneration {
		return c
	}
	//mutate:swap "== p.max" "< 0" TestConnectionServesOneOwner kept connections are not limited
	if len(p.idle) == p.max {
		over = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, c)
	if p.timeout > 0 && p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.expire)
	}
	return over
}

// expire closes the connections that were idle for too long, and sets the timer for the next one.
func (p *pool) expire() {
	p.mu.Lock()
	now, n := time.Now(), 0
	for n < len(p.idle) && now.Sub(p.idle[n].idleSince) >= p.timeout {
		n++
	}
	over := slices.Clone(p.idle[:n])
	p.idle, p.timer = slices.Delete(p.idle, 0, n), nil
	if len(p.idle) > 0 {
		p.timer = time.AfterFunc(p.idle[0].idleSince.Add(p.timeout).Sub(now), p.expire)
	}
	p.mu.Unlock()
	for _, c := range over {
		c.abort()
	}
}

// close closes the idle connections now, and those in use when they come back.
func (p *pool) close() {
	p.mu.Lock()
	over := p.idle
	p.idle = nil
	p.currentGeneration++
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	for _, c := range over {
		c.abort()
	}
}
