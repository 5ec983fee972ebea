package review

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/secrets"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

var (
	redacted     = jsontext.String("[redacted]")
	redactedText = jsontext.Value(`"[redacted]"`)
)

// maxHidden is how many values inside arguments are redacted separately. If paths name more, the
// enclosing values are redacted, and finally whole arguments. An argument in which paths name
// nothing is always shown: otherwise an agent could hide one argument with another.
const maxHidden = 10_000

// errTooMany ends a redaction of more than maxHidden values.
var errTooMany = errors.New("too many values to hide")

// Offsets are sorted positions in a text.
type Offsets []int64

// Has reports whether o contains at.
func (o Offsets) Has(at int64) bool {
	_, found := slices.BinarySearch(o, at)
	return found
}

// A redactedJSON is a JSON text without redacted values.
type redactedJSON struct {
	text   jsontext.Value
	hidden Offsets // the ends of redacted values
	parts  bool    // parts of strings are hidden too
	cut    bool    // text is only the first part
	err    error
}

// withoutRedacted returns value without the values that paths name. If most is not zero, it may
// stop after that many bytes. It ends when ended returns an error.
func withoutRedacted(ended func() error, value string, paths []path, most int) redactedJSON {
	if value == "" {
		return redactedJSON{}
	}
	for steps := longest(paths); ; steps-- {
		var b bytes.Buffer
		r := redaction{from: jsontext.NewDecoder(strings.NewReader(value)), to: jsontext.NewEncoder(&b), steps: steps, small: len(value) <= MaxShown}
		r.stop = func() error {
			if most > 0 && b.Len() > most {
				return errStopped
			}
			//mutate:swap "ended()" "nil" TestViewEndsWithContext building a view continues after its context has ended
			return ended()
		}
		//mutate:swap "paths" "nil" internal/approval.TestShownArguments redacted arguments are shown
		switch err := r.copy(paths); {
		case err == nil, errors.Is(err, errStopped):
			return redactedJSON{text: bytes.TrimSpace(b.Bytes()), hidden: r.hidden, parts: r.parts}
		case !errors.Is(err, errTooMany):
			return redactedJSON{err: err}
		}
	}
}

// Redact returns arguments without the values that paths of workflows name. It returns nil if they
// are not valid JSON.
func Redact(arguments []byte, paths []string) []byte {
	r := withoutRedacted(func() error { return nil }, string(arguments), parsePaths(paths), 0)
	if r.err != nil {
		return nil
	}
	return r.text
}

// longest returns the length of the longest path.
func longest(paths []path) int {
	most := 0
	for _, p := range paths {
		most = max(most, len(p))
		if len(p) > 0 && p[len(p)-1:].secrets() {
			most = max(most, maxSecretDepth)
		}
	}
	return most
}

// shown returns the text for approvers, with hidden characters escaped. If it is longer than most,
// it is a JSON string with the first part.
func (c redactedJSON) shown(most int) (text jsontext.Value, truncated bool) {
	if c.err != nil {
		return jsonrpc.AppendString(nil, "[unreadable]"), false
	}
	if len(c.text) == 0 {
		return nil, false
	}
	seen := []byte(safetext.Escape(string(c.text[:min(len(c.text), most+utf8.UTFMax)])))
	if len(c.text) <= most && len(seen) <= most {
		return seen, c.cut
	}
	// leave out a character that is cut in half
	cut := strings.ToValidUTF8(string(seen[:most]), "")
	return jsonrpc.AppendString(nil, cut+"…"), true
}

// whole returns the complete text and the ends of redacted values.
func (c redactedJSON) whole() (jsontext.Value, Offsets) {
	if c.err != nil {
		return jsontext.Value(`"[unreadable]"`), nil
	}
	return c.text, c.hidden
}

// A redaction copies JSON without redacted values. It tracks its position itself, because a JSON
// pointer for each value would be too slow.
type redaction struct {
	from   *jsontext.Decoder
	to     *jsontext.Encoder
	hidden Offsets      // the ends of redacted values in the copy
	stop   func() error // returns an error to stop copying

	level int // number of enclosing objects
	steps int // the level at which values with named parts are redacted; 0 redacts only the named parts

	small bool // the input is small, so unnamed parts are copied at once

	atMethod bool   // the next value is the method of a message in a batch
	subject  string // in a batch: the member of params with the subject of the message

	name  string // of the member with the next value
	parts bool   // parts of strings were redacted

	secret func(jsontext.Value)     // called with every redacted value; may be nil
	clean  func(text string) string // replaces strings; a number that it would change is redacted; may be nil
	cut    func() jsontext.Value    // returns the first part of a string that the input cuts off; nil if the input is complete
}

