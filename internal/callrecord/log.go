package callrecord

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Detail says what is recorded of arguments.
type Detail string

// The details.
const (
	Digests  Detail = "digests"
	Redacted Detail = "redacted" // without the values that are hidden from approvers
	Full     Detail = "full"
)

// Settings are the settings of a [Log] that can change while it is used.
type Settings struct {
	Off       bool // nothing is recorded
	Arguments Detail
	Retention time.Duration // after which a block is deleted; 0 means never
	MaxSize   int64         // bytes of all blocks; 0 means no limit
	Wait      bool          // if the buffer is full, [Log.Add] waits instead of dropping the entry
}

// Config configures a [Log].
type Config struct {
	Store    gatestore.Records
	Key      func(context.Context) ([]byte, error) // for the digests of arguments
	Redact   func(arguments []byte) []byte         // for [Redacted]; returns nil if it cannot
	Now      func() time.Time
	Log      *slog.Logger
	Dropped  func(entries int) // counts entries that were lost; may be nil
	Settings Settings
}

const (
	maxArguments = 32 << 10        // bytes of longer arguments are not recorded
	maxWaiting   = 16 << 20        // bytes of entries that may wait for the writer
	maxKept      = 2 << 20         // bytes of a buffer that is used again
	entrySize    = 500             // estimate of the bytes of an entry without arguments
	maxAge       = time.Second     // of an entry before it is written
	retryPause   = time.Second / 4 // after a failed write
	housekeeping = time.Hour       // between two checks of the size
	headEvery    = time.Hour       // between two lines with the head of the chain
	warnEvery    = time.Minute     // between two lines about lost entries
)

// A Log collects entries and writes them to a store in blocks: when a block is full, or a second
// after its first entry. A crash loses what was not written. The nil *Log records nothing.
type Log struct {
	cfg      Config
	settings atomic.Pointer[Settings]

	start   sync.Once
	wake    chan struct{}      // has a token when the writer must look at the queue
	flush   chan chan struct{} // asks the writer to write what waits, and to close the channel
	closing chan struct{}
	ended   chan struct{}      // closed when the writer has ended
	end     context.CancelFunc // ends what the writer is doing
	life    context.Context

	mu      sync.Mutex
	writing bool // the writer was started
	queue   queue
	spare   queue         // is used again
	space   chan struct{} // closed when the writer takes the queue
	closed  bool
	lost    int64 // entries since the last block
	warned  time.Time
	unsaid  int64 // lost entries since the last line about them
}

// A queue has the entries that wait for the writer, as text: for each the JSON members before the
// digest, then the arguments. It has no pointers that the garbage collector must follow.
type queue struct {
	text    []byte
	entries []queued
	size    int
}

// A queued entry has its two parts at the given positions of the text.
type queued struct {
	head, arguments, end int

	at       time.Time
	event    Event
	digest   string // if the arguments are not here
	redacted bool
}

// New returns a log.
func New(cfg Config) *Log {
	l := &Log{
		cfg: cfg, wake: make(chan struct{}, 1), flush: make(chan chan struct{}), closing: make(chan struct{}), ended: make(chan struct{}), space: make(chan struct{}),
	}
	l.life, l.end = context.WithCancel(context.Background())
	l.Configure(cfg.Settings)
	return l
}

// Configure replaces the settings.
func (l *Log) Configure(s Settings) { l.settings.Store(&s) }

// Records reports whether l records entries.
func (l *Log) Records() bool { return l != nil && !l.settings.Load().Off }

// Add records e, with the whole arguments in [Entry.Arguments]. It copies them, and leaves all
// other work to the writer. If the buffer is full, it drops e, or waits until there is space,
// depending on the settings.
func (l *Log) Add(e Entry) {
	if !l.Records() {
		return
	}
	s := l.settings.Load()
	arguments := []byte(e.Arguments)
	e.Arguments = nil
	if len(arguments) > maxArguments {
		e.Digest, e.Redacted, arguments = l.digest(arguments), s.Arguments != Digests, nil
	}
	size := entrySize + len(arguments)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasSpace(size) && (!s.Wait || !l.waitForSpace(size)) {
		l.lose(1)
		return
	}
	before := l.queue.size
	l.queue.add(&e, arguments, size)
	if before == 0 || l.queue.size >= maxPlain && before < maxPlain {
		l.start.Do(func() {
			l.writing = true
			go newWriter(l).run()
		})
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func (q *queue) add(e *Entry, arguments []byte, size int) {
	one := queued{head: len(q.text), at: e.Time, event: e.Event, digest: e.Digest, redacted: e.Redacted}
	q.text = e.appendHead(q.text)
	one.arguments = len(q.text)
	q.text = append(q.text, arguments...)
	one.end = len(q.text)
	q.entries = append(q.entries, one)
	q.size += max(size, one.end-one.head) // names may be longer than the estimate
}

// hasSpace reports whether the queue can take an entry. The caller has locked l.
func (l *Log) hasSpace(size int) bool { return !l.closed && l.queue.size+size <= maxWaiting }

// waitForSpace waits until the queue can take an entry. It reports false if the log is closed. The
// caller has locked l.
func (l *Log) waitForSpace(size int) bool {
	for !l.closed && !l.hasSpace(size) {
		space := l.space
		l.mu.Unlock()
		select {
		case <-space:
		case <-l.closing:
		}
		l.mu.Lock()
	}
	return l.hasSpace(size)
}

// lose counts lost entries, and logs them. The caller has locked l.
func (l *Log) lose(entries int) {
	l.lost += int64(entries)
	l.unsaid += int64(entries)
	if l.cfg.Dropped != nil {
		l.cfg.Dropped(entries)
	}
	if now := l.cfg.Now(); now.Sub(l.warned) >= warnEvery {
		l.cfg.Log.Warn("calls are not recorded: the store does not take them fast enough", "entries", l.unsaid)
		l.warned, l.unsaid = now, 0
	}
}

// take returns the entries that wait, and the number of lost ones. The queue is valid until the
// next call.
func (l *Log) take() (q queue, lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, lost = l.queue, l.lost
	l.queue = queue{entries: l.spare.entries[:0], text: l.spare.text[:0]}
	if q.size > maxKept {
		l.spare = queue{} // do not keep the memory of a burst
	} else {
		l.spare = q
	}
	l.lost = 0
	close(l.space)
	l.space = make(chan struct{})
	return q, lost
}

// Flush writes what was not written, until ctx ends.
func (l *Log) Flush(ctx context.Context) {
	if l == nil {
		return
	}
	l.mu.Lock()
	writing := l.writing
	l.mu.Unlock()
	if !writing {
		return
	}
	done := make(chan struct{})
	select {
	case l.flush <- done:
	case <-l.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-l.ended:
	case <-ctx.Done():
	}
}

// Close writes what was not written, until ctx ends. Later entries are lost.
func (l *Log) Close(ctx context.Context) {
	if l == nil {
		return
	}
	l.mu.Lock()
	repeated := l.closed
	l.closed = true
	l.mu.Unlock()
	if !repeated {
		close(l.closing)
	}
	l.start.Do(func() { close(l.ended) }) // nothing was recorded
	select {
	case <-l.ended:
	case <-ctx.Done():
	}
	l.end()
	<-l.ended
}
