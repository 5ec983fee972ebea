package callrecord

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A writer writes the entries of a [Log], in one goroutine.
type writer struct {
	log *Log

	chain string
	last  Link      // the last block
	at    time.Time // in the name of the last block
	lost  int64     // entries since the last block

	digester   *digester // nil if the key is not known
	lines      lines     // not written yet
	compressor compressor
	due        *time.Timer
	timing     bool // due was started

	written int64     // bytes since the last check of the size
	checked time.Time // when the size was checked
	said    Link      // the last head in the log
	saidAt  time.Time
}

// lines are entries as text.
type lines struct {
	text []byte
	each []endOfLine
}

type endOfLine struct {
	end   int // in the text
	at    time.Time
	event Event
}

func newWriter(l *Log) *writer {
	w := &writer{log: l, chain: strings.ToLower(rand.Text())[:16], due: time.NewTimer(maxAge)}
	w.due.Stop()
	return w
}

// run writes entries until the log is closed.
func (w *writer) run() {
	ctx, l := w.log.life, w.log
	defer close(l.ended)
	for {
		select {
		case <-l.wake:
			if !w.timing {
				w.due.Reset(maxAge)
				w.timing = true
			}
			if l.waiting() >= maxPlain {
				w.read(ctx)
			}
		case <-w.due.C:
			w.timing = false
			w.read(ctx)
			w.flush(ctx)
			w.keep(ctx)
		case done := <-l.flush:
			w.read(ctx)
			w.flush(ctx)
			close(done)
		case <-l.closing:
			w.read(ctx)
			w.flush(ctx)
			w.sayHead(ctx)
			return
		}
	}
}

func (l *Log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.size
}

// read makes lines of the entries that wait, and writes full blocks.
func (w *writer) read(ctx context.Context) {
	q, lost := w.log.take()
	w.lost += lost
	if w.digester == nil {
		w.readKey(ctx)
	}
	s := w.log.settings.Load()
	for i := range q.entries {
		w.add(q.text, &q.entries[i], s.Arguments)
		if len(w.lines.text) >= maxPlain {
			w.flush(ctx)
		}
	}
}

func (w *writer) readKey(ctx context.Context) {
	key, err := w.log.cfg.Key(ctx)
	if err != nil {
		w.log.cfg.Log.WarnContext(ctx, "calls recorded without the digests of their arguments", "err", err)
		return
	}
	w.digester = newDigester(key)
}

// add adds the line of an entry.
func (w *writer) add(text []byte, e *queued, d Detail) {
	about := aboutArguments{digest: e.digest, redacted: e.redacted}
	if arguments := text[e.arguments:e.end]; len(arguments) > 0 {
		if w.digester != nil {
			about.digest = w.digester.digest(arguments)
		}
		switch {
		case d == Full:
			about.arguments = arguments
		case d == Redacted && w.log.cfg.Redact != nil:
			about.arguments = w.log.cfg.Redact(arguments)
			about.redacted = !bytes.Equal(about.arguments, arguments)
		}
	}
	w.lines.text = append(w.lines.text, text[e.head:e.arguments]...)
	line, ok := about.append(w.lines.text)
	if !ok { // some servers take what is no valid JSON
		line, _ = aboutArguments{digest: about.digest, redacted: true}.append(w.lines.text)
	}
	line = append(line, "}\n"...)
	w.lines.text = line
	w.lines.each = append(w.lines.each, endOfLine{len(w.lines.text), e.at, e.event})
}

// flush writes all lines.
func (w *writer) flush(ctx context.Context) {
	if n := len(w.lines.each); n > 0 {
		w.put(ctx, 0, n)
	}
	w.lines.text = w.lines.text[:0]
	w.lines.each = w.lines.each[:0]
}

// put writes lines as a block, or as several if they are too long for one.
func (w *writer) put(ctx context.Context, from, to int) {
	begin := 0
	if from > 0 {
		begin = w.lines.each[from-1].end
	}
	body := w.compressor.compress(w.lines.text[begin:w.lines.each[to-1].end])
	h := w.header(w.lines.each[from:to])
	r, err := h.record(nameOf(w.time(), w.chain, h.Seq), body)
	switch {
	case err == nil && len(r.Value) <= gatestore.MaxRecordValue:
		err = w.store(ctx, &h, r, body)
	case err == nil && to-from > 1:
		half := from + (to-from)/2
		w.put(ctx, from, half)
		w.put(ctx, half, to)
		return
	case err == nil:
		err = errors.New("the entry is too large")
	}
	if err != nil {
		w.log.cfg.Log.ErrorContext(ctx, "calls not recorded", "entries", h.Entries, "err", err)
		w.log.mu.Lock()
		w.log.lose(h.Entries)
		w.log.mu.Unlock()
	}
}

