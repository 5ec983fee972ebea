package callrecord

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Past is a page of entries, those that were written last first.
type Past struct {
	Entries    []Entry
	Next       string // cursor for older entries; empty if there are none
	Unreadable int    // blocks that could not be read
}

// maxLines is after how many bytes of lines a page ends, which is less than a second of work.
const maxLines = 16 << 20

// lateEntry is how long after its time an entry may be written, for a search up to a time: calls
// are recorded when they end, and blocks wait while the store fails.
const lateEntry = time.Hour

// A place is the position of an entry, as a cursor for all entries before it.
type place struct {
	block string // the name of its record
	index int    // in the block, from 0
}

func (p place) String() string {
	return strings.TrimPrefix(p.block, Prefix) + "." + strconv.Itoa(p.index)
}

// parsePlace reads what String returns.
func parsePlace(text string) (place, error) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return place{}, fmt.Errorf("%w: %q", ErrCursor, text)
	}
	index, err := strconv.Atoi(text[at+1:])
	p := place{Prefix + text[:at], index}
	if _, wrong := writtenAt(p.block); err != nil || wrong != nil || index < 0 {
		return place{}, fmt.Errorf("%w: %q", ErrCursor, text)
	}
	return p, nil
}

// Latest returns a page of the entries in a store that f selects. It reads a limited number of
// blocks, so a page can be short or empty although another one follows. Blocks that cannot be read
// are left out.
func Latest(ctx context.Context, s gatestore.Records, f Filter) (Past, error) {
	q, end := blocks(after(f.Since)), place{index: math.MaxInt}
	q.Descending = true
	if !f.Until.IsZero() {
		q.Before = after(f.Until.Add(lateEntry))
	}
	if f.Before != "" {
		var err error
		if end, err = parsePlace(f.Before); err != nil {
			return Past{}, err
		}
		q.Before = end.block + "-" // the first name after that of the block
	}
	var p Past
	scanned, lines := 0, 0
	for r, err := range gatestore.EachRecord(ctx, s, q) {
		if err != nil {
			return p, err
		}
		if scanned++; scanned > maxScan || lines > maxLines {
			p.Next = place{r.Name, math.MaxInt32}.String()
			return p, nil
		}
		below := math.MaxInt
		if r.Name == end.block {
			below = end.index
		}
		if p.add(&f, r, below, &lines) {
			return p, nil
		}
	}
	return p, nil
}

// add adds the entries of a block that f selects, and that come before one with an index. It adds the
// bytes of the lines that it has read to lines, and reports whether the page is full.
func (p *Past) add(f *Filter, r gatestore.Record, below int, lines *int) (full bool) {
	b, err := readBlock(r)
	if err != nil {
		p.Unreadable++
		return false
	}
	if !f.mayHave(&b) {
		return false
	}
	var found []Entry
	var at []int // their indexes
	n := 0
	for e, err := range b.wanted(func(line []byte) bool { *lines += len(line); return f.wants(line) }) {
		if err != nil {
			p.Unreadable++
			break
		}
		if n < below && e.Event != "" && f.Selects(&e) {
			found, at = append(found, e), append(at, n)
		}
		n++
	}
	slices.Reverse(found)
	if space := max(f.Limit, 1) - len(p.Entries); len(found) > space {
		p.Entries = append(p.Entries, found[:space]...)
		at = append(at, math.MaxInt32) // for a page that was full before this block
		p.Next = place{b.name, at[len(at)-1-space]}.String()
		return true
	}
	p.Entries = append(p.Entries, found...)
	return false
}

// wants reports whether f may select the entry in a line. It costs less than reading the entry.
func (f *Filter) wants(line []byte) bool {
	return f.Event == "" || bytes.Contains(line[:min(len(line), eventWithin)], []byte(`"event":"`+f.Event+`"`))
}

// eventWithin is how many bytes of a line the time and the event take at most.
const eventWithin = 100
