package casefile

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

var redacted = jsontext.String("[redacted]")

// shown returns arguments as approvers see them: without what paths name, with
// every character visible, and if they are longer than most only the beginning,
// as a JSON string.
func shown(arguments string, paths []path, most int) (text jsontext.Value, truncated bool) {
	if arguments == "" {
		return nil, false
	}
	whole, _, err := withoutRedacted(arguments, paths, most)
	if err != nil {
		return jsonrpc.AppendString(nil, "[unreadable]"), false
	}
	seen := []byte(plain.Escape(string(whole[:min(len(whole), most+utf8.UTFMax)])))
	if len(whole) <= most && len(seen) <= most {
		return seen, false
	}
	// A character that the cut goes through is left out.
	cut := strings.ToValidUTF8(string(seen[:most]), "")
	return jsonrpc.AppendString(nil, cut+"…"), true
}

// withoutRedacted returns arguments without what paths name, and where that was.
// If most is not zero and they are longer, more than so much of them is enough.
func withoutRedacted(arguments string, paths []path, most int) (jsontext.Value, map[jsontext.Pointer]bool, error) {
	if arguments == "" {
		return nil, nil, nil
	}
	var b bytes.Buffer
	r := redaction{
		from: jsontext.NewDecoder(strings.NewReader(arguments)), to: jsontext.NewEncoder(&b),
		hidden: make(map[jsontext.Pointer]bool),
		full:   func() bool { return most > 0 && b.Len() > most },
	}
	if err := r.copy(paths); err != nil && !errors.Is(err, errEnough) {
		return nil, nil, err
	}
	return bytes.TrimSpace(b.Bytes()), r.hidden, nil
}

// A redaction copies JSON without what is not to be shown.
type redaction struct {
	from   *jsontext.Decoder
	to     *jsontext.Encoder
	hidden map[jsontext.Pointer]bool
	full   func() bool // what was copied is enough

	subject string // in a batch: the member of params that names what the message is about

	clean func(text string) string // changes every text; nil if there is nothing to change
	cut   func() jsontext.Value    // returns the beginning of a string at which the input ends; nil if it must not end there
}

// hide writes something in the place of a value.
func (r *redaction) hide() error {
	if err := r.to.WriteToken(redacted); err != nil {
		return err
	}
	r.hidden[r.to.StackPointer()] = true
	return nil
}

// A path names members of arguments, one inside the other, in whatever case:
// some tools read them so. A star names any member. Arrays are passed through:
// what is named in an array is named in each of its elements. A string that
// holds JSON in which something is named is named as a whole.
type path []string

// parsePaths reads paths such as arguments.user.password. The leading "arguments."
// may be left out. Paths into results are skipped.
func parsePaths(texts []string) []path {
	paths := make([]path, 0, len(texts))
	for _, text := range texts {
		names := strings.Split(text, ".")
		if names[0] == "result" {
			continue
		}
		if names[0] == "arguments" {
			names = names[1:]
		}
		paths = append(paths, names)
	}
	return paths
}

// below returns what the paths name inside of the member called name.
func (r *redaction) below(paths []path, name string) []path {
	var inner []path
	for _, p := range paths {
		if len(p) > 0 && r.matches(p[0], name) {
			inner = append(inner, p[1:])
		}
	}
	return inner
}

// matches reports whether a step of a path names the member called name.
func (r *redaction) matches(step, name string) bool {
	step, unknown := strings.CutPrefix(step, unknownParam)
	if unknown && (name == r.subject || name == "arguments" || name == "_meta") {
		return false
	}
	return step == "*" || strings.EqualFold(step, name)
}

// unknownParam begins a step of a path that names only those members of the params of a
// message in a batch that are neither its arguments, nor its metadata, nor what the message
// is about. No path of a workflow has it.
const unknownParam = "\x00"

// namesAll reports whether one of the paths names the value itself.
func namesAll(paths []path) bool {
	for _, p := range paths {
		if len(p) == 0 {
			return true
		}
	}
	return false
}

// copy copies one value, without what paths name in it.
func (r *redaction) copy(paths []path) error {
	if namesAll(paths) {
		err := r.from.SkipValue()
		if err != nil && r.cut == nil {
			return err
		}
		return cmp.Or(r.hide(), err)
	}
	switch r.from.PeekKind() {
	case '{', '[':
		return r.copyInside(paths)
	default:
		text := r.from.PeekKind() == '"'
		v, err := r.from.ReadValue()
		switch {
		case err == nil:
			r.noteMethod(v)
			return r.write(paths, v)
		case text && r.cut != nil:
			return cmp.Or(r.write(paths, r.cut()), err)
		default:
			return err
		}
	}
}

