package callrecord

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Entries are kept in blocks. A block is a record of the store, whose value is a line that names
// the format, a header as a line of JSON, and the compressed lines of its entries.
const (
	// Prefix is the prefix of the names of blocks in the store.
	Prefix = "calls/"

	format = "thoughtgate calls 1\n"
	layout = "20060102T150405.000000Z" // of the time in a name, so that names sort by time

	maxPlain = 192 << 10 // bytes of the lines after which a block is full
	maxBlock = 4 << 20   // bytes of the lines that are read
)

// A header describes a block.
type header struct {
	Chain    string    `json:"chain"` // the process that wrote the block
	Seq      int64     `json:"seq"`   // 1 for the first block of the chain
	Previous string    `json:"previous,omitzero"`
	Entries  int       `json:"entries"`
	Ends     int       `json:"ends,omitzero"`    // entries about the ends of held calls
	Dropped  int64     `json:"dropped,omitzero"` // entries that were lost since the previous block
	Oldest   time.Time `json:"oldest"`           // times of entries
	Newest   time.Time `json:"newest"`
}

// A block is a record with entries.
type block struct {
	header

	name string
	body []byte // compressed lines
	hash string // of the name and the value of the record
}

// nameOf returns the name of a block that is written at a time.
func nameOf(at time.Time, chain string, seq int64) string {
	return Prefix + at.UTC().Format(layout) + "-" + chain + "-" + strconv.FormatInt(seq, 10)
}

// writtenAt returns the time in the name of a block.
func writtenAt(name string) (time.Time, error) {
	at, _, _ := strings.Cut(strings.TrimPrefix(name, Prefix), "-")
	return time.Parse(layout, at)
}

// A compressor compresses lines. It is reused, because it is large.
type compressor struct{ writer *flate.Writer }

func (c *compressor) compress(lines []byte) []byte {
	var b bytes.Buffer
	if c.writer == nil {
		c.writer, _ = flate.NewWriter(&b, flate.BestSpeed) // fails only for a wrong level
	}
	c.writer.Reset(&b)
	_, _ = c.writer.Write(lines) // a bytes.Buffer never fails
	_ = c.writer.Close()
	return b.Bytes()
}

// record returns the record of a block with the given name.
func (h *header) record(name string, body []byte) (gatestore.Record, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return gatestore.Record{}, err
	}
	value := append([]byte(format), text...)
	value = append(value, '\n')
	return gatestore.Record{Name: name, Version: 1, Value: append(value, body...)}, nil
}

// hashOf returns the hash with which the next block of the chain names r.
func hashOf(r gatestore.Record) string {
	h := sha256.New()
	_, _ = io.WriteString(h, r.Name+"\n")
	_, _ = h.Write(r.Value)
	return hex.EncodeToString(h.Sum(nil))
}

// errNoBlock reports a record that is no block.
var errNoBlock = errors.New("it is no block of a call record")

// errNotOpened reports a block that the store has not decrypted.
var errNotOpened = errors.New("it is encrypted with another key, or was written before there was one: see thoughtgate store rekey")

// readBlock reads the header of a block. The name must be the one that the header tells.
func readBlock(r gatestore.Record) (block, error) {
	if len(r.Value) == 0 {
		return block{name: r.Name}, unreadable(r.Name, errNotOpened)
	}
	rest, ok := bytes.CutPrefix(r.Value, []byte(format))
	text, body, found := bytes.Cut(rest, []byte("\n"))
	b := block{name: r.Name, body: body}
	if !ok || !found || json.Unmarshal(text, &b.header) != nil {
		return b, unreadable(r.Name, errNoBlock)
	}
	at, err := writtenAt(r.Name)
	if err != nil || nameOf(at, b.Chain, b.Seq) != r.Name {
		return b, unreadable(r.Name, errors.New("its name is not the one of its content"))
	}
	b.hash = hashOf(r)
	return b, nil
}

func unreadable(name string, err error) error {
	return fmt.Errorf("read block %s: %w", strings.TrimPrefix(name, Prefix), err)
}

// entries returns the entries of a block. It ends after an error.
func (b *block) entries() iter.Seq2[Entry, error] {
	return b.wanted(func([]byte) bool { return true })
}

// wanted is entries, but an entry whose line is not wanted is empty.
func (b *block) wanted(line func([]byte) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		n, refs := 0, b.refs()
		for e, err := range read(io.LimitReader(flate.NewReader(bytes.NewReader(b.body)), maxBlock), line) {
			if err != nil {
				yield(Entry{}, unreadable(b.name, err))
				return
			}
			n++
			if e.Ref = refs + strconv.Itoa(n); !yield(e, nil) {
				return
			}
		}
		if n != b.Entries {
			yield(Entry{}, unreadable(b.name, fmt.Errorf("it has %d entries instead of %d", n, b.Entries)))
		}
	}
}

// pageSize is how many blocks are read at a time.
const pageSize = 16

// blocks returns the query for the blocks whose names come after a name.
func blocks(after string) gatestore.RecordQuery {
	return gatestore.RecordQuery{Prefix: Prefix, After: after, Limit: pageSize}
}
