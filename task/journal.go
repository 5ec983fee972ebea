package task

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// A Note describes one step of a held call, for the journal: who did what, when
// and why. It holds no arguments, no results and no secrets. Empty fields are
// those that the step has nothing to say about.
type Note struct {
	At        time.Time `json:"at"`
	Task      ID        `json:"task,omitzero"`
	Step      string    `json:"step"`
	Actor     string    `json:"actor,omitzero"`     // who did it: a person, or a part of the gate
	Requester string    `json:"requester,omitzero"` // who made the call
	Upstream  string    `json:"upstream,omitzero"`
	Method    string    `json:"method,omitzero"`
	Tool      string    `json:"tool,omitzero"` // the name of the tool or prompt, or the URI of the resource

	ArgumentDigest Digest `json:"argumentDigest,omitzero"` // [Task.CallDigest]
	ToolDigest     string `json:"toolDigest,omitzero"`     // of the tool's definition
	PolicySnapshot string `json:"policySnapshot,omitzero"` // the policy that was asked
	Verdict        string `json:"verdict,omitzero"`        // the rule or policy that decided
	Workflow       string `json:"workflow,omitzero"`

	Approver string `json:"approver,omitzero"`
	Reason   string `json:"reason,omitzero"` // what the approver, or whoever did it, gave as the reason
	From     State  `json:"from,omitzero"`
	To       State  `json:"to,omitzero"`
	Outcome  string `json:"outcome,omitzero"`
	Ran      Ran    `json:"ran,omitzero"` // whether the call reached the tool, once that can be said

	// UnreadBytes is how much of the call an approver did not read, by their own
	// word, and approved anyway.
	UnreadBytes int64 `json:"unreadBytes,omitzero"`

	Grant GrantID `json:"grant,omitzero"` // that was given, used or revoked
}

// maxNoteTask is the size of the longest ID that a journal keeps: databases
// have to find entries by it.
const maxNoteTask = 512

// PrepareNotes returns notes as a store keeps them, with times in whole
// microseconds. It returns [ErrInvalid] if one of them cannot be kept.
func PrepareNotes(notes []Note, a Action) ([]Note, error) {
	if len(notes) == 0 {
		return nil, nil
	}
	prepared := make([]Note, len(notes))
	for i, n := range notes {
		if wrong := n.check(); wrong != "" {
			return nil, &Error{Kind: KindInvalid, ID: n.Task, Action: a, Detail: "note: " + wrong}
		}
		n.At = precise(n.At)
		prepared[i] = n
	}
	return prepared, nil
}

func (n *Note) check() string {
	switch {
	case n.Step == "":
		return "no step"
	case n.At.IsZero():
		return "no time"
	case len(n.Task) > maxNoteTask || strings.ContainsRune(string(n.Task), 0):
		return "malformed id"
	}
	for _, f := range n.fields() {
		if !utf8.ValidString(f.value) {
			return "invalid UTF-8"
		}
	}
	return ""
}

// A field is a part of a note by its name, which never changes.
type field struct{ name, value string }

// fields returns all that a hash covers. The order is fixed, and new ones come
// last: those that are empty do not count, so that old entries keep their
// hashes.
func (n *Note) fields() [21]field {
	digest, unread := "", ""
	if n.UnreadBytes != 0 {
		unread = strconv.FormatInt(n.UnreadBytes, 10)
	}
	if n.ArgumentDigest != (Digest{}) {
		digest = n.ArgumentDigest.String()
	}
	return [...]field{
		{"at", strconv.FormatInt(n.At.UnixMicro(), 10)},
		{"task", string(n.Task)},
		{"step", n.Step},
		{"actor", n.Actor},
		{"requester", n.Requester},
		{"upstream", n.Upstream},
		{"method", n.Method},
		{"tool", n.Tool},
		{"argumentDigest", digest},
		{"toolDigest", n.ToolDigest},
		{"policySnapshot", n.PolicySnapshot},
		{"verdict", n.Verdict},
		{"workflow", n.Workflow},
		{"approver", n.Approver},
		{"reason", n.Reason},
		{"from", string(n.From)},
		{"to", string(n.To)},
		{"outcome", n.Outcome},
		{"ran", string(n.Ran)},
		{"unreadBytes", unread},
		{"grant", string(n.Grant)},
	}
}

// EncodeNote returns n as a JSON document, for stores that keep it as such.
func EncodeNote(n Note) ([]byte, error) { return json.Marshal(&n, json.Deterministic(true)) }

// DecodeNote returns the note that data is the stored form of.
func DecodeNote(data []byte) (Note, error) {
	var n Note
	if err := json.Unmarshal(data, &n, json.RejectUnknownMembers(true)); err != nil {
		return Note{}, fmt.Errorf("stored note: %w", err)
	}
	return n, nil
}

// A Hash is the hash of an [Entry], and stands for all that lies before it.
type Hash [sha256.Size]byte

// String returns h in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error { return (*Digest)(h).UnmarshalText(text) }

// A Link is a place in the journal: the number of an entry and its hash. The
// zero Link is the place before the first.
type Link struct {
	Seq  int64 `json:"seq"`
	Hash Hash  `json:"hash"`
}

// String returns l as [ParseLink] reads it.
func (l Link) String() string { return strconv.FormatInt(l.Seq, 10) + ":" + l.Hash.String() }