// header returns the header of the next block.
func (w *writer) header(each []endOfLine) header {
	h := header{
		Chain: w.chain, Seq: w.last.Seq + 1, Previous: w.last.Hash, Entries: len(each), Dropped: w.lost, Oldest: each[0].at, Newest: each[0].at,
	}
	for _, l := range each {
		if l.event == Ended {
			h.Ends++
		}
		if l.at.Before(h.Oldest) {
			h.Oldest = l.at
		}
		if l.at.After(h.Newest) {
			h.Newest = l.at
		}
	}
	return h
}

// time returns the time for the name of the next block. It never goes back, so that names are in
// the order of the chain.
func (w *writer) time() time.Time {
	now := w.log.cfg.Now()
	if !now.After(w.at) {
		now = w.at.Add(time.Microsecond)
	}
	return now
}

// store puts a block into the store. While the store fails, it tries again, until ctx ends. A
// block that comes late gets a new name, so that readers do not miss it.
func (w *writer) store(ctx context.Context, h *header, r gatestore.Record, body []byte) error {
	r.Expires = w.expiry()
	err := w.log.cfg.Store.PutRecord(ctx, r)
	if err != nil && !errors.Is(err, task.ErrInvalid) {
		w.log.cfg.Log.WarnContext(ctx, "calls cannot be recorded; trying again", "err", err)
	}
	for err != nil && !errors.Is(err, task.ErrInvalid) && pause.For(ctx, retryPause) {
		found, failed := w.log.cfg.Store.GetRecord(ctx, r.Name)
		switch {
		case failed == nil && bytes.Equal(found.Value, r.Value):
			err = nil // the first attempt succeeded
		case errors.Is(failed, task.ErrNotFound):
			if r, err = h.record(nameOf(w.time(), w.chain, h.Seq), body); err != nil {
				return err
			}
			r.Expires = w.expiry()
			err = w.log.cfg.Store.PutRecord(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	w.last, w.lost = Link{w.chain, h.Seq, hashOf(r)}, 0
	w.at, _ = writtenAt(r.Name)
	w.written += int64(len(r.Value))
	return nil
}

// expiry returns when a block that is written now may be deleted.
func (w *writer) expiry() time.Time {
	keep := w.log.settings.Load().Retention
	if keep == 0 {
		return time.Time{}
	}
	return w.log.cfg.Now().Add(keep)
}

// keep deletes old blocks if there are too many, logs the head of the chain, and reads the key
// again, each from time to time.
func (w *writer) keep(ctx context.Context) {
	now, limit := w.log.cfg.Now(), w.log.settings.Load().MaxSize
	if now.Sub(w.saidAt) >= headEvery {
		w.sayHead(ctx)
	}
	if limit == 0 || now.Sub(w.checked) < housekeeping && w.written < limit/16 {
		return
	}
	w.checked, w.written = now, 0
	w.digester = nil
	if err := trim(ctx, w.log.cfg.Store, limit); err != nil {
		w.log.cfg.Log.WarnContext(ctx, "the size of the call record was not checked", "err", err)
	}
}

// sayHead logs the head of the chain. Logs are usually kept elsewhere, so the end of the chain
// cannot be removed unnoticed.
func (w *writer) sayHead(ctx context.Context) {
	if w.last != w.said {
		w.said, w.saidAt = w.last, w.log.cfg.Now()
		w.log.cfg.Log.InfoContext(ctx, "call record head", "head", w.last.String())
	}
}

// trim deletes the oldest blocks until all together have at most limit bytes. Several processes
// may do so at once.
func trim(ctx context.Context, s gatestore.Records, limit int64) error {
	total, err := s.SizeRecords(ctx, Prefix)
	if err != nil || total <= limit {
		return err
	}
	for r, err := range gatestore.EachRecord(ctx, s, blocks("")) {
		if err != nil {
			return err
		}
		size, err := s.SizeRecords(ctx, r.Name) // the value that is read may be shorter, or missing
		if err == nil {
			err = s.DeleteRecord(ctx, r.Name)
		}
		if total -= size; err != nil || total <= limit {
			return err
		}
	}
	return nil
}
