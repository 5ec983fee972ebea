package conversation

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestBoundedMapKeepsLimit(t *testing.T) {
	m := boundedMap[int, int]{limit: 3}
	for i := range 10 {
		m.set(i, i)
		if !m.has(i) {
			t.Errorf("%d is missing", i)
		}
	}
	if len(m.values) != 3 {
		t.Errorf("%d values; want 3", len(m.values))
	}
	if n := m.update(9, func(n int) int { return n + 1 }); n != 10 || len(m.values) != 3 {
		t.Errorf("a known value became %d, of %d; want 10, of 3", n, len(m.values))
	}
}

// A request whose client has left does not count among the requests that share one run, because
// usually the same client has called again.
func TestRequestOfGoneClientIsNotCounted(t *testing.T) {
	var held heldRequests
	of := task.Ref{ID: "t"}
	first, second := &heldRequest{ref: of}, &heldRequest{ref: of}
	held.addWaiter(first, requestKey{"client", "1"})
	held.addWaiter(second, requestKey{"client", "2"})
	if n := held.shared("t"); n != 2 {
		t.Errorf("%d requests wait; want 2", n)
	}
	held.dropWaiter(first)
	if n := held.shared("t"); n != 1 {
		t.Errorf("%d requests wait after one left; want 1", n)
	}
}
