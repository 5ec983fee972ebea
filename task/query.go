package task

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// A Query selects tasks. Zero fields select everything, but for Scope, which
// must be given.
type Query struct {
	Scope  Scope
	States []State
	Digest Digest
	Cursor string // Page.Next of the page before; empty for the first
	Limit  int    // tasks on a page: 20 if zero, at most 100

	// Owing selects the tasks that owe their upstream something, which a store
	// finds without reading any other. There may be some among them that do not
	// or no longer owe anything: the caller asks [Task.Owes].
	Owing bool

	// Heads asks for no more of each task than [Task.Head] has, which a store
	// can tell without reading a call that may be large.
	Heads bool

	// Outlines asks for no more of each task than [Task.Outline] has. Stores keep
	// outlines apart from the calls, which may be large.
	Outlines bool
}

// A Page is a part of the tasks that a query selects.
type Page struct {
	Tasks []Task
	Next  string // the cursor of the next page; empty if this is the last
}

// Matches reports whether q selects t, whatever the page and whatever t owes.
func (q Query) Matches(t *Task) bool {
	return q.Scope.Admits(t.Owner) &&
		(len(q.States) == 0 || slices.Contains(q.States, t.State)) &&
		(q.Digest == Digest{} || q.Digest == t.Digest)
}

// PageSize returns how many tasks a page of q has at most.
func (q Query) PageSize() int {
	if q.Limit <= 0 {
		return 20
	}
	return min(q.Limit, 100)
}

// PageOf returns the page that q asks for of all tasks that a store has. It is for
// stores that hold them in memory.
func (q Query) PageOf(all []Task) (Page, error) {
	after, err := q.Position()
	if err != nil {
		return Page{}, err
	}
	ordered := make([]*Task, len(all))
	for i := range all {
		ordered[i] = &all[i]
	}
	slices.SortFunc(ordered, func(a, b *Task) int { return Compare(a.Position(), b.Position()) })
	var page Page
	for _, t := range ordered {
		first := q.Cursor == "" || Compare(t.Position(), after) > 0
		switch {
		case !first || !q.Matches(t) || q.Owing && !t.Owes():
		case len(page.Tasks) == q.PageSize():
			page.Next = q.CursorAfter(page.Tasks[len(page.Tasks)-1].Position())
			return page, nil
		default:
			page.Tasks = append(page.Tasks, q.Part(*t))
		}
	}
	return page, nil
}

// A Position is a task's place in a list.
type Position struct {
	CreatedAt time.Time
	ID        ID
}

// Position returns t's place in a list.
func (t Task) Position() Position { return Position{CreatedAt: t.CreatedAt, ID: t.ID} }

// Head returns the part of t by which lists find it, and its version.
func (t Task) Head() Task {
	return Task{ID: t.ID, Version: t.Version, State: t.State, Owner: t.Owner, CreatedAt: t.CreatedAt}
}

// Outline returns t without what may be large: the request and its arguments, the
// upstream's questions with the client's answers, and the result.
func (t Task) Outline() Task {
	t = t.Clone()
	t.Call.Message, t.Call.Arguments, t.Call.Also = "", "", ""
	if x := t.Execution; x != nil {
		x.InputRequests, x.RequestState, x.Answers = nil, "", nil
	}
	if t.Result != nil {
		t.Result.Inline = nil
	}
	return t
}

// Part returns as much of t as q asks for, in memory of its own.
func (q Query) Part(t Task) Task {
	switch {
	case q.Heads:
		return t.Head()
	case q.Outlines:
		return t.Outline()
	default:
		return t.Clone()
	}
}

// Compare returns a negative number if a is listed before b, a positive one if
// after. Newer tasks come first, and among tasks of the same microsecond the
// one with the smaller ID, compared byte by byte.
func Compare(a, b Position) int {
	if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// CursorAfter returns the cursor of the page of q that follows p. A cursor is
// no secret and grants nothing; its checksum over query and position is there
// to tell a mistake from a cursor.
func (q Query) CursorAfter(p Position) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.CreatedAt.UnixMicro()))
	b = append(b, p.ID...)
	return base64.RawURLEncoding.EncodeToString(append(b, q.checksum(b)...))
}

const checksumSize = 8

// Position returns the position that q's cursor stands for: that of the last
// task on the page before, or zero if q asks for the first page. It returns
// [ErrInvalidCursor] if the cursor was made by another query or by nobody.
func (q Query) Position() (Position, error) {
	if q.Cursor == "" {
		return Position{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	at := len(b) - checksumSize
	if err != nil || at < 8 || !slices.Equal(b[at:], q.checksum(b[:at])) {
		return Position{}, &Error{Kind: KindInvalidCursor, Action: ActionList, Suggest: suggestions[KindInvalidCursor]}
	}
	micro := int64(binary.BigEndian.Uint64(b)) //nolint:gosec // only the bits matter
	return Position{CreatedAt: time.UnixMicro(micro).UTC(), ID: ID(b[8:at])}, nil
}

// checksum ties position, the encoded form of one, to what q selects.
func (q Query) checksum(position []byte) []byte {
	states := slices.Clone(q.States)
	slices.Sort(states)
	var b strings.Builder
	for _, s := range slices.Compact(states) {
		b.WriteString(string(s) + " ")
	}
	if q.Owing {
		b.WriteString("owing")
	}
	var sum []byte
	for _, part := range [...]string{q.Scope.key(), b.String(), string(q.Digest[:]), string(position)} {
		sum = append(binary.BigEndian.AppendUint64(sum, uint64(len(part))), part...)
	}
	hash := sha256.Sum256(sum)
	return hash[:checksumSize]
}

// key tells scopes apart.
func (s Scope) key() string {
	if s.any {
		return "*"
	}
	return "=" + s.owner
}
