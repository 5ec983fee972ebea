package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Terminal is the format of lines for people: the time of day, the level if it is not INFO, the
// message, and the attributes.
const Terminal = "terminal"

// A terminal writes lines for people.
type terminal struct {
	slog.Handler // writes the attributes to page.text

	page *page // shared by all handlers derived from one
}

// A page is where the lines go.
type page struct {
	w    io.Writer
	mu   sync.Mutex
	text bytes.Buffer // the attributes of the current line
}

func newTerminal(w io.Writer, level slog.Leveler) terminal {
	p := &page{w: w}
	return terminal{slog.NewTextHandler(&p.text, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && slices.Contains([]string{slog.TimeKey, slog.LevelKey, slog.MessageKey}, a.Key) {
			return slog.Attr{} // Handle writes it
		}
		return a
	}}), p}
}

// Handle implements [slog.Handler].
func (t terminal) Handle(ctx context.Context, r slog.Record) error {
	t.page.mu.Lock()
	defer t.page.mu.Unlock()
	t.page.text.Reset()
	if err := t.Handler.Handle(ctx, r); err != nil {
		return err
	}
	line := r.Time.Local().Format(time.TimeOnly) + " "
	if r.Level != slog.LevelInfo {
		line += r.Level.String() + " "
	}
	line += r.Message
	if t.page.text.Len() > 1 {
		line += "  "
	}
	_, err := io.WriteString(t.page.w, line+t.page.text.String())
	return err
}

// WithAttrs implements [slog.Handler].
func (t terminal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return terminal{t.Handler.WithAttrs(attrs), t.page}
}

// WithGroup implements [slog.Handler].
func (t terminal) WithGroup(name string) slog.Handler {
	return terminal{t.Handler.WithGroup(name), t.page}
}
