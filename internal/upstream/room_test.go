package upstream_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// Whoever finds no medium place takes no large one either: somebody who has a medium
// place may wait for it.
func TestTryTakeInOrder(t *testing.T) {
	const medium, large = upstream.PieceSize + 1, upstream.MaxWhole
	room := upstream.NewRoom()
	var seated []*upstream.Seat
	for seat := room.Seat(); seat.TryTake(medium); seat = room.Seat() {
		seated = append(seated, seat)
	}
	late := room.Seat()
	if late.TryTake(large) || !late.TryTake(upstream.PieceSize) {
		t.Error("a large answer needs a place, a small one does not")
	}
	grown := 0
	for grown < len(seated) && seated[grown].TryTake(large) {
		grown++
	}
	late.Leave()
	if grown != 2 || seated[grown].TryTake(large) {
		t.Errorf("%d of %d have a large place; want 2", grown, len(seated))
	}
	seated[0].Leave()
	if !late.TryTake(large) {
		t.Error("a place that was given back is not taken")
	}
}
