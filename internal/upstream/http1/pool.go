package http1

import (
	"sync"
	"time"
)

// A pool keeps connections that are not in use.
type pool struct {
	most    int
	timeout time.Duration

	mu    sync.Mutex
	idle  []*conn // the one that was used last is the last
	age   int     // how often the pool was closed
	timer *time.Timer
}

// generation returns what a new connection belongs to.
func (p *pool) generation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.age
}

// take returns the connection that was used last, or nil.
func (p *pool) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return c
}

// put keeps a connection for later, if there is room.
func (p *pool) put(c *conn) {
	c.idle = time.Now()
	if !p.keep(c) {
		c.abort()
	}
}

func (p *pool) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= p.most || c.born != p.age {
		return false
	}
	p.idle = append(p.idle, c)
	if p.timeout > 0 && p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.expire)
	}
	return true
}

// expire closes the connections that were not used for too long.
func (p *pool) expire() {
	for _, c := range p.overdue(time.Now()) {
		c.abort()
	}
}

// overdue takes out the connections that have not been used for too long, and
// sets the timer for the next one.
func (p *pool) overdue(now time.Time) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].idle) >= p.timeout {
		n++
	}
	over := append([]*conn(nil), p.idle[:n]...)
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle, p.timer = p.idle[:rest], nil
	if rest > 0 {
		p.timer = time.AfterFunc(p.idle[0].idle.Add(p.timeout).Sub(now), p.expire)
	}
	return over
}

// close closes all connections: those that are kept now, and those in use when
// they come back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.age = nil, p.age+1
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.abort()
	}
}
