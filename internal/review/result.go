package review

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Result is the result of a call as approvers see it. It comes from the tool's server: it is
// safe to display, but not trustworthy.
type Result struct {
	Kind      task.ResultKind `json:"kind"`
	Size      int64           `json:"size"`               // of the whole result, in bytes
	Value     jsontext.Value  `json:"value,omitzero"`     // redacted; empty if it cannot be read
	Truncated bool            `json:"truncated,omitzero"` // Value has only the first part, closed to valid JSON

	Redacted Offsets `json:"-"` // the ends of redacted values in Value
}

// maxResultShown is how many bytes of a result are shown.
const maxResultShown = 32 << 10

// result returns the result of t, or nil.
func (v *Viewer) result(ctx context.Context, t task.Task) *Result {
	if !t.State.Terminal() || t.Result == nil {
		return nil
	}
	shown := &Result{Kind: t.Result.Kind, Size: t.Result.Size}
	start, err := io.ReadAll(io.LimitReader(storekit.OpenResult(ctx, v.cfg.Store, t), maxResultShown))
	if err != nil {
		v.cfg.Log.WarnContext(ctx, "the result of a call cannot be shown", "task_id", t.ID, "err", err)
		return shown
	}
	shown.Truncated = int64(len(start)) < t.Result.Size
	shown.Value, shown.Redacted = v.resultText(ctx, t, start)
	return shown
}

// resultText returns the first part of a result as valid redacted JSON, and the ends of redacted
// values.
func (v *Viewer) resultText(ctx context.Context, t task.Task, start []byte) (jsontext.Value, Offsets) {
	secret, ok := v.secretsOf(ctx, t)
	paths := v.resultPaths(t)
	//mutate:false internal/inbox.TestManySecretsHideResult a result is shown although the call has too many secrets
	if !ok {
		paths = []path{{}}
	}
	var b bytes.Buffer
	r := redaction{from: jsontext.NewDecoder(bytes.NewReader(start)), to: jsontext.NewEncoder(&b), stop: ctx.Err, clean: secret.clean}
	r.cut = func() jsontext.Value { return secret.cutText(start[r.from.InputOffset():]) }
	if err := r.copy(paths); err != nil {
		closeAll(r.to)
	}
	text := bytes.TrimSpace(b.Bytes())
	if !jsontext.Value(text).IsValid() {
		return jsonrpc.AppendString(nil, "[unreadable]"), nil
	}
	return escaped(string(text), r.hidden)
}

// escaped returns text with hidden characters escaped, and the moved positions.
func escaped(text string, places Offsets) (jsontext.Value, Offsets) {
	var visible jsontext.Value
	moved, done := make(Offsets, len(places)), int64(0)
	for i, at := range places {
		visible = append(visible, safetext.Escape(text[done:at])...)
		moved[i], done = int64(len(visible)), at
	}
	return append(visible, safetext.Escape(text[done:])...), moved
}

// resultPaths returns the redacted paths in results of t: those after "result", or everything if
// all arguments are redacted.
func (v *Viewer) resultPaths(t task.Task) []path {
	var paths []path
	for _, text := range v.redactedPaths(t) {
		if names := strings.Split(text, "."); names[0] == "result" {
			paths = append(paths, names[1:])
		} else if text == policy.RedactSecrets {
			paths = append(paths, path{anySecret})
		}
	}
	if namesWhole(parsePaths(v.redactedPaths(t))) || namesWhole(paths) {
		return []path{{}}
	}
	if t.Call.Method == MethodBatch {
		paths = resultsInBatch(paths)
	}
	return paths
}

// resultsInBatch returns result paths as paths in the answer to a batch.
func resultsInBatch(paths []path) []path {
	var inner []path
	for _, p := range paths {
		//mutate:swap `"responses", "result"` `"result"` internal/approval.TestBatchRedacted the results of a batch are not redacted
		inner = append(inner, append(path{"responses", "result"}, p...), append(path{"responses", "error"}, p...))
	}
	return inner
}

