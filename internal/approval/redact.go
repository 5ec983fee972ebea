package approval

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

var redacted = jsontext.String("[redacted]")

// shown returns arguments as approvers see them: without what paths name, with
// every character visible, and if they are longer than most only the beginning,
// as a JSON string.
func shown(arguments string, paths []path, most int) (text jsontext.Value, truncated bool) {
	if arguments == "" {
		return nil, false
	}
	var b bytes.Buffer
	enc := jsontext.NewEncoder(&b)
	if err := redact(jsontext.NewDecoder(strings.NewReader(arguments)), enc, paths); err != nil {
		return jsonrpc.AppendString(nil, "[unreadable]"), false
	}
	seen := []byte(Visible(string(bytes.TrimSpace(b.Bytes()))))
	if len(seen) <= most {
		return seen, false
	}
	// A character that the cut goes through is left out.
	cut := strings.ToValidUTF8(string(seen[:most]), "")
	return jsonrpc.AppendString(nil, cut+"…"), true
}

// A path names members of arguments, one inside the other, in whatever case:
// some tools read them so. A star names any member. Arrays are passed through:
// what is named in an array is named in each of its elements. A string that
// holds JSON in which something is named is named as a whole.
type path []string

// parsePaths reads paths such as arguments.user.password. That they begin with
// arguments goes without saying, so it may go unsaid.
func parsePaths(texts []string) []path {
	paths := make([]path, 0, len(texts))
	for _, text := range texts {
		names := strings.Split(text, ".")
		if names[0] == "arguments" {
			names = names[1:]
		}
		paths = append(paths, names)
	}
	return paths
}

// below returns what the paths name inside of the member called name.
func below(paths []path, name string) []path {
	var inner []path
	for _, p := range paths {
		if len(p) > 0 && (p[0] == "*" || strings.EqualFold(p[0], name)) {
			inner = append(inner, p[1:])
		}
	}
	return inner
}

// whole reports whether one of the paths names the value itself.
func whole(paths []path) bool {
	for _, p := range paths {
		if len(p) == 0 {
			return true
		}
	}
	return false
}

// redact copies one value, without what paths name in it.
func redact(from *jsontext.Decoder, to *jsontext.Encoder, paths []path) error {
	if whole(paths) {
		if err := from.SkipValue(); err != nil {
			return err
		}
		return to.WriteToken(redacted)
	}
	switch from.PeekKind() {
	case '{', '[':
		return redactInside(from, to, paths)
	default:
		v, err := from.ReadValue()
		if err != nil {
			return err
		}
		if len(paths) > 0 && holdsJSON(v) {
			return to.WriteToken(redacted)
		}
		return to.WriteValue(v)
	}
}

// holdsJSON reports whether v is a string that may be an object or array, or
// another such string, written out.
func holdsJSON(v jsontext.Value) bool {
	if v.Kind() != jsontext.KindString {
		return false
	}
	text, err := jsontext.AppendUnquote(nil, v)
	text = bytes.TrimSpace(text)
	return err != nil || len(text) > 0 && bytes.IndexByte([]byte(`{["`), text[0]) >= 0
}

// redactInside copies an object or array.
func redactInside(from *jsontext.Decoder, to *jsontext.Encoder, paths []path) error {
	open, err := from.ReadToken()
	if err != nil {
		return err
	}
	object := open.Kind() == '{'
	if err := to.WriteToken(open); err != nil {
		return err
	}
	for k := from.PeekKind(); k != '}' && k != ']'; k = from.PeekKind() {
		inner := paths
		if object {
			name, err := from.ReadToken()
			if err != nil {
				return err
			}
			inner = below(paths, name.String())
			if err := to.WriteToken(jsontext.String(name.String())); err != nil {
				return err
			}
		}
		if err := redact(from, to, inner); err != nil {
			return err
		}
	}
	end, err := from.ReadToken()
	if err != nil {
		return err
	}
	return to.WriteToken(end)
}

// Visible returns text with an escape in the place of every character that a
// reader cannot see, that changes how others are seen, or that a terminal would
// obey. JSON means the same afterwards: there such characters can only stand in
// strings.
func Visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || !hidden(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
