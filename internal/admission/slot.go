package admission

import "container/list"

// A Slot is one unit of a [Pool], for example for a connection. While its client does
// not use it, the pool may revoke it for another client. It is safe for concurrent use.
type Slot struct {
	pool   *Pool
	client Client
	revoke func()

	released  bool          // true also after a revocation
	idle      *list.Element // among the idle slots of the client; nil while the slot is in use
	idleSince uint64        // Pool.idleCount when it became idle
}

// AcquireSlot takes a slot for c, which is idle until [Slot.Use]. If the pool is full,
// it revokes the slot that has been idle for longest: a slot of c itself if c has
// reached its limit, and otherwise one of the client that has the most. It calls the
// revoke function of that slot; its client must not use the slot after that.
func (p *Pool) AcquireSlot(c Client, revoke func()) (*Slot, error) {
	slot := &Slot{pool: p, client: c, revoke: revoke}
	for {
		victim, err := p.tryAcquireSlot(slot)
		if victim == nil {
			return slot, err
		}
		victim.revoke()
	}
}

// tryAcquireSlot takes the slot and returns nil, or returns another slot that it has
// revoked, or the reason why the pool has no slot.
func (p *Pool) tryAcquireSlot(slot *Slot) (victim *Slot, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(slot.client, 1); err != nil {
		if victim = p.victim(slot.client); victim == nil {
			return nil, err
		}
		p.releaseSlot(victim)
		return victim, nil
	}
	p.take(slot.client, 1)
	p.setIdle(slot)
	return nil, nil
}

// victim returns the idle slot to revoke for another one of c, or nil. It looks at one slot of each
// client, not at all idle slots: there may be thousands.
func (p *Pool) victim(c Client) *Slot {
	if p.limits.Client > 0 && p.byClient[c] >= p.limits.Client {
		return p.longestIdle(c)
	}
	anonymousOnly := p.checkShare(c, 1) != nil
	var victim *Slot
	for other := range p.idle {
		if anonymousOnly && other.Identified() {
			continue
		}
		if first := p.longestIdle(other); victim == nil || p.revokedBefore(first, victim) {
			victim = first
		}
	}
	return victim
}

// longestIdle returns the slot of a client that has been idle for longest, or nil.
func (p *Pool) longestIdle(c Client) *Slot {
	if p.idle[c] == nil {
		return nil
	}
	return p.idle[c].Front().Value.(*Slot)
}

// revokedBefore reports whether to revoke a rather than b.
func (p *Pool) revokedBefore(a, b *Slot) bool {
	if inA, inB := p.byClient[a.client], p.byClient[b.client]; inA != inB {
		return inA > inB
	}
	return a.idleSince < b.idleSince
}

// Use marks the slot as in use. It reports false if the slot was revoked.
func (s *Slot) Use() bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	//mutate:drop internal/app.TestBusyConnectionsAreNotReplaced a connection is revoked during a request
	s.pool.removeIdle(s)
	//mutate:true TestIdleSlotIsRevoked a request runs on a revoked connection
	return !s.released
}

// SetIdle marks the slot as idle from now on.
func (s *Slot) SetIdle() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if !s.released {
		s.pool.setIdle(s)
	}
}

// Release returns the slot to the pool. It is safe to repeat, also after a revocation.
func (s *Slot) Release() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.releaseSlot(s)
}

func (p *Pool) releaseSlot(s *Slot) {
	if s.released {
		return
	}
	p.removeIdle(s)
	s.released = true
	p.release(s.client, 1)
}

func (p *Pool) setIdle(s *Slot) {
	p.removeIdle(s)
	p.idleCount++
	s.idleSince = p.idleCount
	if p.idle[s.client] == nil {
		p.idle[s.client] = list.New()
	}
	s.idle = p.idle[s.client].PushBack(s)
}

func (p *Pool) removeIdle(s *Slot) {
	if s.idle == nil {
		return
	}
	slots := p.idle[s.client]
	slots.Remove(s.idle)
	if s.idle = nil; slots.Len() == 0 {
		delete(p.idle, s.client)
	}
}