// closeAll closes open objects and arrays.
func closeAll(to *jsontext.Encoder) {
	for depth := to.StackDepth(); depth > 0; depth = to.StackDepth() {
		kind, n := to.StackIndex(depth)
		closing := jsontext.EndArray
		if kind == '{' {
			closing = jsontext.EndObject
		}
		if kind == '{' && n%2 == 1 { // a name without a value
			_ = to.WriteToken(jsontext.Null)
		}
		if to.WriteToken(closing) != nil {
			return
		}
	}
}

// secrets are the redacted values of a call. Many tools repeat their input, so secrets are removed
// from results too.
type hiddenTexts []string

// minSecret is the minimum length of a secret. Shorter texts occur everywhere.
const minSecret = 4

// maxSecrets is the maximum number of secrets. With more, the whole result is redacted.
const maxSecrets = 200

// secretsOf returns the redacted strings and numbers of t, plain and JSON-quoted, the longest
// first. It returns false if there are too many.
func (v *Viewer) secretsOf(ctx context.Context, t task.Task) (hiddenTexts, bool) {
	found := map[string]bool{}
	err := findSecrets(ctx, found, t.Call.Arguments, v.redactions(t))
	if err == nil {
		//mutate:swap "findSecrets(ctx, found, t.Call.Also, alsoSentPaths(v.redactions(t)))" "nil" internal/inbox.TestResultRedactsAllSecrets a result repeats a secret of the metadata
		err = findSecrets(ctx, found, t.Call.Also, alsoSentPaths(v.redactions(t)))
	}
	all := slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	return all, err == nil && len(found) <= maxSecrets
}

// findSecrets adds the redacted parts of value.
func findSecrets(ctx context.Context, found map[string]bool, value string, paths []path) error {
	if value == "" {
		return nil
	}
	r := redaction{from: jsontext.NewDecoder(strings.NewReader(value)), to: jsontext.NewEncoder(io.Discard)}
	r.stop = func() error {
		if len(found) > maxSecrets {
			return errTooMany
		}
		return ctx.Err()
	}
	r.secret = func(v jsontext.Value) { addSecrets(found, v) }
	return r.copy(paths)
}

// addSecrets adds the strings and numbers in a redacted value.
func addSecrets(found map[string]bool, hidden jsontext.Value) {
	from := jsontext.NewDecoder(bytes.NewReader(hidden))
	for len(found) <= maxSecrets {
		token, err := from.ReadToken()
		if err != nil {
			return
		}
		text := token.String()
		if kind := token.Kind(); kind != '"' && kind != '0' || len(text) < minSecret {
			continue
		}
		found[text] = true
		if quoted := strings.Trim(string(jsonrpc.AppendString(nil, text)), `"`); quoted != "" {
			found[quoted] = true
		}
	}
}

// clean returns text without secrets.
func (s hiddenTexts) clean(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

// cutText returns the incomplete string at the start of rest, without a partial secret at its end.
func (s hiddenTexts) cutText(rest []byte) jsontext.Value {
	rest = bytes.TrimLeft(rest, " \t\r\n,:")
	for drop := 0; drop <= 12 && drop < len(rest); drop++ { // up to the length of an escaped surrogate pair
		quoted := append(bytes.Clone(rest[:len(rest)-drop]), '"')
		if text, err := jsontext.AppendUnquote(nil, quoted); err == nil {
			return jsonrpc.AppendString(nil, s.trim(s.clean(string(text))))
		}
	}
	return jsontext.Value(`""`)
}

func (s hiddenTexts) trim(text string) string {
	for _, secret := range s {
		if n := overlap(text, secret); n > 0 {
			text = strings.ToValidUTF8(text[:len(text)-n], "")
		}
	}
	return text
}

// overlap returns the length of the longest suffix of text that is a proper prefix of secret. It
// uses the linear algorithm of Knuth, Morris and Pratt.
func overlap(text, secret string) int {
	text = text[max(0, len(text)-len(secret)+1):]
	start := secret[:len(text)]
	borders := make([]int, len(text)+1) // for each prefix of start: the length of its longest border
	longer := func(n int, c byte) int {
		for n > 0 && start[n] != c {
			n = borders[n]
		}
		if start[n] == c {
			n++
		}
		return n
	}
	for i := 1; i < len(start); i++ {
		borders[i+1] = longer(borders[i], start[i])
	}
	n := 0
	for i := range len(text) {
		n = longer(n, text[i])
	}
	return n
}
