package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
)

// PieceSize is how much of an answer is held at a time.
const PieceSize = 64 << 10

// MaxWhole is how large an answer may be that the gate reads as a whole.
const MaxWhole = 16 << 20

// ErrUnchecked reports an answer that the gate had to read as a whole and could
// not.
var ErrUnchecked = errors.New("the answer cannot be checked")

// Answers that the gate has to see as a whole are read into memory. Small ones
// need no permission. Of others each upstream may have so many at a time, so
// that many large lists at once take a bounded amount of memory, and one
// upstream's leave room for another's.
const (
	mediumAnswer  = 1 << 20
	mediumAnswers = 32
	largeAnswers  = 2 // up to MaxWhole each
)

// A Room says how many answers of one upstream may be in memory.
type Room struct{ medium, large *semaphore.Weighted }

// NewRoom returns the room of one upstream.
func NewRoom() Room {
	return Room{medium: semaphore.NewWeighted(mediumAnswers), large: semaphore.NewWeighted(largeAnswers)}
}

// ErrNoRoom reports that too many large answers are being read.
var ErrNoRoom = errors.New("too many large answers at once")

// Seat returns a seat that has no permission yet.
func (r Room) Seat() *Seat { return &Seat{room: r} }

// A Seat is the permission to have one answer in memory. An answer takes a medium
// place before a large one, and none after that, so none waits for another that
// waits for it.
type Seat struct {
	room          Room
	medium, large bool
}

// Take waits until an answer of size bytes may be in memory. It returns ErrNoRoom
// if that takes longer than patience.
func (s *Seat) Take(ctx context.Context, size int, patience time.Duration) error {
	if s.TryTake(size) {
		return nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, patience, ErrNoRoom)
	defer stop()
	if size > PieceSize && !s.medium {
		if s.room.medium.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
		s.medium = true
	}
	if size > mediumAnswer && !s.large {
		if s.room.large.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
		s.large = true
	}
	return nil
}

// TryTake is [Seat.Take] for somebody who does not wait. It reports whether there is room.
func (s *Seat) TryTake(size int) bool {
	s.medium = s.medium || size > PieceSize && s.room.medium.TryAcquire(1)
	s.large = s.large || size > mediumAnswer && s.medium && s.room.large.TryAcquire(1)
	return (s.medium || size <= PieceSize) && (s.large || size <= mediumAnswer)
}

// Leave gives the permission back.
func (s *Seat) Leave() {
	if s.large {
		s.room.large.Release(1)
	}
	if s.medium {
		s.room.medium.Release(1)
	}
	s.medium, s.large = false, false
}

// ReadWhole reads a body of at most MaxWhole bytes into memory for which
// there is room. The returned Seat must be left once that is not needed any more.
func (r Room) ReadWhole(ctx context.Context, body io.Reader, patience time.Duration) ([]byte, *Seat, error) {
	s := &Seat{room: r}
	text := make([]byte, 0, PieceSize)
	for {
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, s, nil
		}
		if err == nil && len(text) == cap(text) {
			text, err = s.grown(ctx, text, patience)
		}
		if err != nil {
			s.Leave()
			return nil, s, err
		}
	}
}

// grown returns text with room for more of it.
func (s *Seat) grown(ctx context.Context, text []byte, patience time.Duration) ([]byte, error) {
	size := MaxWhole + 1
	switch {
	case len(text) > MaxWhole:
		return nil, ErrUnchecked
	case len(text) < mediumAnswer:
		size = mediumAnswer
	}
	if err := s.Take(ctx, size, patience); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), text...), nil
}