// hide writes a placeholder for a value.
func (r *redaction) hide(v jsontext.Value) error {
	//mutate:swap "r.steps > 1" "r.steps > 0" TestManySecretsStayHidden many secrets in one argument hide the others
	//mutate:false TestManySecretsStayHidden any number of secrets are hidden separately
	if r.steps > 1 && len(r.hidden) == maxHidden {
		return errTooMany
	}
	if r.secret != nil {
		r.secret(v)
	}
	if err := r.to.WriteToken(redacted); err != nil {
		return err
	}
	end := r.to.OutputOffset()
	if r.to.StackDepth() == 0 {
		end-- // without the final line break
	}
	r.hidden = append(r.hidden, end)
	return nil
}

// A path names nested members, ignoring case as some tools do. A star matches any member. Arrays
// are transparent: a path applies to each element. A string that contains JSON with a named member
// is redacted as a whole.
type path []string

// anySecret is the last step of a path to all secrets, at any depth.
const anySecret = "\x00secrets"

// maxSecretDepth is the level of enclosing objects at which a value with a secret is hidden as a
// whole.
const maxSecretDepth = 16

// findsSecrets finds what [policy.RedactSecrets] hides.
var findsSecrets = secrets.Standard()

// secrets reports whether p leads to all secrets in a value.
func (p path) secrets() bool { return len(p) == 1 && p[0] == anySecret }

// parsePaths parses paths such as arguments.user.password. The prefix "arguments." is optional.
// Paths into results are skipped.
func parsePaths(texts []string) []path {
	paths := make([]path, 0, len(texts))
	for _, text := range texts {
		names := strings.Split(text, ".")
		switch {
		case names[0] == "result":
			continue
		case text == policy.RedactSecrets:
			names = path{anySecret}
		}
		if names[0] == "arguments" {
			names = names[1:]
		}
		paths = append(paths, names)
	}
	return paths
}

// below returns the remaining paths inside the member called name.
func (r *redaction) below(paths []path, name string) []path {
	var inner []path
	for _, p := range paths {
		if p.secrets() {
			inner = append(inner, p)
		} else if len(p) > 0 && r.matches(p[0], name) {
			inner = append(inner, p[1:])
		}
	}
	return inner
}

// matches reports whether a step of a path matches the member called name.
func (r *redaction) matches(step, name string) bool {
	step, unknown := strings.CutPrefix(step, unknownParam)
	//mutate:swap "r.subject" `"name" || name == "uri"` internal/approval.TestBatchRedactedByMethod a secret named like another method's subject is shown
	if unknown && (name == r.subject || name == "arguments" || name == "_meta") {
		return false
	}
	return step == "*" || strings.EqualFold(step, name)
}

// unknownParam is the prefix of a step that matches only members of a batched message's params
// that are neither arguments, metadata nor subject. Paths of workflows never have it.
const unknownParam = "\x00"

// namesWhole reports whether a path names the value itself.
func namesWhole(paths []path) bool {
	return slices.ContainsFunc(paths, func(p path) bool { return len(p) == 0 })
}

// copy copies one value without the values that paths name.
func (r *redaction) copy(paths []path) error {
	if namesWhole(paths) {
		v, err := r.from.ReadValue()
		if err != nil && r.cut == nil {
			return err
		}
		return cmp.Or(r.hide(v), err)
	}
	if len(paths) > 0 && r.steps > 0 && r.level == r.steps {
		return r.copyWhole(paths)
	}
	if k := r.from.PeekKind(); k == '{' || k == '[' {
		if r.small && len(paths) == 0 {
			v, err := r.from.ReadValue()
			if err != nil {
				return err
			}
			return r.to.WriteValue(v)
		}
		return r.copyInside(paths)
	}
	return r.copyScalar(paths)
}

// copyScalar copies a value that is not an object or array.
func (r *redaction) copyScalar(paths []path) error {
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

// copyWhole copies one value, or redacts all of it if paths name a part.
func (r *redaction) copyWhole(paths []path) error {
	v, err := r.from.ReadValue()
	if err != nil {
		return err
	}
	named := false
	inside := redaction{
		from: jsontext.NewDecoder(bytes.NewReader(v)), to: jsontext.NewEncoder(io.Discard), level: r.level, subject: r.subject,
		secret: func(jsontext.Value) { named = true },
	}
	inside.stop = func() error {
		if named {
			return errStopped
		}
		return r.stop()
	}
	err = inside.copy(paths)
	switch {
	case named:
		//mutate:swap "hide" "to.WriteValue" TestManySecretsStayHidden a value with many secrets in it is shown
		return r.hide(v)
	case err != nil:
		return err
	default:
		return r.to.WriteValue(v)
	}
}

// noteMethod records the subject member if v is the method of a batched message, which precedes
// its params.
func (r *redaction) noteMethod(v jsontext.Value) {
	if !r.atMethod {
		return
	}
	method, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		method = nil
	}
	r.subject = policy.SubjectMember(string(method))
}

