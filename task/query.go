package task

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// A Query selects tasks. Scope must be given; other zero fields select everything.
type Query struct {
	Scope  Scope
	States []State
	Digest Digest
	Cursor string // Page.Next of the page before; empty for the first
	Limit  int    // tasks on a page: 20 if zero, at most 100

	// OwesCancellation selects the tasks whose upstream must be sent a cancellation. A
	// store finds them without reading others. The page may contain more tasks: the
	// caller checks [Task.OwesCancellation].
	OwesCancellation bool

	// Heads asks only for the [Task.Head] of each task, which a store has without reading
	// a call that may be large.
	Heads bool

	// Outlines asks only for the [Task.Outline] of each task. Stores keep outlines apart
	// from the calls, which may be large.
	Outlines bool
}

// A Page is a part of the tasks that a query selects.
type Page struct {
	Tasks []Task
	Next  string // the cursor of the next page; empty if this is the last
}

// Matches reports whether q selects t. It ignores Cursor, Limit and OwesCancellation.
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

// PageOf returns q's page of all tasks of a store. It is for stores that have all
// tasks in memory.
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
		case !first || !q.Matches(t) || q.OwesCancellation && !t.OwesCancellation():
		case len(page.Tasks) == q.PageSize():
			page.Next = q.CursorAfter(page.Tasks[len(page.Tasks)-1].Position())
			return page, nil
		default:
			page.Tasks = append(page.Tasks, q.Part(*t))
		}
	}
	return page, nil
}

// A Position is the position of a task in a list.
type Position struct {
	CreatedAt time.Time
	ID        ID
}

// Position returns the position of t in a list.
func (t Task) Position() Position { return Position{CreatedAt: t.CreatedAt, ID: t.ID} }

// Head returns t with only its ID, version, state, owner and time of creation.
func (t Task) Head() Task {
	return Task{ID: t.ID, Version: t.Version, State: t.State, Owner: t.Owner, CreatedAt: t.CreatedAt}
}

// Outline returns t without the fields that may be large: the request and its arguments, the
// upstream's questions with the client's answers, and the result.
func (t Task) Outline() Task {
	t.Call.Message, t.Call.Arguments, t.Call.Also = "", "", ""
	if t.Execution = copied(t.Execution); t.Execution != nil {
		t.Execution.InputRequests, t.Execution.RequestState, t.Execution.Answers = nil, "", nil
	}
	if t.Result = copied(t.Result); t.Result != nil {
		t.Result.Inline = nil
	}
	t = t.Clone()
	if t.Approval != nil && t.Approval.Rejection != nil && t.Approval.Rejection.Correction != nil {
		t.Approval.Rejection.Correction.Arguments = nil
	}
	return t
}

// leastWeight is what a store needs for the smallest task: a row, its outline and the
// entries in indexes.
const leastWeight = 2 << 10

// Weight returns about how many bytes a store needs for t: the fields whose size
// clients and upstreams determine, its result included, and a constant for the rest.
func (t Task) Weight() int64 {
	size := leastWeight + len(t.Call.Name) + len(t.Call.Message) + len(t.Call.Also) + len(t.Verdict.Facts)
	for name, value := range t.Variables {
		size += len(name) + len(value)
	}
	if x := t.Execution; x != nil {
		size += len(x.InputRequests) + len(x.RequestState) + len(x.Answers)
	}
	if t.Result == nil {
		return int64(size)
	}
	return int64(size+len(t.Result.Inline)) + t.blobSize()
}

// Account returns for whom the bytes of t count: its group if it has one, otherwise its
// owner. An owner without identity can make new owners at will, but not new groups.
func (t Task) Account() string {
	if t.Group != "" {
		return "group:" + t.Group
	}
	return "owner:" + t.Owner
}

// blobSize returns how large the blob of t is, if t has one.
func (t *Task) blobSize() int64 {
	if t.Result == nil || t.Result.Chunks == 0 {
		return 0
	}
	return t.Result.Size
}

// Part returns a copy of the part of t that q asks for.
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
// not secret and gives no access. Its checksum over query and position detects
// cursors of other queries.
func (q Query) CursorAfter(p Position) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.CreatedAt.UnixMicro()))
	b = append(b, p.ID...)
	return base64.RawURLEncoding.EncodeToString(append(b, q.checksum(b)...))
}

const checksumSize = 8

// Position returns the position in q's cursor: that of the last task on the page
// before, or zero if q asks for the first page. It returns [ErrInvalidCursor] if the
// cursor does not come from the same query.
func (q Query) Position() (Position, error) {
	if q.Cursor == "" {
		return Position{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	at := len(b) - checksumSize
	if err != nil || at < 8 || !slices.Equal(b[at:], q.checksum(b[:at])) {
		return Position{}, &Error{Kind: ErrInvalidCursor, Action: action.List, Suggest: suggestions[ErrInvalidCursor]}
	}
	micro := int64(binary.BigEndian.Uint64(b))
	return Position{CreatedAt: time.UnixMicro(micro).UTC(), ID: ID(b[8:at])}, nil
}

// checksum returns a checksum over an encoded position and q's conditions.
func (q Query) checksum(position []byte) []byte {
	states := slices.Clone(q.States)
	slices.Sort(states)
	var b strings.Builder
	for _, s := range slices.Compact(states) {
		b.WriteString(string(s) + " ")
	}
	if q.OwesCancellation {
		b.WriteString("owing")
	}
	var sum []byte
	for _, part := range [...]string{q.Scope.key(), b.String(), string(q.Digest[:]), string(position)} {
		sum = append(binary.BigEndian.AppendUint64(sum, uint64(len(part))), part...)
	}
	hash := sha256.Sum256(sum)
	return hash[:checksumSize]
}

// key returns a different text for each scope.
func (s Scope) key() string {
	if s.any {
		return "*"
	}
	return "=" + s.owner
}
