package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
)

// PieceSize is the size of the pieces in which answers are relayed.
const PieceSize = 64 << 10

// MaxWhole is the size up to which the gate reads an answer into memory.
const MaxWhole = 16 << 20

// ErrUnchecked reports an answer that has to be read into memory to be checked, and cannot be.
var ErrUnchecked = errors.New("the answer cannot be checked: it is too large or not valid")

// Answers up to PieceSize need no permit. Larger ones are limited for each upstream, so that
// many large lists at once take a bounded amount of memory.
const (
	mediumAnswer  = 1 << 20
	mediumAnswers = 32
	largeAnswers  = 2 // up to MaxWhole each
)

// An AnswerLimit limits the answers of one upstream that are in memory at the same time.
type AnswerLimit struct{ medium, large *semaphore.Weighted }

// NewAnswerLimit returns the limit for one upstream.
func NewAnswerLimit() AnswerLimit {
	return AnswerLimit{medium: semaphore.NewWeighted(mediumAnswers), large: semaphore.NewWeighted(largeAnswers)}
}

// ErrTooManyAnswers reports that too many large answers are being read.
var ErrTooManyAnswers = errors.New("too many large answers at once")

// NewPermit returns a permit for an answer of up to PieceSize.
func (l AnswerLimit) NewPermit() *Permit { return &Permit{limit: l} }

// A Permit allows one answer to be in memory. A growing answer acquires the medium semaphore
// before the large one, and nothing after that, so permits cannot deadlock.
type Permit struct {
	limit         AnswerLimit
	medium, large bool
}

// Acquire waits until an answer of size bytes may be in memory. It returns ErrTooManyAnswers
// if that takes longer than timeout.
func (p *Permit) Acquire(ctx context.Context, size int, timeout time.Duration) error {
	if p.TryAcquire(size) {
		return nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, ErrTooManyAnswers)
	defer stop()
	if size > PieceSize && !p.medium {
		if p.limit.medium.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
		p.medium = true
	}
	if size > mediumAnswer && !p.large {
		if p.limit.large.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
		p.large = true
	}
	return nil
}

// TryAcquire is like [Permit.Acquire] but does not wait. It reports whether size is allowed.
func (p *Permit) TryAcquire(size int) bool {
	p.medium = p.medium || size > PieceSize && p.limit.medium.TryAcquire(1)
	//mutate:swap "p.medium && " "" TestTryAcquireInOrder an answer holds the large semaphore without the medium one
	p.large = p.large || size > mediumAnswer && p.medium && p.limit.large.TryAcquire(1)
	return (p.medium || size <= PieceSize) && (p.large || size <= mediumAnswer)
}

// Release gives the permit back.
func (p *Permit) Release() {
	if p.large {
		p.limit.large.Release(1)
	}
	if p.medium {
		p.limit.medium.Release(1)
	}
	p.medium, p.large = false, false
}

// ReadWhole reads a body of at most MaxWhole bytes into memory. The returned permit must be
// released when the text is no longer needed.
func (l AnswerLimit) ReadWhole(ctx context.Context, body io.Reader, timeout time.Duration) ([]byte, *Permit, error) {
	p := l.NewPermit()
	text := make([]byte, 0, PieceSize)
	for {
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, p, nil
		}
		if err == nil && len(text) == cap(text) {
			text, err = p.grow(ctx, text, timeout)
		}
		if err != nil {
			p.Release()
			return nil, p, err
		}
	}
}

// grow returns text with a larger capacity.
func (p *Permit) grow(ctx context.Context, text []byte, timeout time.Duration) ([]byte, error) {
	size := MaxWhole + 1
	switch {
	case len(text) > MaxWhole:
		return nil, ErrUnchecked
	case len(text) < mediumAnswer:
		size = mediumAnswer
	}
	if err := p.Acquire(ctx, size, timeout); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), text...), nil
}
