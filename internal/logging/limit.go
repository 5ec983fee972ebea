package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// summaryInterval is how often the log says how many lines were left out.
	summaryInterval = 10 * time.Second
	// maxKinds is how many kinds of lines are distinguished.
	maxKinds = 256
)

type limitKey struct{}

// A limit is what a context says of lines that strangers can cause.
type limit struct{ reason, source string }

// Limited returns a context for a line that strangers can cause as often as they
// like. Of the lines with the same message, reason and source the first is
// written, and then every ten seconds how many more there were. Lines about a
// held call are always written.
func Limited(ctx context.Context, reason, source string) context.Context {
	return context.WithValue(ctx, limitKey{}, limit{reason, source})
}

// Close writes how many lines were left out. Later lines of the logger are all
// written.
func Close(ctx context.Context, log *slog.Logger) {
	if h, ok := log.Handler().(handler); ok {
		h.limiter.close(ctx)
	}
}

// A kind is of lines of which one is enough for a while.
type kind struct {
	level slog.Level
	line  string // the message
	limit
}

// others is the kind of lines for whose kind there is no room.
var others = kind{level: slog.LevelWarn, line: "various"}

// A limiter counts lines that are left out. It is safe for concurrent use.
type limiter struct {
	to *slog.Logger

	mu     sync.Mutex
	more   map[kind]int // lines left out since the last summary, of kinds seen since the one before
	next   *time.Timer  // for the next summary; nil if nothing is counted
	closed bool
}

func newLimiter(to slog.Handler) *limiter {
	return &limiter{to: slog.New(to), more: make(map[kind]int)}
}

// admits reports whether a line is to be written, and counts it otherwise.
func (l *limiter) admits(ctx context.Context, r slog.Record) bool {
	limited, ok := ctx.Value(limitKey{}).(limit)
	if !ok || ctx.Value(callKey{}) != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	k := kind{level: r.Level, line: r.Message, limit: limited}
	if _, seen := l.more[k]; !seen && len(l.more) >= maxKinds {
		k = others
	}
	if _, seen := l.more[k]; seen {
		l.more[k]++
		return false
	}
	l.more[k] = 0
	if l.next == nil {
		l.next = time.AfterFunc(summaryInterval, l.tick)
	}
	return true
}

// tick writes summaries, and forgets the kinds of which there were no more lines.
func (l *limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.summarise(context.Background())
	if len(l.more) == 0 {
		l.next = nil
		return
	}
	l.next.Reset(summaryInterval)
}

func (l *limiter) close(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.next != nil {
		l.next.Stop()
	}
	l.summarise(ctx)
	clear(l.more)
}

func (l *limiter) summarise(ctx context.Context) {
	for k, count := range l.more {
		if count == 0 {
			delete(l.more, k)
			continue
		}
		l.more[k] = 0
		attrs := []slog.Attr{slog.String("line", k.line), slog.Int("count", count)}
		if k != others {
			attrs = append(attrs, slog.String("reason", k.reason), slog.String("source", k.source))
		}
		l.to.LogAttrs(ctx, k.level, "similar lines left out", attrs...)
	}
}
