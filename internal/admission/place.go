package admission

// A Place is room for one in a [Pool], which gives way to others while its client
// does not use it. It is safe for concurrent use.
type Place struct {
	pool   *Pool
	client Client
	yield  func()

	left       bool // given back, or taken away
	idle       bool
	idleSince  uint64 // when it became idle: the pool counts up
	prev, next *Place // in the queue of the client's idle places
}

// An idleQueue holds the idle places of one client, the longest idle one first.
type idleQueue struct{ first, last *Place }

// Enter takes room for one of c, which counts as idle until [Place.Use]. If there
// is none, an idle place gives way: one of c's own if c has its share, and
// otherwise one of the client that has most, each time the one that has been idle
// for longest. Its yield is called, after which the client must not use it.
func (p *Pool) Enter(c Client, yield func()) (*Place, error) {
	place := &Place{pool: p, client: c, yield: yield}
	for {
		victim, err := p.enter(place)
		if victim == nil {
			return place, err
		}
		victim.yield()
	}
}

// enter takes room for place and returns nothing, or a place that has given way,
// or why there is no room.
func (p *Pool) enter(place *Place) (victim *Place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.room(place.client, 1); err != nil {
		if victim = p.victim(place.client); victim == nil {
			return nil, err
		}
		p.leave(victim)
		return victim, nil
	}
	p.take(place.client, 1)
	p.addIdle(place)
	return nil, nil
}

// victim returns the idle place that gives way to another one of c, or nil.
func (p *Pool) victim(c Client) *Place {
	if p.limits.Client > 0 && p.byClient[c] >= p.limits.Client {
		return p.idle[c].first
	}
	var victim *Place
	for other, queue := range p.idle {
		if p.share(c, 1) != nil && other.Identified() {
			continue // that would not help an anonymous client
		}
		if victim == nil || p.before(queue.first, victim) {
			victim = queue.first
		}
	}
	return victim
}

// before reports whether a gives way rather than b.
func (p *Pool) before(a, b *Place) bool {
	if mine, theirs := p.byClient[a.client], p.byClient[b.client]; mine != theirs {
		return mine > theirs
	}
	return a.idleSince < b.idleSince
}

// Use reports whether the client still has the place, which from now on is not
// idle.
func (l *Place) Use() bool {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.removeIdle(l)
	return !l.left
}

// SetIdle says that the place is idle from now on.
func (l *Place) SetIdle() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if !l.left {
		l.pool.addIdle(l)
	}
}

// Leave gives the place back, unless it has given way. It may be called again.
func (l *Place) Leave() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.leave(l)
}

func (p *Pool) leave(l *Place) {
	if l.left {
		return
	}
	p.removeIdle(l)
	l.left = true
	p.release(l.client, 1)
}

// addIdle puts a place at the end of its client's idle ones.
func (p *Pool) addIdle(l *Place) {
	p.removeIdle(l)
	p.idleCount++
	l.idle, l.idleSince = true, p.idleCount
	queue := p.idle[l.client]
	if l.prev = queue.last; l.prev != nil {
		l.prev.next = l
	} else {
		queue.first = l
	}
	queue.last = l
	if p.idle == nil {
		p.idle = make(map[Client]idleQueue)
	}
	p.idle[l.client] = queue
}

// removeIdle takes a place out of its client's idle ones.
func (p *Pool) removeIdle(l *Place) {
	if !l.idle {
		return
	}
	queue := p.idle[l.client]
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		queue.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		queue.last = l.prev
	}
	l.idle, l.prev, l.next = false, nil, nil
	if queue.first == nil {
		delete(p.idle, l.client)
	} else {
		p.idle[l.client] = queue
	}
}
