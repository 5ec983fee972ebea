package mcpstdio

import (
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A tally counts what goes on. Unlike with a [sync.WaitGroup], something may begin
// while somebody waits for all to end.
type tally struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when nothing goes on any more; nil if nobody waits for that
}

// begin counts one more, unless there are as many as there may be. Zero means any
// number.
func (t *tally) begin(most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most > 0 && t.count >= most {
		return false
	}
	t.count++
	return true
}

// end counts one less.
func (t *tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count--; t.count == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
}

// Go runs f in a goroutine of its own, and counts it until it returns.
func (t *tally) Go(f func()) {
	t.begin(0)
	go func() {
		defer t.end()
		f()
	}()
}

// wait waits until nothing goes on.
func (t *tally) wait() {
	t.mu.Lock()
	if t.count == 0 {
		t.mu.Unlock()
		return
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	<-none
}

// requests are those that have no answer yet, by their ids. Several may have the
// same id: then the first one is answered first.
type requests struct {
	tally

	lock sync.Mutex
	byID map[string][]*exchange
}

// idKey returns what distinguishes an id from others; see [jsonrpc.SameID].
func idKey(id []byte) string {
	if text, ok := (jsonrpc.Value{Bytes: id}).Text(); ok {
		return `"` + text
	}
	return string(id)
}

// add takes a request in, unless there are as many as there may be.
func (r *requests) add(id []byte, x *exchange, most int) bool {
	if !r.begin(most) {
		return false
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.byID == nil {
		r.byID = make(map[string][]*exchange)
	}
	key := idKey(id)
	r.byID[key] = append(r.byID[key], x)
	return true
}

// get returns the first request with an id, or nil.
func (r *requests) get(id []byte) *exchange {
	r.lock.Lock()
	defer r.lock.Unlock()
	if all := r.byID[idKey(id)]; len(all) > 0 {
		return all[0]
	}
	return nil
}

// take takes out the first request with an id and returns it, or nil.
func (r *requests) take(id []byte) *exchange {
	r.lock.Lock()
	defer r.lock.Unlock()
	all := r.byID[idKey(id)]
	if len(all) == 0 {
		return nil
	}
	x := all[0]
	r.remove(idKey(id), x)
	return x
}

// drop takes a request out, and reports whether it was there.
func (r *requests) drop(id []byte, x *exchange) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.remove(idKey(id), x)
}

// remove is drop for one who holds the lock.
func (r *requests) remove(key string, x *exchange) bool {
	all := r.byID[key]
	i := slices.Index(all, x)
	if i < 0 {
		return false
	}
	if len(all) == 1 {
		delete(r.byID, key)
	} else {
		r.byID[key] = slices.Delete(all, i, i+1)
	}
	r.end()
	return true
}

// all returns all of them, in no order.
func (r *requests) all() (all []*exchange) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, some := range r.byID {
		all = append(all, some...)
	}
	return all
}

const methodCancelled = "notifications/cancelled"
