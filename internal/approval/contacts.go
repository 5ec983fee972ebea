package approval

import (
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Contacts are the owners that are present at this desk: those that asked a moment
// ago, and those that wait in a request.
type contacts struct {
	*core

	mu      sync.Mutex
	closed  bool
	present map[task.ID]presence // owners that asked a moment ago
	waiting map[task.ID]int      // how many requests wait here for a task
}

func newContacts(c *core) *contacts {
	return &contacts{core: c, present: make(map[task.ID]presence), waiting: make(map[task.ID]int)}
}

// A presence is an owner that asked a moment ago, and is expected to ask again.
type presence struct {
	send  Sender
	until time.Time
}

func (c *contacts) join(id task.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id]++
}

// leave ends one wait for a task and reports whether there is none left here.
func (c *contacts) leave(id task.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id]--
	if c.waiting[id] > 0 {
		return false
	}
	delete(c.waiting, id)
	return true
}

// awaited reports whether somebody waits here for a task.
func (c *contacts) awaited(id task.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[id] > 0
}

func (c *contacts) remember(t task.Task, send Sender) {
	until := c.cfg.Now().Add(2 * c.withInterval(t).PollInterval)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.present[t.ID] = presence{send, until}
	}
}

// recentSender returns the sender of an owner that asked a moment ago.
func (c *contacts) recentSender(id task.ID) Sender {
	c.mu.Lock()
	p, ok := c.present[id]
	c.mu.Unlock()
	if !ok || c.cfg.Now().After(p.until) {
		return nil
	}
	if r, ok := p.send.(Revocable); ok && r.Revoked() {
		return nil
	}
	return p.send
}

// anySender returns who can reach the upstream of t now: an owner that asked a
// moment ago, or else the gate itself; or nil.
func (c *contacts) anySender(t task.Task) Sender {
	if send := c.recentSender(t.ID); send != nil {
		return send
	}
	if c.cfg.Send == nil {
		return nil
	}
	return c.cfg.Send(t)
}

// senderFor returns who may make the call of t without being asked, or nil.
func (c *contacts) senderFor(t task.Task) Sender {
	switch c.settings().Start {
	case StartOnApproval:
		return c.cfg.Send(t)
	case StartOnContact:
		return c.recentSender(t.ID)
	default:
		return nil
	}
}

func (c *contacts) forget(id task.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.present, id)
}

// prune forgets owners that have not come back.
func (c *contacts) prune() {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.present {
		if now.After(p.until) {
			delete(c.present, id)
		}
	}
}

// none reports whether nobody has asked a moment ago.
func (c *contacts) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.present) == 0
}

// close forgets everybody, for good.
func (c *contacts) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	clear(c.present)
}
