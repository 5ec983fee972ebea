package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A change leaves its notes in an inbox, by the same script. They are chained
// after the fact, many at a time and by any replica, and whenever somebody reads:
// scripts cannot hash, and if every change had to name the head that it
// extends, all but one of those under way would have to start over.

const (
	chainMost = 200                   // notes to chain by one script
	gathering = 50 * time.Millisecond // how long notes may wait for others
)

func encodeNotes(notes []task.Note, a task.Action) ([]string, error) {
	notes, err := task.PrepareNotes(notes, a)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(notes))
	for i, n := range notes {
		text, err := task.EncodeNote(n)
		if err != nil {
			return nil, &task.Error{Kind: task.KindInvalid, ID: n.Task, Action: a, Err: err}
		}
		texts[i] = string(text)
	}
	return texts, nil
}

// Append implements [task.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	ctx, done, err := s.begin(ctx, task.ActionAppend)
	if err != nil {
		return err
	}
	defer done()
	texts, err := encodeNotes(notes, task.ActionAppend)
	if err != nil || len(texts) == 0 {
		return err
	}
	err = s.scripts.add.Exec(ctx, s.client, s.keyed([]string{s.keys.inbox()}), texts).Error()
	if err != nil {
		return s.fault(ctx, task.ActionAppend, err)
	}
	s.wake(len(texts))
	return nil
}

// wake has notes chained, if there are any.
func (s *Store) wake(notes int) {
	if notes == 0 {
		return
	}
	select {
	case s.noted <- struct{}{}:
	default:
	}
}