// ParseLink reads a link: a number, a colon and a hash in hexadecimal.
func ParseLink(text string) (Link, error) {
	number, hash, ok := strings.Cut(text, ":")
	var l Link
	var err error
	if l.Seq, err = strconv.ParseInt(number, 10, 64); err != nil || !ok || l.Seq < 0 {
		return Link{}, fmt.Errorf("%q is not a number, a colon and a hash", text)
	}
	if err := l.Hash.UnmarshalText([]byte(hash)); err != nil {
		return Link{}, fmt.Errorf("%q: hash: %w", text, err)
	}
	return l, nil
}

// An Entry is a note in its place in the journal.
type Entry struct {
	Seq int64 `json:"seq"` // one more than that of the entry before
	Note
	Prev Hash `json:"prev"` // of the entry before
	Hash Hash `json:"hash"`
}

// Link returns the place of e.
func (e Entry) Link() Link { return Link{Seq: e.Seq, Hash: e.Hash} }

// chained begins what is hashed, so that it is nothing but an entry.
const chained = "thoughtgate journal 1"

// Next returns the entry that n becomes after l. Its hash is SHA-256 over a
// fixed text, the hash of the entry before, the number of this one as eight
// bytes, and name and value of every field that is not empty. The text, names
// and values are preceded by their length, all numbers are big endian.
//
// There is no other way to make an entry: stores keep the order of notes, and
// this says what that makes of them.
func (l Link) Next(n Note) Entry {
	b := make([]byte, 0, 1024)
	b = appendText(b, chained)
	b = append(b, l.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Seq+1)) //nolint:gosec // never negative
	fields := n.fields()
	for i := range fields {
		if f := &fields[i]; f.value != "" {
			b = appendText(b, f.name)
			b = appendText(b, f.value)
		}
	}
	return Entry{Seq: l.Seq + 1, Note: n, Prev: l.Hash, Hash: sha256.Sum256(b)}
}

func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(text)))
	return append(b, text...)
}

// Extend returns the entries that notes become, one after the other, after l.
func (l Link) Extend(notes []Note) []Entry {
	entries := make([]Entry, len(notes))
	for i, n := range notes {
		entries[i] = l.Next(n)
		l = entries[i].Link()
	}
	return entries
}

// Follow returns nil if e is the entry after l, as it was written, and
// otherwise a [*ChainError].
func (l Link) Follow(e Entry) error {
	own := Link{Seq: e.Seq - 1, Hash: e.Prev}.Next(e.Note)
	number := func(seq int64) string { return strconv.FormatInt(seq, 10) }
	var problem string
	switch {
	case own.Hash != e.Hash:
		problem = "entry " + number(e.Seq) + " was changed"
	case e.Seq <= l.Seq:
		problem = "entry " + number(e.Seq) + " comes after entry " + number(l.Seq)
	case e.Seq == l.Seq+2:
		problem = "entry " + number(l.Seq+1) + " is missing"
	case e.Seq > l.Seq+2:
		problem = "entries " + number(l.Seq+1) + " to " + number(e.Seq-1) + " are missing"
	case e.Prev != l.Hash:
		problem = "entry " + number(e.Seq) + " does not follow the entry before it: one of them was inserted or replaced"
	default:
		return nil
	}
	return &ChainError{Seq: e.Seq, Problem: problem}
}

// A ChainError is a break in the chain of a journal.
type ChainError struct {
	Seq     int64  // the first entry that does not fit
	Problem string // names the entry that was changed, is missing or was moved
}

// Error implements error.
func (e *ChainError) Error() string { return "journal: " + e.Problem }

// Ends are the two ends of a journal.
type Ends struct {
	Anchor Link `json:"anchor"` // the last entry that was trimmed, or the place before the first
	Head   Link `json:"head"`   // the last entry
}

// A JournalQuery selects entries of the journal. Zero fields select everything.
type JournalQuery struct {
	Task  ID    // only entries about this task
	After int64 // only entries with a larger number
	Limit int   // how many: 100 if zero, at most 1000
}

// PageSize returns how many entries q selects at most.
func (q JournalQuery) PageSize() int {
	if q.Limit <= 0 {
		return 100
	}
	return min(q.Limit, 1000)
}

// Journal is the part of a store that keeps a record of what happened. Notes
// are added to its end, where [Link.Next] chains them to what is there; nothing
// is ever changed, and only the oldest entries can be removed.
//
// [Store.Create] and [Store.Swap] take the notes that describe the change: both
// are made, or neither. Once a change is acknowledged, its notes are in the
// journal.
type Journal interface {
	// Append adds notes about something that changed no task. It
	// returns [ErrInvalid], and adds none, if one of them cannot be kept.
	Append(ctx context.Context, notes ...Note) error

	// Entries returns the first entries that q selects, in their order.
	Entries(ctx context.Context, q JournalQuery) ([]Entry, error)

	// Ends returns where the journal begins and ends.
	Ends(ctx context.Context) (Ends, error)

	// Trim removes up to limit of the oldest entries, up to the first that is
	// not before the given time, and reports how many. The last of them
	// becomes the anchor. If several trim at once, each removal is reported to
	// one of them.
	Trim(ctx context.Context, before time.Time, limit int) (int, error)
}

// Outdated returns how many entries, which are the oldest, [Journal.Trim]
// removes: those up to the first that is not before the given time.
func Outdated(entries []Entry, before time.Time) int {
	for i := range entries {
		if !entries[i].At.Before(before) {
			return i
		}
	}
	return len(entries)
}
