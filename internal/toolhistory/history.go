package toolhistory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Definition is the recorded part of a tool definition.
type Definition struct {
	Shape string       `json:"shape"` // digest of the definition without hints and description
	Hints policy.Hints `json:"hints"`
}

// An UnpinnedChange is a definition that differs from the one in the lock file.
type UnpinnedChange struct {
	Digest string    `json:"digest"` // of the definition
	What   string    `json:"what"`   // in words
	Diff   string    `json:"diff,omitempty"`
	At     time.Time `json:"at,omitzero"` // when policy first used it
}

// HasUnpinned reports whether h has an unaccepted definition with the digest.
func (h History) HasUnpinned(digest string) bool {
	return slices.ContainsFunc(h.Unpinned, func(c UnpinnedChange) bool { return c.Digest == digest })
}

// covers reports whether accepting d includes other: other has the same shape, and the hints of d
// do not promise less risk.
func (d Definition) covers(other Definition) bool {
	//mutate:swap "d.Shape == other.Shape && " "" internal/app.TestLooserDefinitionIsHeld a change of a schema does not count
	return d.Shape == other.Shape && d.Hints.Strictest(other.Hints) == other.Hints
}

// A History has the known definitions of a tool.
type History struct {
	// First is the definition when the tool was first seen. Its hints become stricter with each
	// stricter definition: servers may list a tool differently for different clients.
	First Definition `json:"first"`

	Accepted []Definition       `json:"accepted,omitempty"` // by operators, the latest first
	Changed  []UnacceptedChange `json:"changed,omitempty"`  // not accepted, the latest first

	// Definitions that are not those in the lock file, the latest first: digests of those that
	// operators have accepted, and the others.
	Known    []string         `json:"known,omitempty"`
	Unpinned []UnpinnedChange `json:"unpinned,omitempty"`
}

// An UnacceptedChange is a definition that no operator has accepted.
type UnacceptedChange struct {
	Definition
	At time.Time `json:"at"` // when policy first used it
}

// TrustedHints returns the hints that policy uses if the tool is defined as d, and whether d is an
// unaccepted change.
func (h History) TrustedHints(d Definition) (hints policy.Hints, changed bool) {
	if h.First == d || h.accepted(d) {
		return d.Hints, false
	}
	hints = h.First.Hints.Strictest(d.Hints)
	return hints, !Definition{h.First.Shape, hints}.covers(d)
}

func (h History) accepted(d Definition) bool {
	return slices.ContainsFunc(h.Accepted, func(a Definition) bool { return a.covers(d) })
}

// HasChange reports whether h has d as an unaccepted change.
func (h History) HasChange(d Definition) bool {
	return slices.ContainsFunc(h.Changed, func(c UnacceptedChange) bool { return c.Definition == d })
}

// Limits on stored definitions and shown names.
const (
	maxAccepted = 8
	maxChanged  = 3
	maxName     = 300
)

// Observe returns h after the tool was seen with definition d, and whether h has changed.
func (h History) Observe(d Definition) (after History, changed bool) {
	if h.First == d || h.accepted(d) {
		return h, false
	}
	was := h.First.Hints
	//mutate:drop TestConcurrentDefinitionsKeepTheStrictest stricter hints are not recorded
	h.First.Hints = was.Strictest(d.Hints)
	return h, h.First.Hints != was
}

// A Change describes an unaccepted definition of a tool to people.
type Change struct {
	ID       string       `json:"id"`
	Upstream string       `json:"upstream"`
	Tool     string       `json:"tool"`           // the escaped name: see [safetext.Name]
	What     string       `json:"what"`           // in words
	At       time.Time    `json:"at,omitzero"`    // when policy first used it
	Hints    policy.Hints `json:"hints,omitzero"` // as the upstream lists them now
	Diff     string       `json:"diff,omitempty"` // from the lock file to the current definition, if it is known
}

// Change describes how d, which h does not accept, differs from the first definition.
func (h History) Change(of Source, tool string, d Definition) Change {
	what := d.Hints.Looser(h.First.Hints)
	if d.Shape != h.First.Shape {
		if what != "" {
			what += ", and "
		}
		what += "its title or schema is another one"
	}
	sum := sha256.Sum256(lengthPrefixed("thoughtgate change 1", of.Upstream, of.Server, tool, d.Shape, string(d.Hints)))
	return Change{ID: hex.EncodeToString(sum[:12]), Upstream: of.Upstream, Tool: safetext.Name(tool, maxName), What: what, Hints: d.Hints}
}

