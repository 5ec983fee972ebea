package identity

import (
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
)

// Bounds of the cache. A key that an issuer withdraws still counts for those who
// have shown a token just before, so they are not kept long.
const (
	maxCached   = 10_000
	longestKept = 5 * time.Minute
)

// A cache knows the tokens that were found good.
type cache struct {
	mu  sync.RWMutex
	all map[bearer.Hash]cached
}

type cached struct {
	agent Agent
	until time.Time
}

func (c *cache) get(hash bearer.Hash, now time.Time) (Agent, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.all[hash]
	return found.agent, ok && now.Before(found.until)
}

func (c *cache) put(hash bearer.Hash, agent Agent, until, now time.Time) {
	if last := now.Add(longestKept); until.After(last) {
		until = last
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[bearer.Hash]cached)
	}
	if len(c.all) >= maxCached {
		c.makeRoom(now)
	}
	c.all[hash] = cached{agent, until}
}

// makeRoom forgets what is out of date, or else everything: it is all found out
// again.
func (c *cache) makeRoom(now time.Time) {
	for hash, found := range c.all {
		if !now.Before(found.until) {
			delete(c.all, hash)
		}
	}
	if len(c.all) >= maxCached {
		clear(c.all)
	}
}
