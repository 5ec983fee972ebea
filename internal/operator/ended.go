package operator

import (
	"sync"
	"time"
)

// endings are the sessions that this replica knows to have ended. Somebody who
// can write to the database can put the record of one back; that does not bring
// it to life here before the gate is started again.
type endings struct {
	mu    sync.Mutex
	until map[string]time.Time // when each would have ended by itself, by the name of its record
	swept int                  // how many were left when those were dropped whose time was over
}

// minSweep is how many are remembered before those are dropped whose time is over.
const minSweep = 10_000

// add notes that the session with this record has ended.
func (e *endings) add(record string, until, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until == nil || len(e.until) >= max(minSweep, 2*e.swept) {
		e.sweep(now)
	}
	e.until[record] = until
}

// sweep drops those whose time is over. All operators wait for it, so it is done
// only when their number has doubled since the last time.
func (e *endings) sweep(now time.Time) {
	kept := make(map[string]time.Time)
	for name, end := range e.until {
		if end.After(now) {
			kept[name] = end
		}
	}
	e.until, e.swept = kept, len(kept)
}

// has reports whether the session with this record is known to have ended.
func (e *endings) has(record string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.until[record]
	return ended
}

// noteEnd notes that a session has ended, whatever the store will say of it.
func (a *Auth) noteEnd(record string) {
	now := a.cfg.Now()
	a.ended.add(record, now.Add(a.cfg.Session), now)
}
