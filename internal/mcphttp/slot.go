package mcphttp

import (
	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A slot counts an exchange in one of the pools that limit concurrent requests and streams.
type slot struct {
	h      *Handler
	client admission.Client // see client.admissionClient
	pool   *admission.Pool  // the pool that counts the exchange; nil before enter
}

// enter takes a slot of pool for a client.
func (p *slot) enter(pool *admission.Pool, client admission.Client) error {
	if !client.Identified() {
		if err := p.h.anonymous.TryAcquire(client, 1); err != nil {
			return err
		}
	}
	p.client = client
	err := p.moveTo(pool)
	if err != nil && !client.Identified() {
		p.h.anonymous.Release(client, 1)
	}
	return err
}

// moveTo takes a slot of another pool and releases the present one. On error the exchange keeps
// its slot.
func (p *slot) moveTo(pool *admission.Pool) error {
	if p.pool == pool {
		return nil
	}
	if err := pool.TryAcquire(p.client, 1); err != nil {
		return err
	}
	if p.pool != nil {
		p.pool.Release(p.client, 1)
	}
	p.pool = pool
	return nil
}

// park moves a request that is going to wait to the waiting pool, so that it does not block
// others. A stream keeps its slot.
func (p *slot) park() error {
	if p.pool != p.h.requests {
		return nil
	}
	return p.moveTo(p.h.waiting)
}

// leave releases the slot.
func (p *slot) leave() {
	p.pool.Release(p.client, 1)
	if !p.client.Identified() {
		p.h.anonymous.Release(p.client, 1)
	}
}
