package mcphttp

import (
	"io"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// idlePiece is how much of a stream is read at a time, until more than that is
// there. Most streams are idle.
const idlePiece = 512

// An eventBuffer holds what was read of a stream and not sent yet. It is small
// while it waits, and grows when a read fills it.
type eventBuffer struct {
	piece []byte
	idle  []byte                    // the smallest piece
	large *[upstream.PieceSize]byte // a piece that others use as well; nil if piece is another
	held  int                       // bytes in piece
	fresh int                       // how many were there before the last read
	last  int                       // how far the last read came
}

func newEventBuffer() *eventBuffer {
	idle := make([]byte, idlePiece)
	return &eventBuffer{piece: idle, idle: idle}
}

// read reads more behind what is held.
func (b *eventBuffer) read(from io.Reader) error {
	n, err := from.Read(b.piece[b.held:])
	b.fresh = b.held
	b.held += n
	b.last = b.held
	return err
}

func (b *eventBuffer) text() []byte { return b.piece[:b.held] }

func (b *eventBuffer) size() int { return len(b.piece) }

// full reports whether the last read filled the buffer, so that more may be there.
func (b *eventBuffer) full() bool { return b.last == len(b.piece) }

// discard forgets the first n bytes.
func (b *eventBuffer) discard(n int) {
	if n > 0 { // while a large event arrives, there is nothing to forget, again and again
		b.held = copy(b.piece, b.piece[n:b.held])
	}
}

// grow makes room for more: for a whole piece at first, and then for twice as much.
func (b *eventBuffer) grow() {
	if len(b.piece) < upstream.PieceSize {
		b.large = pieces.Get().(*[upstream.PieceSize]byte)
		copy(b.large[:], b.text())
		b.piece = b.large[:]
		return
	}
	b.move(make([]byte, 2*len(b.piece)))
}

// shrink goes back to a smaller piece if that has room for what is held.
func (b *eventBuffer) shrink() {
	switch {
	case b.held == 0 && len(b.piece) > idlePiece:
		b.move(b.idle)
	case b.held <= upstream.PieceSize/2 && len(b.piece) > upstream.PieceSize:
		b.move(make([]byte, upstream.PieceSize))
	}
}

// move holds the same in another piece.
func (b *eventBuffer) move(piece []byte) {
	copy(piece, b.text())
	b.piece = piece
	b.giveBack()
}

// giveBack lets others use the large piece.
func (b *eventBuffer) giveBack() {
	if b.large != nil {
		pieces.Put(b.large)
		b.large = nil
	}
}