// Change describes c, a definition of a tool, to people.
func (c UnpinnedChange) Change(of Source, tool string) Change {
	sum := sha256.Sum256(lengthPrefixed("thoughtgate unpinned 1", of.Upstream, of.Server, tool, c.Digest))
	return Change{ID: hex.EncodeToString(sum[:12]), Upstream: of.Upstream, Tool: safetext.Name(tool, maxName), What: c.What, At: c.At, Diff: c.Diff}
}

// changes returns the unaccepted changes of a tool.
func (h History) changes(of Source, tool string) []unaccepted {
	var all []unaccepted
	for _, c := range h.Changed {
		one := unaccepted{h.Change(of, tool, c.Definition), c.Definition, ""}
		one.At = c.At
		all = append(all, one)
	}
	for _, c := range h.Unpinned {
		all = append(all, unaccepted{c.Change(of, tool), Definition{}, c.Digest})
	}
	return all
}

// unaccepted is a change, with the definition or the digest that an operator may accept.
type unaccepted struct {
	Change
	definition Definition
	digest     string // empty if the change is not about the lock file
}

// accept adds an accepted change to h. It reports whether h has changed.
func (h *History) accept(c unaccepted) bool {
	switch {
	case c.digest != "":
		h.Unpinned = slices.DeleteFunc(h.Unpinned, func(u UnpinnedChange) bool { return u.Digest == c.digest })
		if slices.Contains(h.Known, c.digest) {
			return false
		}
		h.Known = append([]string{c.digest}, h.Known...)
		h.Known = h.Known[:min(len(h.Known), maxAccepted)]
	case slices.Contains(h.Accepted, c.definition):
		return false
	default:
		h.Accepted = append([]Definition{c.definition}, h.Accepted...)
		h.Accepted = h.Accepted[:min(len(h.Accepted), maxAccepted)]
		h.Changed = slices.DeleteFunc(h.Changed, func(u UnacceptedChange) bool { return h.accepted(u.Definition) })
	}
	return true
}

// A Source is an upstream that defines tools.
type Source struct {
	Upstream string `json:"upstream"`
	Server   string `json:"server,omitzero"` // distinguishes servers with the same name on a shared store
}

// The histories of an upstream's tools share a few records, so that a long list of tools needs few
// writes. Tools are distributed by the first digit of the digest of their name.
const (
	historyRecords = "definedtools/"

	// fullRecord is the size from which a record takes no more tools. The remaining space is for
	// changes of its tools. Policy ignores the hints of tools without a history.
	fullRecord = gatestore.MaxRecordValue * 3 / 4
)

// A page is the content of one record.
type page struct {
	Source
	Tools map[string]History `json:"tools"`
}

// recordOf returns the name of the record for a tool.
func (s Source) recordOf(tool string) string {
	sum := sha256.Sum256([]byte(tool))
	return s.records() + hex.EncodeToString(sum[:1])[:1]
}

// records returns the common prefix of all records of s.
func (s Source) records() string {
	sum := sha256.Sum256(lengthPrefixed("thoughtgate tools 1", s.Upstream, s.Server))
	return historyRecords + hex.EncodeToString(sum[:16]) + "/"
}

