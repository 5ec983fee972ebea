package mcphttp

import (
	"io"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// idlePiece is how many bytes of a stream are read at a time, until more than that are
// available. Most streams are idle.
const idlePiece = 512

// An eventBuffer holds the bytes of a stream that were read and not sent yet. It is small
// while it waits, and grows when a read fills it.
type eventBuffer struct {
	piece []byte
	idle  []byte                    // the smallest piece
	large *[upstream.PieceSize]byte // a piece from the pool; nil if piece is not from the pool
	held  int                       // bytes in piece
	fresh int                       // bytes before the last read
	last  int                       // end of the last read
}

func newEventBuffer() *eventBuffer {
	idle := make([]byte, idlePiece)
	return &eventBuffer{piece: idle, idle: idle}
}

// read appends more bytes of the stream.
func (b *eventBuffer) read(from io.Reader) error {
	n, err := from.Read(b.piece[b.held:])
	b.fresh = b.held
	b.held += n
	b.last = b.held
	return err
}

func (b *eventBuffer) text() []byte { return b.piece[:b.held] }

func (b *eventBuffer) size() int { return len(b.piece) }

// full reports whether the last read filled the buffer, so that more bytes may be available.
func (b *eventBuffer) full() bool { return b.last == len(b.piece) }

// discard forgets the first n bytes.
func (b *eventBuffer) discard(n int) {
	if n > 0 { // n is often 0 while a large event arrives
		b.held = copy(b.piece, b.piece[n:b.held])
	}
}

// grow enlarges the buffer: to a whole piece at first, and then to twice the size.
func (b *eventBuffer) grow() {
	if len(b.piece) < upstream.PieceSize {
		b.large = pieces.Get().(*[upstream.PieceSize]byte)
		copy(b.large[:], b.text())
		b.piece = b.large[:]
		return
	}
	b.move(make([]byte, 2*len(b.piece)))
}

// shrink goes back to a smaller piece if that can hold the same bytes.
func (b *eventBuffer) shrink() {
	switch {
	case b.held == 0 && len(b.piece) > idlePiece:
		b.move(b.idle)
	case b.held <= upstream.PieceSize/2 && len(b.piece) > upstream.PieceSize:
		b.move(make([]byte, upstream.PieceSize))
	}
}

// move copies the held bytes to another piece.
func (b *eventBuffer) move(piece []byte) {
	copy(piece, b.text())
	b.piece = piece
	b.giveBack()
}

// giveBack returns the large piece to the pool.
func (b *eventBuffer) giveBack() {
	if b.large != nil {
		pieces.Put(b.large)
		b.large = nil
	}
}