// write writes a value that is not an object or array.
func (r *redaction) write(paths []path, v jsontext.Value) error {
	//mutate:swap "!p.secrets()" "false" internal/approval.TestShownArguments a secret in JSON in a text is shown
	if slices.ContainsFunc(paths, func(p path) bool { return !p.secrets() }) && holdsJSON(v) {
		return r.hide(v)
	}
	if slices.ContainsFunc(paths, path.secrets) && v.Kind() == '"' {
		v = r.withoutSecrets(v)
	}
	//mutate:swap "'0' &&" "'n' &&" internal/inbox.TestResultRedactsAllSecrets a result repeats a secret number
	if r.clean != nil && v.Kind() == '0' && r.clean(string(v)) != string(v) {
		return r.hide(v)
	}
	if r.clean == nil || v.Kind() != '"' {
		return r.to.WriteValue(v)
	}
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return r.hide(v)
	}
	return r.to.WriteToken(jsontext.String(r.clean(string(text))))
}

// withoutSecrets returns a string without the secrets in it.
func (r *redaction) withoutSecrets(v jsontext.Value) jsontext.Value {
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return redactedText
	}
	shown, hidden := findsSecrets.Hide(r.name, string(text))
	if len(hidden) == 0 {
		return v
	}
	r.parts = true
	for _, secret := range hidden {
		if r.secret != nil {
			r.secret(jsonrpc.AppendString(nil, secret))
		}
	}
	return jsonrpc.AppendString(nil, shown)
}

// writeName writes the name of a member.
func (r *redaction) writeName(name string) error {
	if r.clean != nil {
		name = r.clean(name)
	}
	return r.to.WriteToken(jsontext.String(name))
}

// holdsJSON reports whether v is a string that may contain JSON.
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
	if object {
		r.level++
		defer func() { r.level-- }()
	}
	if err := r.to.WriteToken(open); err != nil {
		return err
	}
	for k := r.from.PeekKind(); k != '}' && k != ']'; k = r.from.PeekKind() {
		if err := r.stop(); err != nil {
			return err
		}
		inner := paths
		r.atMethod = false
		if object {
			if inner, err = r.copyName(paths); err != nil {
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

// copyName copies the name of a member, and returns the paths inside its value.
func (r *redaction) copyName(paths []path) ([]path, error) {
	name, err := r.from.ReadToken()
	if err != nil {
		return nil, err
	}
	r.atMethod = r.level == 1 && r.from.StackDepth() == 2 && name.String() == "method"
	inner := r.below(paths, name.String())
	r.name = name.String()
	return inner, r.writeName(name.String())
}

// pathsInBatch returns argument paths as paths in a batch: in arguments, metadata and other
// params.
func pathsInBatch(paths []path) []path {
	var inner []path
	for _, p := range paths {
		//mutate:swap `"_meta"` `"arguments"` internal/approval.TestBatchRedacted the metadata of a call in a batch is not redacted
		inner = append(inner, append(path{"params", "arguments"}, p...), append(path{"params", "_meta"}, p...))
		switch {
		case len(p) == 0:
			p = path{"*"}
		case p.secrets():
			p = path{"*", anySecret}
		}
		inner = append(inner, append(path{"params", unknownParam + p[0]}, p[1:]...))
	}
	return inner
}

// copies returns the redacted arguments and other members of t, complete if most is zero. For an
// abridged task it uses the stored preview.
func (v *Viewer) copies(ended func() error, t task.Task, most int) (arguments, also redactedJSON) {
	if t.Abridged() {
		kept := cmp.Or(v.keptPreview(t, ReadFacts(t)), &Preview{})
		return redactedJSON{text: kept.Arguments, cut: kept.Truncated}, redactedJSON{text: kept.Also}
	}
	paths := v.redactions(t)
	return withoutRedacted(ended, t.Call.Arguments, paths, most), withoutRedacted(ended, t.Call.Also, alsoSentPaths(paths), most)
}

// keptPreview returns the stored preview of t, or nil if there is none or the redacted paths have
// changed.
func (v *Viewer) keptPreview(t task.Task, f Facts) *Preview {
	if f.Preview == nil || f.Preview.Redacted != v.redacted(t) {
		return nil
	}
	return f.Preview
}

// redactions returns the redacted paths in the arguments of t.
func (v *Viewer) redactions(t task.Task) []path {
	paths := parsePaths(v.redactedPaths(t))
	if t.Call.Method == MethodBatch {
		paths = pathsInBatch(paths)
	}
	return paths
}

// alsoSentPaths returns argument paths as paths in the metadata and other parameters, where
// secrets have the same names.
func alsoSentPaths(paths []path) []path {
	var beside []path
	for _, p := range paths {
		beside = append(beside, append(path{"*"}, p...))
	}
	return beside
}

// redacted returns the redacted paths of t as one text. For batches it differs from that of
// earlier versions, which redacted less.
func (v *Viewer) redacted(t task.Task) string {
	text := strings.Join(v.redactedPaths(t), "\n")
	if t.Call.Method == MethodBatch {
		text += "\nalso besides the arguments, except what the method is about"
	}
	return text
}

// redactedPaths returns the paths that the workflow of t redacts, or all arguments if the workflow
// is unknown.
func (v *Viewer) redactedPaths(t task.Task) []string {
	if w, known := v.cfg.Workflow(t); known {
		return w.Redact
	}
	return []string{"arguments"}
}
