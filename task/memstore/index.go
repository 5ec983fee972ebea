package memstore

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An index holds entries ordered by a key, and among equal keys as they are
// listed: the newest first, and by ID among those of the same age. It is a
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

// A place is where an item stands in an index, or would stand.
type place struct {
	key, age int64
	id       task.ID
}

// placeOf returns the place of t in an index in which key is its key.
func placeOf(key int64, t *task.Task) place { return place{key, age(t), t.ID} }

// first returns the place before all items with the given key.
func first(key int64) place { return place{key: key, age: math.MinInt64} }

func (c chunk) compare(p place) int {
	if c.last != p.key {
		return cmp.Compare(c.last, p.key)
	}
	return c.items[len(c.items)-1].compare(p)
}

func (i item) compare(p place) int {
	if i.key != p.key {
		return cmp.Compare(i.key, p.key)
	}
	t := i.entry.task.Load()
	if c := cmp.Compare(age(t), p.age); c != 0 {
		return c
	}
	return cmp.Compare(t.ID, p.id)
}

// seek returns the place of the first item that does not stand before p: an
// item of a chunk, or the end of the last chunk.
func (x *index) seek(p place) (at, in int) {
	at, _ = slices.BinarySearchFunc(x.chunks, p, chunk.compare)
	if at == len(x.chunks) {
		return at - 1, len(x.chunks[at-1].items)
	}
	in, _ = slices.BinarySearchFunc(x.chunks[at].items, p, item.compare)
	return at, in
}

func (x *index) insert(key int64, e *entry) {
	x.size++
	if len(x.chunks) == 0 {
		x.chunks = []chunk{newChunk(item{key, e})}
		return
	}
	at, in := x.seek(placeOf(key, e.task.Load()))
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
	at, in := x.seek(placeOf(key, e.task.Load()))
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

// from returns the items from p on.
func (x *index) from(p place) iter.Seq[item] {
	return func(yield func(item) bool) {
		if len(x.chunks) == 0 {
			return
		}
		at, in := x.seek(p)
		for ; at < len(x.chunks); at, in = at+1, 0 {
			for _, i := range x.chunks[at].items[in:] {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// alike returns the items from p on that have its key.
func (x *index) alike(p place) iter.Seq[item] {
	return func(yield func(item) bool) {
		for i := range x.from(p) {
			if i.key != p.key || !yield(i) {
				return
			}
		}
	}
}