// chainNotes empties the inbox whenever there is something in it, until ctx
// ends, and once more then. The next replica chains what this one cannot.
func (s *Store) chainNotes(ctx context.Context) {
	for over := false; !over; {
		select {
		case <-s.noted:
			pause.For(ctx, gathering)
		case <-ctx.Done():
			over = true
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		_ = s.empty(bounded) // a server that is down tells so to those who wait for it
		cancel()
	}
}

// empty chains all that is in the inbox. Every chaining moves the head, so a head
// that has not changed until the notes are moved was read before them.
func (s *Store) empty(ctx context.Context) error {
	for {
		ends, err := s.readEnds(ctx)
		if err != nil {
			return err
		}
		inbox := s.client.B().Lrange().Key(s.keys.inbox()).Start(0).Stop(chainMost - 1).Build().Pin()
		texts, err := s.client.Do(ctx, inbox).AsStrSlice()
		if err != nil || len(texts) == 0 {
			return err
		}
		if err := s.chain(ctx, ends.Head, texts); err != nil {
			return err
		}
	}
}

// chain moves the notes at the front of the inbox to the journal, unless the
// head has moved.
func (s *Store) chain(ctx context.Context, head task.Link, texts []string) error {
	keys := []string{s.keys.ends(), s.keys.inbox(), s.keys.journal()}
	args := []string{number(head.Seq), ""}
	for _, text := range texts {
		n, err := task.DecodeNote([]byte(text))
		if err != nil {
			return err
		}
		e := head.Next(n)
		keys = append(keys, s.keys.story(n.Task))
		args = append(args, number(e.Seq), string(e.Prev[:]), string(e.Hash[:]), text)
		head = e.Link()
	}
	args[1] = string(head.Hash[:])
	return s.scripts.chain.Exec(ctx, s.client, s.keyed(keys), args).Error()
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// readEnds returns where the journal begins and ends, whatever is in the inbox.
func (s *Store) readEnds(ctx context.Context) (task.Ends, error) {
	fields, err := s.client.Do(ctx, s.client.B().Hgetall().Key(s.keys.ends()).Build().Pin()).AsStrMap()
	if err != nil {
		return task.Ends{}, err
	}
	anchor, err := linkOf(fields["anchor_seq"], fields["anchor_hash"])
	if err != nil {
		return task.Ends{}, err
	}
	head, err := linkOf(fields["head_seq"], fields["head_hash"])
	return task.Ends{Anchor: anchor, Head: head}, err
}

// linkOf returns the link that was stored, or the zero link if none was.
func linkOf(seq, hash string) (l task.Link, err error) {
	if seq == "" {
		return l, nil
	}
	if l.Seq, err = strconv.ParseInt(seq, 10, 64); err != nil {
		return l, fmt.Errorf("journal: %w", err)
	}
	if len(hash) == len(l.Hash) {
		copy(l.Hash[:], hash)
	}
	return l, nil
}

// Ends implements [task.Journal].
func (s *Store) Ends(ctx context.Context) (task.Ends, error) {
	ctx, done, err := s.begin(ctx, task.ActionRead)
	if err != nil {
		return task.Ends{}, err
	}
	defer done()
	var ends task.Ends
	if err = s.empty(ctx); err == nil {
		ends, err = s.readEnds(ctx)
	}
	return ends, s.fault(ctx, task.ActionRead, err)
}

// Entries implements [task.Journal].
func (s *Store) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	ctx, done, err := s.begin(ctx, task.ActionRead)
	if err != nil {
		return nil, err
	}
	defer done()
	if err = s.empty(ctx); err != nil {
		return nil, s.fault(ctx, task.ActionRead, err)
	}
	var found []task.Entry
	if q.Task == "" {
		found, err = s.entries(ctx, q.After, q.PageSize())
	} else {
		found, err = s.entriesAbout(ctx, q)
	}
	return found, s.fault(ctx, task.ActionRead, err)
}

// entries returns the first entries after a number.
func (s *Store) entries(ctx context.Context, after int64, limit int) ([]task.Entry, error) {
	page := s.client.B().Xrange().Key(s.keys.journal()).Start(number(after + 1)).End("+").Count(int64(limit)).Build().Pin()
	stored, err := s.client.Do(ctx, page).AsXRange()
	if err != nil {
		return nil, err
	}
	return entriesOf(stored)
}

// entriesAbout returns the entries about one task.
func (s *Store) entriesAbout(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	numbers, err := s.client.Do(ctx, s.client.B().Lrange().Key(s.keys.story(q.Task)).Start(0).Stop(-1).Build().Pin()).AsIntSlice()
	if err != nil {
		return nil, err
	}
	numbers = slices.DeleteFunc(numbers, func(n int64) bool { return n <= q.After })
	numbers = numbers[:min(len(numbers), q.PageSize())]
	if len(numbers) == 0 {
		return nil, nil
	}
	reads := make(rueidis.Commands, len(numbers))
	for i, n := range numbers {
		reads[i] = s.client.B().Xrange().Key(s.keys.journal()).Start(number(n)).End(number(n)).Build().Pin()
	}
	var found []task.Entry
	for _, reply := range s.client.DoMulti(ctx, reads...) {
		stored, err := reply.AsXRange()
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(stored)
		if err != nil {
			return nil, err
		}
		found = append(found, entries...)
	}
	return found, nil
}

func entriesOf(stored []rueidis.XRangeEntry) ([]task.Entry, error) {
	found := make([]task.Entry, len(stored))
	for i, x := range stored {
		id, _, _ := strings.Cut(x.ID, "-")
		place, err := linkOf(id, x.FieldValues["hash"])
		if err != nil {
			return nil, err
		}
		n, err := task.DecodeNote([]byte(x.FieldValues["note"]))
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", place.Seq, err)
		}
		found[i] = task.Entry{Seq: place.Seq, Note: n, Hash: place.Hash}
		if prev := x.FieldValues["prev"]; len(prev) == len(found[i].Prev) {
			copy(found[i].Prev[:], prev)
		}
	}
	return found, nil
}

// Trim implements [task.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	ctx, done, err := s.begin(ctx, task.ActionTrim)
	if err != nil {
		return 0, err
	}
	defer done()
	if limit = min(limit, task.JournalQuery{Limit: limit}.PageSize()); limit <= 0 {
		return 0, nil
	}
	n, err := s.trim(ctx, before, limit)
	return n, s.fault(ctx, task.ActionTrim, err)
}

func (s *Store) trim(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.empty(ctx); err != nil {
		return 0, err
	}
	for {
		ends, err := s.readEnds(ctx)
		if err != nil {
			return 0, err
		}
		oldest, err := s.entries(ctx, ends.Anchor.Seq, limit)
		if err != nil {
			return 0, err
		}
		n := task.Outdated(oldest, before)
		if n == 0 {
			return 0, nil
		}
		anchor := oldest[n-1].Link()
		keys := []string{s.keys.ends(), s.keys.journal()}
		for _, e := range oldest[:n] {
			keys = append(keys, s.keys.story(e.Task))
		}
		args := []string{number(ends.Anchor.Seq), number(anchor.Seq), string(anchor.Hash[:]), number(anchor.Seq + 1)}
		trimmed, err := s.scripts.trim.Exec(ctx, s.client, s.keyed(keys), args).AsInt64()
		if err != nil || trimmed == 1 {
			return n, err
		}
	}
}
