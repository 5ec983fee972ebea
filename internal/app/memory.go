package app

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
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

	// largeHeap is from how many bytes in use on the heap is a large one, as that of
	// a gate with thousands of streams. largePercent is GOGC then, at most: garbage
	// that takes several times as much would cost more than to collect it.
	largeHeap    = 64 << 20
	largePercent = 100
)

// heapInUse is what the last collection of garbage has left.
const heapInUse = "/gc/heap/live:bytes"

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

// reclaim gives memory back to the system once the gate has started, and after many
// bytes of bodies were in use, and has garbage collected more often while much memory
// is, until ctx ends.
func (ag *agents) reclaim(ctx context.Context) {
	tick := time.NewTicker(reclaimInterval)
	defer tick.Stop()
	usual := debug.SetGCPercent(largePercent)
	debug.SetGCPercent(usual)
	c := collector{usual: usual, percent: usual}
	heap := []metrics.Sample{{Name: heapInUse}}
	debug.FreeOSMemory()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(heap)
		busy := c.busy
		if percent := c.next(ag.bodies.Peak(), heap[0].Value.Uint64()); percent != c.percent {
			c.percent = percent
			debug.SetGCPercent(percent)
		}
		if busy && !c.busy {
			debug.FreeOSMemory()
		}
	}
}

// A collector decides how often garbage is collected.
type collector struct {
	usual   int // GOGC of a gate that uses little memory
	percent int // and now
	busy    bool
	large   bool
}

// next returns GOGC, given how many bytes of bodies have been in use, and how many of
// the heap are. Each of both has to become much smaller to count as small again.
func (c *collector) next(bodies int64, heap uint64) int {
	c.busy = bodies > manyBytes || c.busy && bodies >= manyBytes/2
	c.large = heap > largeHeap || c.large && heap >= largeHeap/2
	switch {
	case c.busy:
		return busyPercent
	case c.large && c.usual > largePercent:
		return largePercent
	default:
		return c.usual
	}
}
