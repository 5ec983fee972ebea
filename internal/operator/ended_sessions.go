package operator

import (
	"sync"
	"time"
)

// endedSessions are the sessions that are known to have ended. An attacker who can write to
// the database and restores the record of one cannot use it until the gate restarts.
type endedSessions struct {
	mu       sync.Mutex
	until    map[string]time.Time // the expiry of each session, by record
	keptLast int                  // how many remained after dropExpired
}

// minDrop is the number of sessions from which dropExpired is called.
const minDrop = 10_000

// add records that a session has ended.
func (e *endedSessions) add(record string, until, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until == nil || len(e.until) >= max(minDrop, 2*e.keptLast) {
		e.dropExpired(now)
	}
	e.until[record] = until
}

// dropExpired forgets expired sessions. It holds the lock, so it is called only when their
// number has doubled since the last call.
func (e *endedSessions) dropExpired(now time.Time) {
	kept := make(map[string]time.Time)
	for name, end := range e.until {
		if end.After(now) {
			kept[name] = end
		}
	}
	e.until, e.keptLast = kept, len(kept)
}

// contains reports whether a session is known to have ended.
func (e *endedSessions) contains(record string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.until[record]
	return ended
}

// rememberEnded records that a session has ended, even if its record returns.
func (a *Auth) rememberEnded(record string) {
	now := a.cfg.Now()
	a.ended.add(record, now.Add(a.cfg.Session), now)
}
