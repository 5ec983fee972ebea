package memstore

import "sync"

// rooms count the pending tasks of owners that nobody has identified.
type rooms struct {
	mu      sync.Mutex // locked after that of a shard
	total   int
	pending map[string]int
}

// add counts more tasks of a room, or fewer. The caller has locked mu.
func (r *rooms) add(room string, by int) {
	if r.pending == nil {
		r.pending = make(map[string]int)
	}
	r.total += by
	if r.pending[room] += by; r.pending[room] == 0 {
		delete(r.pending, room)
	}
}
