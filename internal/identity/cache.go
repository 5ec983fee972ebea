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

// A cache holds the agents of verified tokens. Entries expire soon, because they remain valid after
// an issuer has revoked its key.
type cache struct {
	mu  sync.RWMutex
	all map[Hash]cached
}

type cached struct {
	agent Agent
	until time.Time
}

func (c *cache) get(hash Hash, now time.Time) (Agent, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.all[hash]
	return found.agent, ok && now.Before(found.until)
}

func (c *cache) put(hash Hash, agent Agent, until, now time.Time) {
	if last := now.Add(maxCacheTime); until.After(last) {
		until = last
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[Hash]cached)
	}
	if len(c.all) >= maxCached {
		c.evict(now)
	}
	c.all[hash] = cached{agent, until}
}

// evict removes expired entries, or all if none has expired: they can be verified again.
func (c *cache) evict(now time.Time) {
	maps.DeleteFunc(c.all, func(_ Hash, found cached) bool { return !now.Before(found.until) })
	if len(c.all) >= maxCached {
		clear(c.all)
	}
}
