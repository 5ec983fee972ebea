package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// The script of a change adds its notes to an inbox. Any replica chains many notes at a time, a
// moment later or when the journal is read. Scripts cannot hash. If each change itself extended
// the head, only one of several concurrent changes would succeed, and the others would start
// over.

const (
	maxChained = 200                   // the most notes that one script chains
	chainDelay = 50 * time.Millisecond // how long notes wait for further notes
)

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	remarks, err := storekit.NewStoredNotes(notes, action.Append)
	if err != nil || len(remarks) == 0 {
		return err
	}
	err = s.do(ctx, action.Append, func(ctx context.Context) error {
		return appendScript.Exec(ctx, s.client, s.withFormatKey([]string{s.keys.inbox()}), storekit.Documents(remarks)).Error()
	})
	if err == nil {
		s.chaining.Schedule()
	}
	return err
}

// chainNotes chains all notes in the inbox. The script moves them only if the head is
// unchanged, so each note is chained once.
func (s *Store) chainNotes(ctx context.Context) error {
	for {
		ends, err := s.readEnds(ctx)
		if err != nil {
			return err
		}
		inbox := s.client.B().Lrange().Key(s.keys.inbox()).Start(0).Stop(maxChained - 1).Build().Pin()
		texts, err := s.client.Do(ctx, inbox).AsStrSlice()
		if err != nil || len(texts) == 0 {
			return err
		}
		if err := s.chain(ctx, ends.Head, texts); err != nil {
			return err
		}
	}
}

// chain moves the first notes of the inbox to the journal, unless the head has changed.
func (s *Store) chain(ctx context.Context, head auditlog.Link, texts []string) error {
	keys := []string{s.keys.ends(), s.keys.inbox(), s.keys.journal()}
	args := []string{number(head.Seq), ""}
	for _, text := range texts {
		n, err := auditlog.Decode([]byte(text))
		if err != nil {
			return err
		}
		e := head.Next(n)
		keys = append(keys, s.keys.journalOf(n.Task))
		args = append(args, number(e.Seq), string(e.Prev[:]), string(e.Hash[:]), text)
		head = e.Link()
	}
	args[1] = string(head.Hash[:])
	return chainScript.Exec(ctx, s.client, s.withFormatKey(keys), args).Error()
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// readEnds returns the ends of the journal, without the inbox.
func (s *Store) readEnds(ctx context.Context) (auditlog.Ends, error) {
	fields, err := s.client.Do(ctx, s.client.B().Hgetall().Key(s.keys.ends()).Build().Pin()).AsStrMap()
	if err != nil {
		return auditlog.Ends{}, err
	}
	anchor, err := linkOf(fields["anchor_seq"], fields["anchor_hash"])
	if err != nil {
		return auditlog.Ends{}, err
	}
	head, err := linkOf(fields["head_seq"], fields["head_hash"])
	return auditlog.Ends{Anchor: anchor, Head: head}, err
}

// linkOf returns a stored link, or the zero link.
func linkOf(seq, hash string) (l auditlog.Link, err error) {
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

// Ends implements [auditlog.Journal].
func (s *Store) Ends(ctx context.Context) (auditlog.Ends, error) {
	return request(ctx, s, action.Read, func(ctx context.Context) (auditlog.Ends, error) {
		if err := s.chainNotes(ctx); err != nil {
			return auditlog.Ends{}, err
		}
		return s.readEnds(ctx)
	})
}

// Entries implements [auditlog.Journal].
func (s *Store) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return request(ctx, s, action.Read, func(ctx context.Context) ([]auditlog.Entry, error) {
		if err := s.chainNotes(ctx); err != nil {
			return nil, err
		}
		if q.Task == "" {
			return s.entries(ctx, q.After, q.PageSize())
		}
		return s.entriesAbout(ctx, q)
	})
}

// entries returns the first entries after a number.
func (s *Store) entries(ctx context.Context, after int64, limit int) ([]auditlog.Entry, error) {
	page := s.client.B().Xrange().Key(s.keys.journal()).Start(number(after + 1)).End("+").Count(int64(limit)).Build().Pin()
	stored, err := s.client.Do(ctx, page).AsXRange()
	if err != nil {
		return nil, err
	}
	return entriesOf(stored)
}

// entriesAbout returns the entries about one task.
func (s *Store) entriesAbout(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	numbers, err := s.client.Do(ctx, s.client.B().Lrange().Key(s.keys.journalOf(q.Task)).Start(0).Stop(-1).Build().Pin()).AsIntSlice()
	if err != nil {
		return nil, err
	}
	numbers = slices.DeleteFunc(numbers, func(n int64) bool { return n <= q.After })
	numbers = numbers[:min(len(numbers), q.PageSize())]
	reads := make(rueidis.Commands, len(numbers))
	for i, n := range numbers {
		reads[i] = s.client.B().Xrange().Key(s.keys.journal()).Start(number(n)).End(number(n)).Build().Pin()
	}
	var found []auditlog.Entry
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

// entriesOf decodes entries of the journal's stream. A hash of the wrong length becomes zero;
// [auditlog.Link.Verify] reports such an entry.
func entriesOf(stored []rueidis.XRangeEntry) ([]auditlog.Entry, error) {
	entries := make([]auditlog.Entry, len(stored))
	for i, x := range stored {
		seq, _, _ := strings.Cut(x.ID, "-") // the ID is SEQ-0
		link, err := linkOf(seq, x.FieldValues["hash"])
		if err != nil {
			return nil, err
		}
		note, err := auditlog.Decode([]byte(x.FieldValues["note"]))
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", link.Seq, err)
		}
		entries[i] = auditlog.Entry{Seq: link.Seq, Note: note, Hash: link.Hash}
		if prev := x.FieldValues["prev"]; len(prev) == len(entries[i].Prev) {
			copy(entries[i].Prev[:], prev)
		}
	}
	return entries, nil
}

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return request(ctx, s, action.Trim, func(ctx context.Context) (int, error) {
		if limit = min(limit, auditlog.Query{Limit: limit}.PageSize()); limit <= 0 {
			return 0, nil
		}
		return s.trim(ctx, before, limit)
	})
}

func (s *Store) trim(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.chainNotes(ctx); err != nil {
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
		n := auditlog.Outdated(oldest, before)
		if n == 0 {
			return 0, nil
		}
		anchor := oldest[n-1].Link()
		keys := []string{s.keys.ends(), s.keys.journal()}
		for _, e := range oldest[:n] {
			keys = append(keys, s.keys.journalOf(e.Task))
		}
		args := []string{number(ends.Anchor.Seq), number(anchor.Seq), string(anchor.Hash[:]), number(anchor.Seq + 1)}
		trimmed, err := trimScript.Exec(ctx, s.client, s.withFormatKey(keys), args).AsInt64()
		if err != nil || trimmed == 1 {
			return n, err
		}
	}
}
