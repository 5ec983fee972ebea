package mcphttp

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
)

// Answers that the gate has to see as a whole are read into memory. Small ones
// need no permission. Of others each upstream may have so many at a time, so
// that many large lists at once take a bounded amount of memory, and one
// upstream's leave room for another's.
const (
	mediumAnswer  = 1 << 20
	mediumAnswers = 32
	largeAnswers  = 2 // up to maxRewritten each
)

// A readingRoom says how many answers of one upstream may be in memory.
type readingRoom struct{ medium, large *semaphore.Weighted }

func newReadingRoom() readingRoom {
	return readingRoom{medium: semaphore.NewWeighted(mediumAnswers), large: semaphore.NewWeighted(largeAnswers)}
}

// errNoRoom reports that too many large answers are being read.
var errNoRoom = errors.New("too many large answers at once")

// A seat is the permission to have one answer in memory. An answer takes a medium
// place before a large one, and none after that, so none waits for another that
// waits for it.
type seat struct {
	room          readingRoom
	medium, large bool
}

// take waits until an answer of size bytes may be in memory. It returns errNoRoom
// if that takes longer than patience.
func (s *seat) take(ctx context.Context, size int, patience time.Duration) error {
	ctx, stop := context.WithTimeoutCause(ctx, patience, errNoRoom)
	defer stop()
	if size > pieceSize && !s.medium {
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

// leave gives the permission back.
func (s *seat) leave() {
	if s.large {
		s.room.large.Release(1)
	}
	if s.medium {
		s.room.medium.Release(1)
	}
	s.medium, s.large = false, false
}

// readWhole reads a body of at most maxRewritten bytes into memory for which
// there is room. The returned seat must be left once that is not needed any more.
func (r readingRoom) readWhole(ctx context.Context, body io.Reader, patience time.Duration) ([]byte, *seat, error) {
	s := &seat{room: r}
	text := make([]byte, 0, pieceSize)
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
			s.leave()
			return nil, s, err
		}
	}
}

// grown returns text with room for more of it.
func (s *seat) grown(ctx context.Context, text []byte, patience time.Duration) ([]byte, error) {
	size := maxRewritten + 1
	switch {
	case len(text) > maxRewritten:
		return nil, errUnchecked
	case len(text) < mediumAnswer:
		size = mediumAnswer
	}
	if err := s.take(ctx, size, patience); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), text...), nil
}
