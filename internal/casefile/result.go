package casefile

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Result is what a tool answered, as approvers see it. The tool's server wrote
// it: it is safe to show as text, not safe to believe.
type Result struct {
	Kind      task.ResultKind `json:"kind"`
	Size      int64           `json:"size"`               // of the whole answer, in bytes
	Value     jsontext.Value  `json:"value,omitzero"`     // without what is redacted; nothing if it cannot be read
	Truncated bool            `json:"truncated,omitzero"` // Value has only the beginning of the answer, with what was open closed

	Redacted map[jsontext.Pointer]bool `json:"-"` // what in Value is redacted
}

// maxResultShown is how much of an answer is shown.
const maxResultShown = 32 << 10

// result returns what was answered to t, or nil if there is no answer, or not yet.
func (v *Viewer) result(ctx context.Context, t task.Task) *Result {
	if !t.State.Terminal() || t.Result == nil {
		return nil
	}
	shown := &Result{Kind: t.Result.Kind, Size: t.Result.Size}
	start, err := io.ReadAll(io.LimitReader(task.OpenResult(ctx, v.cfg.Store, t), maxResultShown))
	if err != nil {
		v.cfg.Log.WarnContext(ctx, "the result of a call cannot be shown", "task_id", t.ID, "error", err)
		return shown
	}
	shown.Truncated = int64(len(start)) < t.Result.Size
	shown.Value, shown.Redacted = v.resultText(t, start)
	return shown
}

// resultText returns the beginning of an answer as JSON of its own, without what
// is redacted.
func (v *Viewer) resultText(t task.Task, start []byte) (jsontext.Value, map[jsontext.Pointer]bool) {
	_, hidden := whole(t.Call.Arguments, v.redactions(t))
	secret := secretsIn(t.Call.Arguments, hidden)
	var b bytes.Buffer
	r := redaction{
		from: jsontext.NewDecoder(bytes.NewReader(start)), to: jsontext.NewEncoder(&b), hidden: make(map[jsontext.Pointer]bool),
		full: func() bool { return false }, clean: secret.clean,
	}
	r.cut = func() jsontext.Value { return secret.cutText(start[r.from.InputOffset():]) }
	if err := r.copy(v.resultPaths(t)); err != nil {
		closeAll(r.to)
	}
	text := bytes.TrimSpace(b.Bytes())
	if !jsontext.Value(text).IsValid() {
		return jsonrpc.AppendString(nil, "[unreadable]"), nil
	}
	return []byte(plain.Escape(string(text))), r.hidden
}

// resultPaths returns what the workflow of t redacts of results: what it names
// after "result", and everything if it redacts all arguments.
func (v *Viewer) resultPaths(t task.Task) []path {
	var paths []path
	for _, text := range v.redactedPaths(t) {
		if names := strings.Split(text, "."); names[0] == "result" {
			paths = append(paths, names[1:])
		}
	}
	if namesAll(parsePaths(v.redactedPaths(t))) || namesAll(paths) {
		return []path{{}}
	}
	if t.Call.Method == MethodBatch {
		paths = resultsInBatch(paths)
	}
	return paths
}

// resultsInBatch returns paths of a result as paths of the results and errors that a
// batch is answered with.
func resultsInBatch(paths []path) []path {
	var inner []path
	for _, p := range paths {
		inner = append(inner, append(path{"responses", "result"}, p...), append(path{"responses", "error"}, p...))
	}
	return inner
}

// closeAll closes the objects and arrays that are open.
func closeAll(to *jsontext.Encoder) {
	for depth := to.StackDepth(); depth > 0; depth = to.StackDepth() {
		kind, n := to.StackIndex(depth)
		closing := jsontext.EndArray
		if kind == '{' {
			closing = jsontext.EndObject
		}
		if kind == '{' && n%2 == 1 { // a name without its value
			_ = to.WriteToken(jsontext.Null)
		}
		if to.WriteToken(closing) != nil {
			return
		}
	}
}

// secrets are what is redacted in arguments. Many tools repeat what they were
// given, so it is not shown in results either.
type secrets []string

// minSecret is how long a text must be to be looked for in a result. A shorter one
// would be found everywhere.
const minSecret = 4

// secretsIn returns the texts and numbers in arguments that are hidden, as they
// are and as JSON writes them, the longest first.
func secretsIn(arguments string, hidden map[jsontext.Pointer]bool) secrets {
	var found secrets
	from := jsontext.NewDecoder(strings.NewReader(arguments))
	for {
		token, err := from.ReadToken()
		if err != nil {
			slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
			return found
		}
		scalar := token.Kind() == '"' || token.Kind() == '0'
		if text := token.String(); scalar && len(text) >= minSecret && isWithin(hidden, from.StackPointer()) {
			found = append(found, text)
			if quoted := strings.Trim(string(jsonrpc.AppendString(nil, text)), `"`); quoted != text && quoted != "" {
				found = append(found, quoted)
			}
		}
	}
}

// isWithin reports whether p, or something that it is in, is hidden.
func isWithin(hidden map[jsontext.Pointer]bool, p jsontext.Pointer) bool {
	for ; p != ""; p = p.Parent() {
		if hidden[p] {
			return true
		}
	}
	return hidden[""]
}

// clean returns text without secrets.
func (s secrets) clean(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

// cutText returns the string that rest begins with, as far as it goes. If it ends
// with the beginning of a secret, it goes only so far.
func (s secrets) cutText(rest []byte) jsontext.Value {
	rest = bytes.TrimLeft(rest, " \t\r\n,:")
	for drop := 0; drop <= 12 && drop < len(rest); drop++ { // up to a pair of escapes
		quoted := append(bytes.Clone(rest[:len(rest)-drop]), '"')
		if text, err := jsontext.AppendUnquote(nil, quoted); err == nil {
			return jsonrpc.AppendString(nil, s.trim(s.clean(string(text))))
		}
	}
	return jsontext.Value(`""`)
}

func (s secrets) trim(text string) string {
	for _, secret := range s {
		for n := min(len(secret)-1, len(text)); n > 0; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				text = strings.ToValidUTF8(text[:len(text)-n], "")
				break
			}
		}
	}
	return text
}