// Observe records tool definitions and returns the histories of the tools. It omits tools for
// which there is no space. A new tool is trusted as it is.
func (s Store) Observe(ctx context.Context, from Source, tools map[string]Definition) (map[string]History, error) {
	byRecord := map[string][]string{}
	for tool := range tools {
		name := from.recordOf(tool)
		byRecord[name] = append(byRecord[name], tool)
	}
	known := make(map[string]History, len(tools))
	for record, names := range byRecord {
		slices.Sort(names) // if space runs out, the same tools are kept every time
		err := s.edit(ctx, record, func(p *page) (changed bool) {
			p.Source = from
			size := p.size()
			for _, tool := range names {
				h, seen := p.Tools[tool]
				if !seen {
					h = History{First: tools[tool]}
					if size += sizeOf(tool, h); size > fullRecord {
						continue
					}
				}
				h, stricter := h.Observe(tools[tool])
				changed = changed || stricter || !seen
				p.Tools[tool], known[tool] = h, h
			}
			return changed
		})
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}

// RecordChange records that policy met an unaccepted definition of a tool, unless that is recorded
// or accepted by now, and returns the history. The error is [task.ErrNotFound] if there is no
// history. The journal gets an entry for each of the first changes of a tool, and for each change
// of hints.
func (s Store) RecordChange(ctx context.Context, from Source, tool string, d Definition, note task.Note) (History, error) {
	record := from.recordOf(tool)
	p, _, err := s.page(ctx, record)
	known, seen := p.Tools[tool]
	if err == nil && !seen {
		err = gatestore.NoRecord(record)
	}
	if _, changed := known.TrustedHints(d); err != nil || !changed || known.HasChange(d) {
		return known, err
	}
	sameHints := func(c UnacceptedChange) bool { return c.Hints == d.Hints }
	//mutate:swap "(len(known.Changed) < maxChanged || !slices.ContainsFunc(known.Changed, sameHints))" "len(known.Changed) < maxChanged && sameHints != nil" TestEachChangeOfHintsIsInTheJournal a later change of the hints of a tool is not in the journal
	if s.Journal != nil && (len(known.Changed) < maxChanged || !slices.ContainsFunc(known.Changed, sameHints)) {
		change := known.Change(from, tool, d)
		note.Upstream, note.Tool, note.Reason = change.Upstream, change.Tool, change.What
		if err := s.Journal.Append(ctx, note); err != nil {
			return known, err
		}
	}
	err = s.edit(ctx, record, func(p *page) bool {
		h := p.Tools[tool]
		if _, changed := h.TrustedHints(d); !changed || h.HasChange(d) {
			known = h
			return false
		}
		h.Changed = append([]UnacceptedChange{{d, note.At.UTC().Truncate(time.Microsecond)}}, h.Changed...)
		h.Changed = h.Changed[:min(len(h.Changed), maxChanged)]
		p.Tools[tool], known = h, h
		return true
	})
	return known, err
}

// RecordUnpinned records that policy met a definition of a tool that is not the one in the lock
// file, unless that is recorded or accepted by now, and returns the history. The error is
// [task.ErrNotFound] if there is no history. The journal gets an entry for each change.
func (s Store) RecordUnpinned(ctx context.Context, from Source, tool string, c UnpinnedChange, note task.Note) (History, error) {
	record := from.recordOf(tool)
	p, _, err := s.page(ctx, record)
	known, seen := p.Tools[tool]
	if err == nil && !seen {
		err = gatestore.NoRecord(record)
	}
	if err != nil || slices.Contains(known.Known, c.Digest) || known.HasUnpinned(c.Digest) {
		return known, err
	}
	if s.Journal != nil && len(known.Unpinned) < maxChanged { // a server cannot fill the journal
		change := c.Change(from, tool)
		note.Upstream, note.Tool, note.Reason = change.Upstream, change.Tool, change.What
		if err := s.Journal.Append(ctx, note); err != nil {
			return known, err
		}
	}
	c.At = note.At.UTC().Truncate(time.Microsecond)
	err = s.edit(ctx, record, func(p *page) bool {
		h := p.Tools[tool]
		if known = h; slices.Contains(h.Known, c.Digest) || h.HasUnpinned(c.Digest) {
			return false
		}
		h.Unpinned = append([]UnpinnedChange{c}, h.Unpinned...)
		h.Unpinned = h.Unpinned[:min(len(h.Unpinned), maxChanged)]
		p.Tools[tool], known = h, h
		p.fit(tool)
		return true
	})
	return known, err
}

// Changes returns unaccepted changes, at most the given number.
func (s Store) Changes(ctx context.Context, most int) ([]Change, error) {
	var all []Change
	err := s.pages(ctx, func(_ string, p page) bool {
		for tool, h := range p.Tools {
			for _, c := range h.changes(p.Source, tool) {
				all = append(all, c.Change)
			}
		}
		return len(all) < most
	})
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(len(all), most)], err
}

