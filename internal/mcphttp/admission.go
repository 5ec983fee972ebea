package mcphttp

import (
	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// room returns the client whose share of the gate the exchange uses: the
// principal, or everybody without an identity at the same address. A session
// does not count, because a client can make up as many as it likes.
func (c *client) room() admission.Client {
	if p := c.agent.Principal; !p.Anonymous {
		return admission.Principal(p.ID)
	}
	return admission.Address(c.r.RemoteAddr)
}

// within runs serve if the pool has a place for the exchange. Otherwise it
// refuses the exchange before any of its body was read.
func (x *exchange) within(pool *admission.Pool, serve func() error) error {
	x.guest = x.client.room()
	x.body.guest = x.guest
	if !x.guest.Identified() {
		if err := x.h.anonymous.Try(x.guest, 1); err != nil {
			return x.Fail(err)
		}
		defer x.h.anonymous.Release(x.guest, 1)
	}
	if err := x.moveTo(pool); err != nil {
		return x.Fail(err)
	}
	defer func() {
		x.place.Release(x.guest, 1)
		x.body.giveBack(0)
	}()
	return serve()
}

// moveTo takes a place in another pool and gives up the one that the exchange
// has. If there is none, the exchange keeps its place.
func (x *exchange) moveTo(pool *admission.Pool) error {
	if x.place == pool {
		return nil
	}
	if err := pool.Try(x.guest, 1); err != nil {
		return err
	}
	if x.place != nil {
		x.place.Release(x.guest, 1)
	}
	x.place = pool
	return nil
}

// Park implements [conversation.Reply]. A stream keeps the place that it has.
func (x *exchange) Park() error {
	if x.place != x.h.requests {
		return nil
	}
	return x.moveTo(x.h.waiting)
}
