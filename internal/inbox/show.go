package inbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// timeFormat is the format of times that the script reads.
const timeFormat = time.RFC3339Nano

// waitingMore is the text of a link to the next call of a list.
func waitingMore(f frame, list selection) string {
	switch {
	case list.narrow():
		return "Next call"
	case f.waiting == 1:
		return "1 more is waiting"
	default:
		return fmt.Sprintf("%d more are waiting", f.waiting)
	}
}

// permille returns the remaining share of the time to decide, in thousandths.
func permille(a review.Approval, now time.Time) int {
	whole, left := a.ExpiresAt.Sub(a.CreatedAt), a.ExpiresAt.Sub(now)
	if whole <= 0 || left <= 0 {
		return 0
	}
	return min(1000, int(left*1000/whole))
}

// soon is the remaining time from which every decision is urgent.
const soon = time.Minute

func urgent(a review.Approval, now time.Time) bool {
	return a.ExpiresAt.Sub(now) < soon || permille(a, now) < 150
}

// Limits of the arguments shown in the list.
const (
	maxPreview = 240 // bytes, approximately
	maxMembers = 8   // members of the arguments
)

// A member is the name and the value of an argument, as the list shows them.
type member struct{ name, value []textRun }

// preview returns the beginning of the arguments of a, or nil if there are none.
func preview(a review.Approval) []member {
	text := string(a.Arguments)
	if a.ArgumentsTruncated { // then Arguments is a JSON string with their beginning
		text = plainValue(a.Arguments)
	}
	if text == "" || text == "{}" {
		return nil
	}
	l := layouter{from: jsontext.NewDecoder(strings.NewReader(text)), bytes: maxPreview}
	var members []member
	var err error
	if text[0] == '{' { // the arguments of a batch are an array
		members, err = l.members()
	}
	if len(members) == 0 {
		return []member{{value: l.cut(text)}}
	}
	if err != nil {
		members = append(members, member{value: []textRun{{text: "…"}}})
	}
	return members
}

// errLimit means that a limit was reached before the end of a value.
var errLimit = errors.New("limit reached")

// members returns the first members of an object. An error means that members are
// missing.
func (l *layouter) members() ([]member, error) {
	var members []member
	_, err := l.from.ReadToken()
	for err == nil && l.from.PeekKind() != '}' {
		if l.bytes <= 0 || len(members) == maxMembers {
			return members, errLimit
		}
		var name, value jsontext.Value
		if name, err = l.from.ReadValue(); err != nil {
			break
		}
		label := l.cut(plainValue(name)) // before the next read, which reuses the memory of name
		if value, err = l.from.ReadValue(); err == nil {
			members = append(members, member{label, l.cut(plainValue(value))})
		}
	}
	return members, err
}

// plainValue returns a string without quotes unless that would be ambiguous, and any
// other value as JSON.
func plainValue(v jsontext.Value) string {
	if v.Kind() == '"' {
		if text, err := jsontext.AppendUnquote(nil, v); err == nil && !unclear(string(text)) {
			return string(text)
		}
	}
	return string(v)
}

// unclear reports whether a string is ambiguous without quotes: it is empty, begins or
// ends with a space, or could be a number, true, false or null.
func unclear(s string) bool {
	if s == "" || strings.TrimSpace(s) != s {
		return true
	}
	return len(s) < 40 && strings.IndexByte(`{["`, s[0]) < 0 && jsontext.Value(s).IsValid()
}

func heldTitle(d callView) string {
	if d.State == task.InputRequired {
		return "Why it is held"
	}
	return "Why it was held"
}

// mayReject reports whether the operator may still reject the call.
func mayReject(d callView) bool {
	return d.Objection == nil || errors.Is(d.Objection, lifecycle.ErrSelfApproval) || errors.Is(d.Objection, lifecycle.ErrAlreadyDecided) || errors.Is(d.Objection, approval.ErrOnlyRejects)
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

func emptyText(n valueNode) string {
	if n.kind == "array" {
		return "empty list"
	}
	return "empty object"
}

func sizeText(n valueNode) string {
	what := "member"
	if n.kind == "array" {
		what = "item"
	}
	return counted(n.count, what)
}

// blockText describes a block: its language and size.
func blockText(n valueNode) string {
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

// foldText returns the number of folded lines and their size.
func foldText(b *block) string {
	return fmt.Sprintf("%s folded (%s)", counted(len(b.fold), "line"), bytesText(b.folded))
}

// short returns the beginning of a digest, for comparison by eye.
func short(digest string) string { return digest[:min(len(digest), 16)] }
