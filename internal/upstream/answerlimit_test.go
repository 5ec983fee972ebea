package upstream_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A permit without the medium semaphore must not hold the large one: the holder of a medium
// semaphore may wait for it.
func TestTryAcquireInOrder(t *testing.T) {
	const medium, large = upstream.PieceSize + 1, upstream.MaxWhole
	limit := upstream.NewAnswerLimit()
	var held []*upstream.Permit
	for p := limit.NewPermit(); p.TryAcquire(medium); p = limit.NewPermit() {
		held = append(held, p)
	}
	late := limit.NewPermit()
	if late.TryAcquire(large) || !late.TryAcquire(upstream.PieceSize) {
		t.Error("a large answer needs the medium semaphore, a small one does not")
	}
	grown := 0
	for grown < len(held) && held[grown].TryAcquire(large) {
		grown++
	}
	late.Release()
	if grown != 2 || held[grown].TryAcquire(large) {
		t.Errorf("%d of %d permits are large; want 2", grown, len(held))
	}
	held[0].Release()
	if !late.TryAcquire(large) {
		t.Error("a released permit cannot be acquired")
	}
}
