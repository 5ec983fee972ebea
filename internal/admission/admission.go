// Package admission bounds what each client, and all clients together, may use
// at the same time: connections, requests, streams, bytes.
package admission

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"
)

// A Client uses what a [Pool] has: an identified principal, or everybody without
// an identity at one address. It is a pointer, because each request looks for it in
// several maps.
type Client struct{ name unique.Handle[clientName] }

// A clientName is what tells clients apart.
type clientName struct {
	principal string
	network   netip.Prefix
}

// Principal returns the client that was identified as id.
func Principal(id string) Client { return Client{unique.Make(clientName{principal: "id " + id})} }

// Address returns the client that is known by nothing but its address, which is
// given as host:port. The addresses of one IPv6 network of 64 bits count as one,
// because one subscriber usually has all of them.
func Address(remote string) Client {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return Client{}
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	return Client{unique.Make(clientName{network: netip.PrefixFrom(addr, bits).Masked()})}
}

// Identified reports whether the client is a principal.
func (c Client) Identified() bool { return c != Client{} && c.name.Value().principal != "" }

// Network returns the address of an anonymous client as text, and nothing for a
// principal.
func (c Client) Network() string {
	if c == (Client{}) {
		return "unknown"
	}
	switch network := c.name.Value().network; {
	case c.Identified():
		return ""
	case network.IsSingleIP():
		return network.Addr().String()
	default:
		return network.String()
	}
}

// Limits bound the use of a pool. A zero field limits nothing.
type Limits struct {
	Total     int64 // of all clients
	Anonymous int64 // of all clients that are not identified
	Client    int64 // of one client
}

// The reasons why a pool refuses a client.
var (
	ErrClient = errors.New("the client has reached its limit")
	ErrFull   = errors.New("all clients together have reached the limit")
)

// A Pool counts what clients use. It is safe for concurrent use.
type Pool struct {
	limits Limits

	mu        sync.Mutex
	used      int64
	peak      int64 // of used, since it was last asked for
	anonymous int64
	byClient  map[Client]int64
	queue     []*request
	idle      map[Client]idleQueue // see Place
	idleCount uint64               // how often a place became idle
}

// A request waits in the queue of a pool.
type request struct {
	client  Client
	n       int64
	granted chan struct{}
}

// NewPool returns a pool with the given limits.
func NewPool(l Limits) *Pool { return &Pool{limits: l, byClient: make(map[Client]int64)} }

// Used returns how much is in use.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Peak returns how much was in use at most since Peak was last called.
func (p *Pool) Peak() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	peak := p.peak
	p.peak = p.used
	return peak
}

// Try takes n for c, or returns [ErrClient] or [ErrFull] at once.
func (p *Pool) Try(c Client, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.room(c, n); err != nil {
		return err
	}
	if len(p.queue) > 0 {
		return ErrFull // what is free belongs to those who wait
	}
	p.take(c, n)
	return nil
}

// Wait takes n for c. While there is no room it waits, at most as long as
// patience allows, behind those who came before.
func (p *Pool) Wait(ctx context.Context, c Client, n int64, patience time.Duration) error {
	err := p.Try(c, n)
	if err == nil || patience <= 0 {
		return err
	}
	r := &request{client: c, n: n, granted: make(chan struct{})}
	p.mu.Lock()
	p.queue = append(p.queue, r)
	p.grant()
	p.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.granted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return p.abandon(r, err)
}

// abandon takes a request that has waited long enough out of the queue. It
// returns nil if the request was granted meanwhile, and otherwise err.
func (p *Pool) abandon(r *request, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.queue, r)
	if at < 0 {
		return nil
	}
	p.queue = slices.Delete(p.queue, at, at+1)
	p.grant() // it may have been what others waited behind
	return err
}

// Release gives back n that c has taken.
func (p *Pool) Release(c Client, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(c, n)
}

func (p *Pool) release(c Client, n int64) {
	p.used -= n
	if !c.Identified() {
		p.anonymous -= n
	}
	if left := p.byClient[c] - n; left == 0 {
		delete(p.byClient, c)
	} else {
		p.byClient[c] = left
	}
	if len(p.queue) > 0 {
		p.grant()
	}
}

// room returns nil if there is room for n more of c.
func (p *Pool) room(c Client, n int64) error {
	if err := p.share(c, n); err != nil {
		return err
	}
	if p.limits.Total > 0 && p.used+n > p.limits.Total {
		return ErrFull
	}
	return nil
}

// share returns nil if c would not have more than its share with n more, nor
// anonymous clients more than theirs.
func (p *Pool) share(c Client, n int64) error {
	switch l := p.limits; {
	case l.Client > 0 && p.byClient[c]+n > l.Client:
		return ErrClient
	case l.Anonymous > 0 && !c.Identified() && p.anonymous+n > l.Anonymous:
		return ErrFull
	default:
		return nil
	}
}

func (p *Pool) take(c Client, n int64) {
	p.used += n
	p.peak = max(p.peak, p.used)
	if !c.Identified() {
		p.anonymous += n
	}
	p.byClient[c] += n
}

// grant serves the queue in its order. A request whose client has its share, or
// is anonymous while those have theirs, holds up nobody else; one for which there
// is too little in all holds up those behind it, or a large one would never get
// its turn.
func (p *Pool) grant() {
	waiting := p.queue[:0]
	blocked := false
	for _, r := range p.queue {
		if blocked || p.room(r.client, r.n) != nil {
			blocked = blocked || p.share(r.client, r.n) == nil
			waiting = append(waiting, r)
			continue
		}
		p.take(r.client, r.n)
		close(r.granted)
	}
	clear(p.queue[len(waiting):])
	p.queue = waiting
}
