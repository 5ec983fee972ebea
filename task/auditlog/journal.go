package auditlog

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

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// Prepare returns notes in the form that stores keep, with times in whole
// microseconds. It returns [task.ErrInvalid] if one of them is malformed.
func Prepare(notes []task.Note, a action.Name) ([]task.Note, error) {
	if len(notes) == 0 {
		return nil, nil
	}
	prepared := make([]task.Note, len(notes))
	for i, n := range notes {
		if wrong := checkNote(&n); wrong != "" {
			return nil, &task.Error{Kind: task.ErrInvalid, ID: n.Task, Action: a, Detail: "note: " + wrong}
		}
		n.At = precise(n.At)
		prepared[i] = n
	}
	return prepared, nil
}

// Steps of entries that do not belong to a held call.
const (
	ToolChanged = "tool_changed"     // a call was judged by a definition of its tool that no operator has accepted
	Imported    = "journal_imported" // a log whose beginning had been removed was added

	PasskeyAdded   = "passkey_added"   // an operator has a new passkey
	PasskeyRemoved = "passkey_removed" // a passkey counts no more
	PasskeyInvited = "passkey_invited" // an administrator lets an operator add a passkey

	Connected    = "connected"    // the gate may use a server in the name of a person, or of all agents
	Disconnected = "disconnected" // it may not any more
)

func checkNote(n *task.Note) string {
	switch {
	case n.Step == "":
		return "no step"
	case n.At.IsZero():
		return "no time"
	case len(n.Task) > task.MaxID || strings.ContainsRune(string(n.Task), 0):
		return "malformed id"
	}
	for _, f := range fieldsOf(n) {
		if !utf8.ValidString(f.value) {
			return "invalid UTF-8"
		}
	}
	return ""
}

// A field is a part of a note. Its name never changes.
type field struct{ name, value string }

// fieldsOf returns the fields that a hash covers. Their order is fixed, and new fields
// come last. Empty fields do not count, so that old entries keep their hashes.
func fieldsOf(n *task.Note) [32]field {
	digest, unread, pid, passkey := "", "", "", ""
	if n.Via.PID != 0 {
		pid = strconv.Itoa(n.Via.PID)
	}
	if n.UnreadBytes != 0 {
		unread = strconv.FormatInt(n.UnreadBytes, 10)
	}
	if n.ArgumentDigest != (task.Digest{}) {
		digest = n.ArgumentDigest.String()
	}
	if n.Passkey != nil {
		text, _ := json.Marshal(n.Passkey, json.Deterministic(true)) // cannot fail for valid UTF-8, which checkNote requires
		passkey = string(text)
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
		{"policyBefore", n.PolicyBefore},
		{"via.kind", string(n.Via.Kind)},
		{"via.login", n.Via.Login},
		{"via.channel", n.Via.Channel},
		//mutate:swap "n.Via.Account" `""` task.TestHashCoversEveryField the audit log does not cover the account of a decision
		{"via.account", n.Via.Account},
		{"via.pid", pid},
		{"via.program", n.Via.Program},
		{"via.terminal", n.Via.Terminal},
		{"via.user", n.Via.User},
		//mutate:swap "string(n.Via.FromAgent)" `""` task.TestHashCoversEveryField the audit log does not cover whether an agent decided
		{"via.fromAgent", string(n.Via.FromAgent)},
		//mutate:swap "passkey}" `""}` task.TestHashCoversEveryField the audit log does not cover the signature of an approval
		{"passkey", passkey},
	}
}

// Encode returns n as a JSON document.
func Encode(n task.Note) ([]byte, error) { return json.Marshal(&n, json.Deterministic(true)) }

// Decode reads the result of [Encode].
func Decode(data []byte) (task.Note, error) {
	var n task.Note
	if err := json.Unmarshal(data, &n, json.RejectUnknownMembers(true)); err != nil {
		return task.Note{}, fmt.Errorf("stored note: %w", err)
	}
	return n, nil
}

// A Hash is the hash of an [Entry]. It covers all entries before it too.
type Hash [sha256.Size]byte

// String returns h in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error { return (*task.Digest)(h).UnmarshalText(text) }

// A Link is the number of an entry and its hash. The zero Link precedes the first entry.
type Link struct {
	Seq  int64 `json:"seq"`
	Hash Hash  `json:"hash"`
}

// String returns l in the form that [ParseLink] reads.
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

// An Entry is a note in the journal.
type Entry struct {
	Seq int64 `json:"seq"` // one more than that of the entry before
	task.Note
	Prev Hash `json:"prev"` // of the entry before
	Hash Hash `json:"hash"`
}

// Link returns the number and the hash of e.
func (e Entry) Link() Link { return Link{Seq: e.Seq, Hash: e.Hash} }

// chained is the prefix of the hashed bytes. It separates them from other hashes.
const chained = "thoughtgate journal 1"

// Next returns the entry that n becomes after l. Its hash is SHA-256 over a
// fixed text, the hash of the entry before, the number of this one as eight
// bytes, and name and value of every field that is not empty. The text, names
// and values are preceded by their length, all numbers are big endian.
func (l Link) Next(n task.Note) Entry {
	b := make([]byte, 0, 1024)
	b = appendText(b, chained)
	//mutate:drop task.TestHashOfEntriesIsStable the chain of the journal skips the hash before
	b = append(b, l.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Seq+1))
	fields := fieldsOf(&n)
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

// Extend returns the entries that notes become after l, in their order.
func (l Link) Extend(notes []task.Note) []Entry {
	entries := make([]Entry, len(notes))
	for i, n := range notes {
		entries[i] = l.Next(n)
		l = entries[i].Link()
	}
	return entries
}

// Verify returns nil if e is unchanged and is the entry after l, and otherwise a
// [*ChainError].
func (l Link) Verify(e Entry) error {
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
	Anchor Link `json:"anchor"` // the last entry that was trimmed, or zero
	Head   Link `json:"head"`   // the last entry
}

// A Query selects entries of the journal. Zero fields select everything.
type Query struct {
	Task  task.ID // only entries about this task
	After int64   // only entries with a larger number
	Limit int     // how many: 100 if zero, at most 1000
}

// PageSize returns how many entries q selects at most.
func (q Query) PageSize() int {
	if q.Limit <= 0 {
		return 100
	}
	return min(q.Limit, 1000)
}

// Journal is the part of a store that keeps a record of what happened. Notes
// are added to its end, where [Link.Next] chains them to the last entry. Entries never
// change, and only the oldest can be removed.
//
// [task.Store.Create] and [task.Store.Swap] take the notes that describe the change: both
// are made, or neither. Once a change is acknowledged, its notes are in the
// journal.
type Journal interface {
	// Append adds notes that belong to no change of a task. If one of them is
	// malformed, it adds none and returns [task.ErrInvalid].
	Append(ctx context.Context, notes ...task.Note) error

	// Entries returns the first entries that q selects, in their order.
	Entries(ctx context.Context, q Query) ([]Entry, error)

	// Ends returns where the journal begins and ends.
	Ends(ctx context.Context) (Ends, error)

	// Trim removes up to limit of the oldest entries, up to the first that is
	// not before the given time, and reports how many. The last of them
	// becomes the anchor. If replicas trim at the same time, each removal is reported
	// to one of them.
	Trim(ctx context.Context, before time.Time, limit int) (int, error)
}

// Outdated returns how many of the oldest entries [Journal.Trim] removes: those up to
// the first that is not before the given time.
func Outdated(entries []Entry, before time.Time) int {
	for i := range entries {
		if !entries[i].At.Before(before) {
			return i
		}
	}
	return len(entries)
}