// noteMethod remembers what the message of a batch is about if v is its method, which stands
// before its params.
func (r *redaction) noteMethod(v jsontext.Value) {
	if r.from.StackDepth() != 2 || r.from.StackPointer().LastToken() != "method" {
		return
	}
	method, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		method = nil
	}
	r.subject = policy.SubjectMember(string(method))
}

// write writes a value that is neither an object nor an array.
func (r *redaction) write(paths []path, v jsontext.Value) error {
	if len(paths) > 0 && holdsJSON(v) {
		return r.hide()
	}
	if r.clean == nil || v.Kind() != '"' {
		return r.to.WriteValue(v)
	}
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return r.hide()
	}
	return r.to.WriteToken(jsontext.String(r.clean(string(text))))
}

// writeName writes the name of a member.
func (r *redaction) writeName(name string) error {
	if r.clean != nil {
		name = r.clean(name)
	}
	return r.to.WriteToken(jsontext.String(name))
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

// copyInside copies an object or array.
func (r *redaction) copyInside(paths []path) error {
	open, err := r.from.ReadToken()
	if err != nil {
		return err
	}
	object := open.Kind() == '{'
	if err := r.to.WriteToken(open); err != nil {
		return err
	}
	for k := r.from.PeekKind(); k != '}' && k != ']'; k = r.from.PeekKind() {
		if r.full() {
			return errEnough
		}
		inner := paths
		if object {
			name, err := r.from.ReadToken()
			if err != nil {
				return err
			}
			inner = r.below(paths, name.String())
			if err := r.writeName(name.String()); err != nil {
				return err
			}
		}
		if err := r.copy(inner); err != nil {
			return err
		}
	}
	end, err := r.from.ReadToken()
	if err != nil {
		return err
	}
	return r.to.WriteToken(end)
}

// pathsInBatch returns paths of arguments as paths inside of what a batch is
// shown as: of arguments, and of what is sent besides, as [besides] has them.
func pathsInBatch(paths []path) []path {
	var inner []path
	for _, p := range paths {
		inner = append(inner, append(path{"params", "arguments"}, p...), append(path{"params", "_meta"}, p...))
		if len(p) == 0 {
			p = path{"*"}
		}
		inner = append(inner, append(path{"params", unknownParam + p[0]}, p[1:]...))
	}
	return inner
}

// whole returns JSON without what paths name, and what of it is redacted.
func whole(value string, paths []path) (jsontext.Value, map[jsontext.Pointer]bool) {
	text, hidden, err := withoutRedacted(value, paths, 0)
	if err != nil {
		return jsontext.Value(`"[unreadable]"`), nil
	}
	return text, hidden
}

// redactions returns the paths that nobody is shown of the arguments of t.
func (v *Viewer) redactions(t task.Task) []path {
	paths := parsePaths(v.redactedPaths(t))
	if t.Call.Method == MethodBatch {
		paths = pathsInBatch(paths)
	}
	return paths
}

// redactionsBeside returns the paths that nobody is shown of what is sent
// besides the arguments: what is secret there has the same name here.
func (v *Viewer) redactionsBeside(t task.Task) []path {
	return besides(v.redactions(t))
}

// besides returns paths of arguments as paths of what is sent besides them.
func besides(paths []path) []path {
	var beside []path
	for _, p := range paths {
		beside = append(beside, append(path{"*"}, p...))
	}
	return beside
}

// redacted returns, as one text, what the workflow of t redacts now. The text differs from
// that of earlier versions, which redacted less of a batch.
func (v *Viewer) redacted(t task.Task) string {
	text := strings.Join(v.redactedPaths(t), "\n")
	if t.Call.Method == MethodBatch {
		text += "\nalso besides the arguments, except what the method is about"
	}
	return text
}

// redactedPaths returns what the workflow of t redacts. If there is no such
// workflow, that is not known, so everything is.
func (v *Viewer) redactedPaths(t task.Task) []string {
	if terms, known := v.cfg.Terms(t); known {
		return terms.Redact
	}
	return []string{"arguments"}
}
