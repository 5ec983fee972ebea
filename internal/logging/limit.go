package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	burst           = 50 // lines of one kind that are written without a limit
	perSecond       = 5  // lines of one kind after the burst
	summaryInterval = 10 * time.Second
	maxKinds        = 256 // kinds that are counted separately
)

type limitKey struct{}

// A limit groups the lines that count together.
type limit struct{ reason, source string }

// Limited returns a context for a line that a client can cause any number of times.
// Of the lines with the same message, reason and source the first 50 are written, then
// 5 per second. A summary every ten seconds counts the lines that were left out. Lines
// about a held call are always written.
func Limited(ctx context.Context, reason, source string) context.Context {
	return context.WithValue(ctx, limitKey{}, limit{reason, source})
}

// Close writes the last summary. Later lines of the logger are all written.
func Close(ctx context.Context, log *slog.Logger) {
	if h, ok := log.Handler().(handler); ok {
		h.limiter.close(ctx)
	}
}

// A kind identifies lines that count together.
type kind struct {
	level   slog.Level
	message string
	limit   limit
}

// others counts the lines of all kinds beyond maxKinds.
var others = kind{level: slog.LevelWarn, message: "various"}

// A counter limits and counts the lines of one kind.
type counter struct {
	allowed *rate.Limiter
	dropped int // since the last summary
}

// A limiter drops and counts lines over the limit. It is safe for concurrent use.
type limiter struct {
	to *slog.Logger

	mu     sync.Mutex
	kinds  map[kind]*counter // recently seen
	next   *time.Timer       // fires the next summary; nil while kinds is empty
	closed bool
}

func newLimiter(to slog.Handler) *limiter {
	return &limiter{to: slog.New(to), kinds: make(map[kind]*counter)}
}

// allow reports whether a line is to be written, and counts it otherwise.
func (l *limiter) allow(ctx context.Context, r slog.Record) bool {
	limited, ok := ctx.Value(limitKey{}).(limit)
	if !ok || ctx.Value(callKey{}) != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	k := kind{level: r.Level, message: r.Message, limit: limited}
	if l.kinds[k] == nil && len(l.kinds) >= maxKinds {
		k = others
	}
	if l.kinds[k] == nil {
		l.kinds[k] = &counter{allowed: rate.NewLimiter(perSecond, burst)}
	}
	if l.next == nil {
		l.next = time.AfterFunc(summaryInterval, l.tick)
	}
	if l.kinds[k].allowed.Allow() {
		return true
	}
	l.kinds[k].dropped++
	return false
}

// tick writes summaries, and removes the kinds whose burst is available again.
func (l *limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.summarise(context.Background())
	if len(l.kinds) == 0 {
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
	clear(l.kinds)
}

func (l *limiter) summarise(ctx context.Context) {
	for k, seen := range l.kinds {
		if seen.dropped == 0 {
			if seen.allowed.Tokens() >= burst {
				delete(l.kinds, k)
			}
			continue
		}
		attrs := []slog.Attr{slog.String("line", k.message), slog.Int("count", seen.dropped)}
		if k != others {
			attrs = append(attrs, slog.String("reason", k.limit.reason), slog.String("source", k.limit.source))
		}
		seen.dropped = 0
		l.to.LogAttrs(ctx, k.level, "similar lines left out", attrs...)
	}
}
