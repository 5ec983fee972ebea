// Package admission limits what each client, and all clients together, may use
// at the same time: connections, requests, streams, bytes.
//
//	p := admission.NewPool(admission.Limits{Total: 100, Client: 10})
//	if err := p.TryAcquire(admission.Address(remote), 1); err != nil {
//		return err // ErrClient or ErrFull
//	}
//	defer p.Release(admission.Address(remote), 1)
//
// A [Slot] is one unit of a pool that can be taken back while its client does not use it.
package admission

import (
	"container/list"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"
)

// A Client is a user of a [Pool]: an authenticated principal, or all clients without
// an identity at one address. It is a pointer, because each request looks it up in
// several maps.
type Client struct{ name unique.Handle[clientName] }

type clientName struct {
	principal string
	network   netip.Prefix
}

// Principal returns the client that was authenticated as id.
func Principal(id string) Client { return Client{unique.Make(clientName{principal: "id " + id})} }

// Address returns the anonymous client at a network address, given as host:port. All
// addresses of one IPv6 network of 64 bits count as one client, because one subscriber
// usually has all of them.
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

// Network returns the address of an anonymous client as text, and "" for a principal.
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

type clientKey struct{}

// WithClient returns a context for work on behalf of c.
func WithClient(ctx context.Context, c Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// ClientOf returns the client of [WithClient]. It returns the zero Client for work of the gate itself.
func ClientOf(ctx context.Context) Client {
	c, _ := ctx.Value(clientKey{}).(Client)
	return c
}

// Limits bound the use of a pool. A zero field means no limit.
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
	peak      int64 // the maximum of used since the last call of Peak
	anonymous int64 // the part of used that anonymous clients have
	byClient  map[Client]int64
	queue     []*request
	idle      map[Client]*list.List // of *Slot, the longest idle first
	idleCount uint64                // how often a slot became idle
}

// A request waits in the queue of a pool.
type request struct {
	client  Client
	n       int64
	granted chan struct{}
}

// NewPool returns a pool with the given limits.
func NewPool(l Limits) *Pool {
	return &Pool{limits: l, byClient: make(map[Client]int64), idle: make(map[Client]*list.List)}
}

// Used returns how much is in use.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Peak returns the maximum that was in use since the last call of Peak.
func (p *Pool) Peak() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	peak := p.peak
	p.peak = p.used
	return peak
}

// TryAcquire takes n for c, or returns [ErrClient] or [ErrFull] at once.
func (p *Pool) TryAcquire(c Client, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(c, n); err != nil {
		return err
	}
	if len(p.queue) > 0 {
		return ErrFull // the requests in the queue come first
	}
	p.take(c, n)
	return nil
}

// Acquire takes n for c. If the pool is full, it waits for its turn, at most for the
// given time.
func (p *Pool) Acquire(ctx context.Context, c Client, n int64, timeout time.Duration) error {
	err := p.TryAcquire(c, n)
	if err == nil || timeout <= 0 {
		return err
	}
	r := &request{client: c, n: n, granted: make(chan struct{})}
	p.mu.Lock()
	p.queue = append(p.queue, r)
	p.grant()
	p.mu.Unlock()
	timer := time.NewTimer(timeout)
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

// abandon removes a request from the queue and returns err. It returns nil if the
// request was granted in the meantime.
func (p *Pool) abandon(r *request, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, r)
	if i < 0 {
		return nil
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	p.grant() // the request may have blocked others
	return err
}

// Release returns n that c has taken.
func (p *Pool) Release(c Client, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(c, n)
}

func (p *Pool) release(c Client, n int64) {
	p.add(c, -n)
	if p.byClient[c] == 0 {
		delete(p.byClient, c)
	}
	if len(p.queue) > 0 {
		p.grant()
	}
}

func (p *Pool) take(c Client, n int64) {
	p.add(c, n)
	p.peak = max(p.peak, p.used)
}

func (p *Pool) add(c Client, n int64) {
	p.used += n
	p.byClient[c] += n
	if !c.Identified() {
		p.anonymous += n
	}
}

// check returns nil if c may take n more now.
func (p *Pool) check(c Client, n int64) error {
	if err := p.checkShare(c, n); err != nil {
		return err
	}
	if p.limits.Total > 0 && p.used+n > p.limits.Total {
		return ErrFull
	}
	return nil
}

// checkShare returns nil unless n more exceed the limit of c, or that of all anonymous clients.
func (p *Pool) checkShare(c Client, n int64) error {
	switch l := p.limits; {
	//mutate:false TestTryAcquire one client may use everything
	case l.Client > 0 && p.byClient[c]+n > l.Client:
		return ErrClient
	//mutate:false TestTryAcquire anonymous clients may use everything
	case l.Anonymous > 0 && !c.Identified() && p.anonymous+n > l.Anonymous:
		return ErrFull
	default:
		return nil
	}
}

// grant serves the queue in its order. A request that exceeds the share of its client
// does not block the requests behind it. A request that exceeds only the total does,
// because otherwise a large request would never get its turn.
func (p *Pool) grant() {
	waiting := p.queue[:0]
	blocked := false
	for _, r := range p.queue {
		if blocked || p.check(r.client, r.n) != nil {
			blocked = blocked || p.checkShare(r.client, r.n) == nil
			waiting = append(waiting, r)
			continue
		}
		p.take(r.client, r.n)
		close(r.granted)
	}
	clear(p.queue[len(waiting):])
	p.queue = waiting
}
