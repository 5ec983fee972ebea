package memstore

import (
	"cmp"
	"iter"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An index holds entries ordered by a key, and by ID among equal keys. It is a
// list of short sorted lists: finding, adding and removing one takes two
// binary searches and moves at most chunkMax items. Entries that come in order
// fill their lists to the brim.
type index struct {
	chunks []chunk
	size   int
}

type chunk struct {
	last  int64 // the key of the last item, so that a search need not look at the items
	items []item
}

type item struct {
	key   int64
	entry *entry
}

const chunkMax = 128

func newChunk(items ...item) chunk { return chunk{last: items[len(items)-1].key, items: items} }

func (c chunk) compare(key int64, id task.ID) int {
	if c.last != key {
		return cmp.Compare(c.last, key)
	}
	return c.items[len(c.items)-1].compare(key, id)
}

func (i item) compare(key int64, id task.ID) int {
	if i.key != key {
		return cmp.Compare(i.key, key)
	}
	return cmp.Compare(i.entry.task.Load().ID, id)
}

// seek returns the place of the first item that is not less than key and id:
// an item of a chunk, or the end of the last chunk.
func (x *index) seek(key int64, id task.ID) (at, in int) {
	at, _ = slices.BinarySearchFunc(x.chunks, key, func(c chunk, _ int64) int { return c.compare(key, id) })
	if at == len(x.chunks) {
		return at - 1, len(x.chunks[at-1].items)
	}
	in, _ = slices.BinarySearchFunc(x.chunks[at].items, key, func(i item, _ int64) int { return i.compare(key, id) })
	return at, in
}

func (x *index) insert(key int64, e *entry) {
	x.size++
	if len(x.chunks) == 0 {
		x.chunks = []chunk{newChunk(item{key, e})}
		return
	}
	at, in := x.seek(key, e.task.Load().ID)
	full := x.chunks[at].items
	switch {
	case len(full) < chunkMax:
		x.chunks[at] = newChunk(slices.Insert(full, in, item{key, e})...)
	case in == len(full):
		x.chunks = slices.Insert(x.chunks, at+1, newChunk(item{key, e}))
	case in == 0:
		x.chunks = slices.Insert(x.chunks, at, newChunk(item{key, e}))
	default:
		right := newChunk(slices.Clone(full[in:])...)
		clear(full[in:])
		x.chunks[at] = newChunk(append(full[:in], item{key, e})...)
		x.chunks = slices.Insert(x.chunks, at+1, right)
	}
}

func (x *index) remove(key int64, e *entry) {
	at, in := x.seek(key, e.task.Load().ID)
	left := slices.Delete(x.chunks[at].items, in, in+1)
	x.size--
	switch next := at + 1; {
	case len(left) == 0:
		x.chunks = slices.Delete(x.chunks, at, next)
	case next < len(x.chunks) && len(left)+len(x.chunks[next].items) <= chunkMax/2:
		x.chunks[at] = newChunk(append(left, x.chunks[next].items...)...)
		x.chunks = slices.Delete(x.chunks, next, next+1)
	default:
		x.chunks[at] = newChunk(left...)
	}
}

// from returns the entries from the first that is not less than key and id on.
func (x *index) from(key int64, id task.ID) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if len(x.chunks) == 0 {
			return
		}
		at, in := x.seek(key, id)
		for ; at < len(x.chunks); at, in = at+1, 0 {
			for _, i := range x.chunks[at].items[in:] {
				if !yield(i.entry) {
					return
				}
			}
		}
	}
}