// Accept makes policy trust a changed definition from now on. It first calls record with the
// change. The error is [task.ErrNotFound] if there is no such change.
func (s Store) Accept(ctx context.Context, id string, record func(Change) error) (Change, error) {
	var found unaccepted
	at, tool := "", ""
	err := s.pages(ctx, func(name string, p page) bool {
		for t, h := range p.Tools {
			for _, c := range h.changes(p.Source, t) {
				if c.ID == id {
					found, at, tool = c, name, t
				}
			}
		}
		return at == ""
	})
	if err == nil && at == "" {
		err = gatestore.NoRecord(historyRecords)
	}
	if err == nil {
		err = record(found.Change)
	}
	if err != nil {
		return Change{}, err
	}
	return found.Change, s.edit(ctx, at, func(p *page) bool {
		h, seen := p.Tools[tool]
		if !seen || !h.accept(found) {
			return false
		}
		p.Tools[tool] = h
		return true
	})
}

// edit applies change to a record. Change reports whether it changed anything, and may be called
// several times.
func (s Store) edit(ctx context.Context, name string, change func(*page) bool) error {
	for {
		p, version, err := s.page(ctx, name)
		if err != nil || !change(&p) {
			return err
		}
		value, err := json.Marshal(&p, json.Deterministic(true))
		if err != nil {
			return err
		}
		err = s.Records.PutRecord(ctx, gatestore.Record{Name: name, Version: version + 1, Value: value})
		if !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
}

// page reads a record. The version is 0 if it does not exist.
func (s Store) page(ctx context.Context, name string) (page, int64, error) {
	p := page{Tools: map[string]History{}}
	r, err := s.Records.GetRecord(ctx, name)
	if errors.Is(err, task.ErrNotFound) {
		return p, 0, nil
	}
	if err == nil {
		err = p.read(r)
	}
	return p, r.Version, err
}

// read decodes a record.
func (p *page) read(r gatestore.Record) error {
	if err := json.Unmarshal(r.Value, p); err != nil {
		return &task.Error{Kind: task.ErrUnreadable, Action: action.GetRecord, Detail: "the definitions of tools", Err: err}
	}
	if p.Tools == nil {
		p.Tools = map[string]History{}
	}
	return nil
}

// pages calls more with all records until it returns false.
func (s Store) pages(ctx context.Context, more func(name string, p page) bool) error {
	for r, err := range gatestore.EachRecord(ctx, s.Records, gatestore.RecordQuery{Prefix: historyRecords, Limit: 20}) {
		var p page
		if err == nil {
			err = p.read(r)
		}
		if err != nil || !more(r.Name, p) {
			return err
		}
	}
	return nil
}

// size estimates the size of the record of p in bytes.
func (p *page) size() int {
	size := 2*len(p.Upstream) + 2*len(p.Server) + 64
	for tool, h := range p.Tools {
		size += sizeOf(tool, h)
	}
	return size
}

// fit drops diffs while the record of p is too large, that of the given tool last.
func (p *page) fit(last string) {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(p.Tools)), func(tool string) bool { return tool == last })
	for _, tool := range append(others, last) {
		if p.size() <= gatestore.MaxRecordValue {
			return
		}
		h := p.Tools[tool]
		h.Unpinned = slices.Clone(h.Unpinned)
		for i := range h.Unpinned {
			h.Unpinned[i].Diff = ""
		}
		p.Tools[tool] = h
	}
}

// sizeOf returns an upper estimate of the size of a history in its record.
func sizeOf(tool string, h History) int {
	const definition = 128 // has a digest of 43 characters and possibly a time
	size := 6*len(tool) + definition*(2+len(h.Accepted)+len(h.Changed)+len(h.Known)+len(h.Unpinned))
	for _, c := range h.Unpinned {
		size += 2 * (len(c.What) + len(c.Diff))
	}
	return size
}

// lengthPrefixed concatenates texts unambiguously.
func lengthPrefixed(texts ...string) []byte {
	var b []byte
	for _, text := range texts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
	}
	return b
}

// String describes c in words.
func (c Change) String() string { return fmt.Sprintf("the tool has changed: %s", c.What) }
