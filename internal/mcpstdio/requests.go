package mcpstdio

import (
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A requestTable has the unanswered requests by ID. Of several with the same ID, the first is
// answered first.
type requestTable[T comparable] struct {
	open admission.InFlight

	mu   sync.Mutex
	byID map[string][]T
}

// add adds a request, unless there are most requests already.
func (r *requestTable[T]) add(id []byte, x T, most int) bool {
	if !r.open.Begin(most) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string][]T)
	}
	key := jsonrpc.IDKey(id)
	r.byID[key] = append(r.byID[key], x)
	return true
}

// get returns the first request with an ID, or the zero value.
func (r *requestTable[T]) get(id []byte) (x T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.byID[jsonrpc.IDKey(id)]; len(all) > 0 {
		return all[0]
	}
	return x
}

// take removes and returns the first request with an ID, or returns the zero value.
func (r *requestTable[T]) take(id []byte) (x T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.byID[jsonrpc.IDKey(id)]
	if len(all) == 0 {
		return x
	}
	x = all[0]
	r.remove(jsonrpc.IDKey(id), x)
	return x
}

// drop removes a request, and reports whether it was there.
func (r *requestTable[T]) drop(id []byte, x T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remove(jsonrpc.IDKey(id), x)
}

// remove is drop with the lock held.
func (r *requestTable[T]) remove(key string, x T) bool {
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
	r.open.End()
	return true
}

// each calls do for each request, in any order.
func (r *requestTable[T]) each(do func(T)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, some := range r.byID {
		for _, x := range some {
			do(x)
		}
	}
}
