package app

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const (
	// reclaimInterval is how often it is looked how much memory bodies take.
	reclaimInterval = 250 * time.Millisecond
	// manyBytes is from how many bytes on the bodies of requests matter to the
	// memory of the process.
	manyBytes = 32 << 20
	// busyPercent is GOGC while they do. More would let the garbage of bodies
	// grow to several times what is in use.
	busyPercent = 50
)

// newBodies returns the memory for the bodies of requests. A body of the largest
// size always fits.
func (b *base) newBodies(cfg config.Limits) *admission.Pool {
	total := max(cfg.MaxBodyMemory, cfg.MaxRequestBody)
	l := admission.Limits{Total: total, Client: max(total/4, cfg.MaxRequestBody)}
	if share := b.anonymous(total); share > 0 {
		l.Anonymous = max(share, cfg.MaxRequestBody)
	}
	return admission.NewPool(l)
}

// reclaim gives memory back to the system after many bytes of bodies were in
// use, until ctx ends.
func (ag *agents) reclaim(ctx context.Context) {
	tick := time.NewTicker(reclaimInterval)
	defer tick.Stop()
	percent, busy := 0, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch peak := ag.bodies.Peak(); {
		case peak > manyBytes && !busy:
			busy, percent = true, debug.SetGCPercent(busyPercent)
		case peak < manyBytes/2 && busy:
			busy = false
			debug.SetGCPercent(percent)
			debug.FreeOSMemory()
		}
	}
}
