package callrecord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// ErrRef reports a text that is not the [Entry.Ref] of an entry.
var ErrRef = errors.New("not the reference of an entry of the call record")

// RefPrefix begins each reference.
const RefPrefix = "c_"

// A reference names an entry by its place: when the block was written, the chain and the number of
// the block, and the number of the entry, as in c_tlxab2k3x9ab-12-5.
type reference struct {
	at    time.Time // in seconds
	chain string    // its beginning
	seq   int64
	entry int // from 1
}

const (
	refSeconds = 6  // digits of the time; enough until 2038
	refBase    = 36 // of the time
	refChain   = 6  // letters of the chain; the time tells most chains apart
)

// refs returns the beginning of the references of the entries in b.
func (b *block) refs() string {
	at, _ := writtenAt(b.name) // readBlock has checked it
	return RefPrefix + strconv.FormatInt(at.Unix(), refBase) + b.Chain[:min(len(b.Chain), refChain)] + "-" + strconv.FormatInt(b.Seq, 10) + "-"
}

// parseRef reads a reference.
func parseRef(text string) (r reference, err error) {
	wrong := fmt.Errorf("%w: %q", ErrRef, text)
	rest, prefixed := strings.CutPrefix(strings.ToLower(text), RefPrefix)
	parts := strings.Split(rest, "-")
	if !prefixed || len(parts) != 3 || len(parts[0]) <= refSeconds {
		return r, wrong
	}
	seconds, errTime := strconv.ParseInt(parts[0][:refSeconds], refBase, 64)
	seq, errSeq := strconv.ParseInt(parts[1], 10, 64)
	entry, errEntry := strconv.Atoi(parts[2])
	if errTime != nil || errSeq != nil || errEntry != nil || entry < 1 {
		return r, wrong
	}
	return reference{time.Unix(seconds, 0), parts[0][refSeconds:], seq, entry}, nil
}

// names reports whether r names an entry of b.
func (r reference) names(b *block) bool {
	return b.Seq == r.seq && strings.HasPrefix(b.Chain, r.chain) && r.entry <= b.Entries
}

// At returns the entry with a reference. The error is [task.ErrNotFound] if there is none.
func At(ctx context.Context, s gatestore.Records, ref string) (Entry, error) {
	p, err := findRef(ctx, s, ref)
	switch {
	case errors.Is(err, ErrRef), err == nil && len(p.Entries) == 0:
		return Entry{}, errors.Join(task.ErrNotFound, err)
	case err != nil:
		return Entry{}, err
	default:
		return p.Entries[0], nil
	}
}

// findRef returns the page with the entry of a reference, which is empty if the entry is gone.
func findRef(ctx context.Context, s gatestore.Records, text string) (Page, error) {
	r, err := parseRef(text)
	if err != nil {
		return Page{}, err
	}
	for b, err := range allBlocks(ctx, s, after(r.at)) {
		if err != nil {
			return Page{}, err
		}
		if at, _ := writtenAt(b.name); at.Unix() > r.at.Unix() {
			break
		}
		if !r.names(&b) {
			continue
		}
		for e, err := range b.entries() {
			if err != nil {
				return Page{}, err
			}
			if r.entry--; r.entry == 0 {
				return Page{Entries: []Entry{e}}, nil
			}
		}
	}
	return Page{}, nil
}
