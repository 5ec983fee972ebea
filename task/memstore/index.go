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
	chunks [][]item
	size   int
}

type item struct {
	key   int64
	entry *entry
}

const chunkMax = 128

func (i item) compare(key int64, id task.ID) int {
	if c := cmp.Compare(i.key, key); c != 0 {
		return c
	}
	return cmp.Compare(i.entry.task.Load().ID, id)
}

// seek returns the place of the first item that is not less than key and id:
// an item of a chunk, or the end of the last chunk.
func (x *index) seek(key int64, id task.ID) (chunk, at int) {
	chunk, _ = slices.BinarySearchFunc(x.chunks, key, func(c []item, _ int64) int {
		return c[len(c)-1].compare(key, id)
	})
	if chunk == len(x.chunks) {
		chunk--
		return chunk, len(x.chunks[chunk])
	}
	at, _ = slices.BinarySearchFunc(x.chunks[chunk], key, func(i item, _ int64) int { return i.compare(key, id) })
	return chunk, at
}

func (x *index) insert(key int64, e *entry) {
	x.size++
	if len(x.chunks) == 0 {
		x.chunks = [][]item{{{key, e}}}
		return
	}
	c, at := x.seek(key, e.task.Load().ID)
	full := x.chunks[c]
	switch {
	case len(full) < chunkMax:
		x.chunks[c] = slices.Insert(full, at, item{key, e})
	case at == len(full):
		x.chunks = slices.Insert(x.chunks, c+1, []item{{key, e}})
	case at == 0:
		x.chunks = slices.Insert(x.chunks, c, []item{{key, e}})
	default:
		right := slices.Clone(full[at:])
		clear(full[at:])
		x.chunks[c] = append(full[:at], item{key, e})
		x.chunks = slices.Insert(x.chunks, c+1, right)
	}
}

func (x *index) remove(key int64, e *entry) {
	c, at := x.seek(key, e.task.Load().ID)
	x.chunks[c] = slices.Delete(x.chunks[c], at, at+1)
	x.size--
	switch last := len(x.chunks) - 1; {
	case len(x.chunks[c]) == 0:
		x.chunks = slices.Delete(x.chunks, c, c+1)
	case c < last && len(x.chunks[c])+len(x.chunks[c+1]) <= chunkMax/2:
		x.chunks[c] = append(x.chunks[c], x.chunks[c+1]...)
		x.chunks = slices.Delete(x.chunks, c+1, c+2)
	}
}

// from returns the entries from the first that is not less than key and id on.
func (x *index) from(key int64, id task.ID) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if len(x.chunks) == 0 {
			return
		}
		c, at := x.seek(key, id)
		for ; c < len(x.chunks); c, at = c+1, 0 {
			for _, i := range x.chunks[c][at:] {
				if !yield(i.entry) {
					return
				}
			}
		}
	}
}
