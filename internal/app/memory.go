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
	reclaimInterval = 250 * time.Millisecond // between measurements of memory use

	// While bodies use more than manyBytes, GOGC is busyPercent. With a higher value the
	// garbage of bodies would be several times larger than the bodies in use.
	manyBytes   = 32 << 20
	busyPercent = 50

	// While the live heap is larger than largeHeap, as with thousands of streams, GOGC is
	// at most largePercent.
	largeHeap    = 64 << 20
	largePercent = 100
)

// heapInUse is the runtime metric of the live heap after the last garbage collection.
const heapInUse = "/gc/heap/live:bytes"

// bodyMemory bounds the memory for request bodies, unless eight of the largest need more.
const bodyMemory = 256 << 20

// newBodies returns the memory for request bodies. A body of the largest size always fits.
func (b *base) newBodies(cfg config.Limits) *admission.Pool {
	total := max(min(256*cfg.MaxRequestBody, bodyMemory), 8*cfg.MaxRequestBody)
	l := admission.Limits{Total: total, Client: max(total/4, cfg.MaxRequestBody)}
	if share := b.anonymous(total); share > 0 {
		l.Anonymous = max(share, cfg.MaxRequestBody)
	}
	return admission.NewPool(l)
}

// reclaim runs until ctx ends. It returns memory to the system after the start and after
// bodies used much memory, and lowers GOGC while much memory is in use.
func (ag *agents) reclaim(ctx context.Context) {
	tick := time.NewTicker(reclaimInterval)
	defer tick.Stop()
	usual := debug.SetGCPercent(largePercent)
	debug.SetGCPercent(usual)
	c := gcTuner{usual: usual, percent: usual}
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

// A gcTuner chooses GOGC.
type gcTuner struct {
	usual   int  // while little memory is in use
	percent int  // now
	busy    bool // bodies use much memory
	large   bool // the heap is large
}

// next returns GOGC, given the bytes that bodies and the live heap use. Hysteresis: each
// value must fall to half of its threshold to count as small again.
func (c *gcTuner) next(bodies int64, heap uint64) int {
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
