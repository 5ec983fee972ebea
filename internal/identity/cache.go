package identity

import (
	"maps"
	"sync"
	"time"
)

// Limits of the cache.
const (
	maxCached    = 10_000
	maxCacheTime = 5 * time.Minute
)

// A cache holds what was verified. Entries expire soon, because they remain valid after
// an issuer has revoked its key.
type cache[T any] struct {
	mu  sync.RWMutex
	all map[Hash]cached[T]
}

type cached[T any] struct {
	verified T
	until    time.Time
}

func (c *cache[T]) get(hash Hash, now time.Time) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.all[hash]
	return found.verified, ok && now.Before(found.until)
}

func (c *cache[T]) put(hash Hash, verified T, until, now time.Time) {
	if last := now.Add(maxCacheTime); until.After(last) {
		until = last
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[Hash]cached[T])
	}
	if len(c.all) >= maxCached {
		c.evict(now)
	}
	c.all[hash] = cached[T]{verified, until}
}

// evict removes expired entries, or all if none has expired: they can be verified again.
func (c *cache[T]) evict(now time.Time) {
	maps.DeleteFunc(c.all, func(_ Hash, found cached[T]) bool { return !now.Before(found.until) })
	if len(c.all) >= maxCached {
		clear(c.all)
	}
}
