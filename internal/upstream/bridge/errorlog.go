package bridge

import (
	"bytes"
	"log/slog"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// Limits of the log of one process's standard error.
const (
	maxErrorLine  = 1000 // bytes
	maxErrorLines = 100  // in one errorPeriod
	errorPeriod   = 10 * time.Second
)

// An errorLog writes the standard error of a process to the log, line by line. Lines above the
// limits are dropped.
type errorLog struct {
	log      *slog.Logger
	upstream string

	mu      sync.Mutex
	partial []byte
	since   time.Time
	lines   int
}

// Write implements [io.Writer].
func (l *errorLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := p
	for {
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		if free := maxErrorLine - len(l.partial); len(line) > free {
			line = line[:max(0, free)]
		}
		l.partial = append(l.partial, line...)
		if !complete {
			return len(p), nil
		}
		l.write(string(bytes.TrimSpace(l.partial)))
		l.partial, rest = l.partial[:0], after
	}
}

func (l *errorLog) write(line string) {
	now := time.Now()
	if now.Sub(l.since) > errorPeriod {
		l.since, l.lines = now, 0
	}
	if l.lines++; line == "" || l.lines > maxErrorLines {
		return
	}
	l.log.Info("server process", "upstream", l.upstream, "stderr", safetext.Line(line, maxErrorLine))
	if l.lines == maxErrorLines {
		l.log.Warn("server process writes too much to its standard error; lines are dropped", "upstream", l.upstream)
	}
}
