package callrecord

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Link names a block of a chain.
type Link struct {
	Chain string `json:"chain"`
	Seq   int64  `json:"seq"`
	Hash  string `json:"hash"`
}

// String returns the text that [ParseLink] reads.
func (l Link) String() string { return l.Chain + ":" + strconv.FormatInt(l.Seq, 10) + ":" + l.Hash }

// ParseLink reads CHAIN:SEQ:HASH.
func ParseLink(text string) (Link, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return Link{}, fmt.Errorf("%q is not CHAIN:SEQ:HASH", text)
	}
	seq, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || seq < 1 {
		return Link{}, fmt.Errorf("%q is not CHAIN:SEQ:HASH", text)
	}
	return Link{Chain: parts[0], Seq: seq, Hash: parts[2]}, nil
}

// A Report is the result of a verification.
type Report struct {
	Blocks   int      `json:"blocks"`
	Entries  int      `json:"entries"`
	Chains   int      `json:"chains"`
	Deleted  int64    `json:"deleted,omitzero"` // blocks before the first ones of their chains
	Dropped  int64    `json:"dropped,omitzero"` // entries that were never written
	Heads    []Link   `json:"heads"`            // the last block of each chain, the newest first, at most maxHeads
	Problems []string `json:"problems,omitempty"`
	More     int      `json:"more,omitzero"` // problems that are not listed
}

// OK reports whether nothing was changed.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

const (
	maxProblems = 20
	maxHeads    = 10
)

func (r *Report) add(text string, args ...any) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(text, args...))
}

// An end is the last block of a chain that was read.
type end struct {
	Link

	name string
}

// Verify reports whether blocks in a store were changed, removed or reordered. Retention removes
// the first blocks of a chain. That the last ones are removed is noticed only with a known link.
func Verify(ctx context.Context, s gatestore.Records, known ...Link) (Report, error) {
	var r Report
	ends, missing := map[string]end{}, map[Link]bool{}
	for _, l := range known {
		missing[l] = true
	}
	for stored, err := range gatestore.EachRecord(ctx, s, blocks("")) {
		if err != nil {
			return r, err
		}
		r.Blocks++
		b, err := readBlock(stored)
		if err != nil {
			r.add("%v", err)
			continue
		}
		r.follow(&b, ends[b.Chain])
		ends[b.Chain] = end{Link{b.Chain, b.Seq, b.hash}, b.name}
		delete(missing, ends[b.Chain].Link)
	}
	for _, l := range slices.SortedFunc(maps.Keys(missing), func(a, b Link) int { return cmp.Compare(a.String(), b.String()) }) {
		r.add("block %d of chain %s with the given hash is missing", l.Seq, l.Chain)
	}
	last := slices.SortedFunc(maps.Values(ends), func(a, b end) int { return cmp.Compare(b.name, a.name) })
	r.Chains = len(last)
	for _, e := range last[:min(len(last), maxHeads)] {
		r.Heads = append(r.Heads, e.Link)
	}
	return r, nil
}

// follow checks that b follows the block before it in its chain, and reads its entries.
func (r *Report) follow(b *block, before end) {
	switch {
	case before.Seq == 0:
		r.Deleted += b.Seq - 1
		if b.Seq == 1 && b.Previous != "" {
			r.add("block 1 of chain %s is not its first one", b.Chain)
		}
	case b.Seq != before.Seq+1:
		r.add("chain %s has block %d after block %d: blocks were removed, repeated or reordered", b.Chain, b.Seq, before.Seq)
	case b.Previous != before.Hash:
		r.add("block %d of chain %s was changed", before.Seq, b.Chain)
	}
	r.Dropped += b.Dropped
	for _, err := range b.entries() {
		if err != nil {
			r.add("%v", err)
			return
		}
		r.Entries++
	}
}
