package inbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// timeFormat is the format of times that the script of pages reads.
const timeFormat = time.RFC3339Nano

func waitingMore(f frame) string {
	if f.waiting == 1 {
		return "1 more is waiting"
	}
	return fmt.Sprintf("%d more are waiting", f.waiting)
}

// permille returns how much of the time to decide is left.
func permille(a casefile.Approval, now time.Time) int {
	whole, left := a.ExpiresAt.Sub(a.CreatedAt), a.ExpiresAt.Sub(now)
	if whole <= 0 || left <= 0 {
		return 0
	}
	return min(1000, int(left*1000/whole))
}

// soon is when a decision is urgent, whatever the time there was.
const soon = time.Minute

func urgent(a casefile.Approval, now time.Time) bool {
	return a.ExpiresAt.Sub(now) < soon || permille(a, now) < 150
}

// How much is shown of arguments in a list.
const (
	maxPreview = 240 // about how many bytes
	maxMembers = 8
)

// A member is a name and a value of the arguments, as a list shows them.
type member struct{ name, value []run }

// preview returns the beginning of the arguments of a, or nil if there are none.
func preview(a casefile.Approval) []member {
	text := string(a.Arguments)
	if a.ArgumentsTruncated { // a string with the beginning of them
		text = plainValue(a.Arguments)
	}
	if text == "" || text == "{}" {
		return nil
	}
	l := layout{from: jsontext.NewDecoder(strings.NewReader(text)), bytes: maxPreview}
	var members []member
	var err error
	if text[0] == '{' { // a batch is a list
		members, err = l.members()
	}
	if len(members) == 0 {
		return []member{{value: l.cut(text, maxPreview)}}
	}
	if err != nil {
		members = append(members, member{value: []run{{text: "…"}}})
	}
	return members
}

// errNoRoom ends a list of members.
var errNoRoom = errors.New("no room for more")

// members returns the first members of an object. An error says that there are
// more.
func (l *layout) members() ([]member, error) {
	var members []member
	_, err := l.from.ReadToken()
	for err == nil && l.from.PeekKind() != '}' {
		if l.bytes <= 0 || len(members) == maxMembers {
			return members, errNoRoom
		}
		var name, value jsontext.Value
		if name, err = l.from.ReadValue(); err != nil {
			break
		}
		label := l.cut(plainValue(name), maxPreview) // the next read takes its memory
		if value, err = l.from.ReadValue(); err == nil {
			members = append(members, member{label, l.cut(plainValue(value), maxPreview)})
		}
	}
	return members, err
}

// plainValue returns a string as what it says, if that is clear, and any other
// value as JSON.
func plainValue(v jsontext.Value) string {
	if v.Kind() == '"' {
		if text, err := jsontext.AppendUnquote(nil, v); err == nil && !unclear(string(text)) {
			return string(text)
		}
	}
	return string(v)
}

// unclear reports whether a string could be taken for nothing, for another one
// or for another value if it were shown without quotes.
func unclear(s string) bool {
	if s == "" || strings.TrimSpace(s) != s {
		return true
	}
	return len(s) < 40 && strings.IndexByte(`{["`, s[0]) < 0 && jsontext.Value(s).IsValid()
}

// verb says what a requester wants of what is called.
func verb(a casefile.Approval) string {
	switch a.Method {
	case "resources/read":
		return "read this resource"
	case "resources/subscribe":
		return "follow this resource"
	case "prompts/get":
		return "use this prompt"
	case casefile.MethodBatch:
		return "make all of these calls"
	default:
		return "run this tool"
	}
}

func heldTitle(d detail) string {
	if d.State == task.InputRequired {
		return "Why it is held"
	}
	return "Why it was held"
}

// mayReject reports whether there is something left to decide for the one who
// looks.
func mayReject(d detail) bool {
	return d.Objection == nil || errors.Is(d.Objection, task.ErrSelfApproval) || errors.Is(d.Objection, task.ErrAlreadyDecided)
}

func foundText(n int, find string) string {
	if n == 0 {
		return "“" + visible(find) + "” is not in the arguments."
	}
	return "“" + visible(find) + "” is in the arguments " + times(n) + "."
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func emptyText(n node) string {
	if n.kind == "array" {
		return "empty list"
	}
	return "empty object"
}

func sizeText(n node) string {
	what := "member"
	if n.kind == "array" {
		what = "item"
	}
	return counted(n.count, what)
}

// blockText says what a block is.
func blockText(n node) string {
	parts := []string{}
	if n.note != "" {
		parts = append(parts, n.note)
	} else {
		if n.block.language != highlight.Text {
			parts = append(parts, string(n.block.language))
		}
		parts = append(parts, counted(n.block.count, "line"), bytesText(n.size))
	}
	return strings.Join(parts, " · ")
}

// foldText says how much of a text is folded.
func foldText(b *block) string {
	return fmt.Sprintf("%s folded (%s)", counted(len(b.fold), "line"), bytesText(b.folded))
}

// short returns as much of a digest as people compare.
func short(digest string) string { return digest[:min(len(digest), 16)] }
