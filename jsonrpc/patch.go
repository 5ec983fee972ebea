package jsonrpc

import (
	"bytes"
	"cmp"
	"slices"
)

// A Patch is a set of changes to the Raw bytes of one [Message]. All other bytes stay. A later
// change of the same value or member replaces an earlier one; other changes must not overlap.
type Patch struct {
	edits []edit // sorted by position
}

// An edit replaces the bytes from start to end. If start equals end, it inserts a member.
type edit struct {
	start, end int
	name       string // of the member
	first      bool   // the object is empty
	json       []byte
}

func (e edit) inserts() bool { return e.start == e.end }

// Replace replaces v by json.
func (p *Patch) Replace(v Value, json []byte) {
	p.add(edit{start: v.Offset, end: v.Offset + len(v.Bytes), json: json})
}

// Set sets a member of object v. It replaces the member of that name, or appends a member.
func (p *Patch) Set(v Value, name string, json []byte) {
	if old := v.Member(name); old.Present() {
		p.Replace(old, json)
		return
	}
	p.Insert(v, name, json)
}

// Insert is [Patch.Set] for an object that has no such member.
func (p *Patch) Insert(v Value, name string, json []byte) {
	if !v.IsObject() {
		panic("jsonrpc: a member cannot be set in a value that is no object")
	}
	end := v.Offset + len(v.Bytes) - 1
	first := len(bytes.TrimSpace(v.Bytes[1:])) == len("}")
	p.add(edit{start: end, end: end, name: name, first: first, json: json})
}

func (p *Patch) add(e edit) {
	i, _ := slices.BinarySearchFunc(p.edits, e.start, func(o edit, start int) int {
		return cmp.Compare(o.start, start)
	})
	for ; i < len(p.edits) && p.edits[i].start == e.start; i++ {
		if p.edits[i].end == e.end && p.edits[i].name == e.name {
			p.edits[i] = e
			return
		}
	}
	p.edits = slices.Insert(p.edits, i, e)
}

// Empty reports whether p has no changes.
func (p *Patch) Empty() bool { return len(p.edits) == 0 }

// Apply returns a changed copy of data.
func (p *Patch) Apply(data []byte) []byte {
	size := len(data)
	for _, e := range p.edits {
		size += len(e.json) + len(e.name) + len(`,"":`)
	}
	out := make([]byte, 0, size)
	at := 0
	for i, e := range p.edits {
		out = append(out, data[at:e.start]...)
		if e.inserts() {
			if !e.first || i > 0 && p.edits[i-1].start == e.start {
				out = append(out, ',')
			}
			out = append(AppendString(out, e.name), ':')
		}
		out = append(out, e.json...)
		at = e.end
	}
	return append(out, data[at:]...)
}
