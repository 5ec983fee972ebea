package callrecord

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Entries are written without reflection, because each forwarded call has one.

// MarshalJSONTo implements [json.MarshalerTo].
func (e *Entry) MarshalJSONTo(to *jsontext.Encoder) error {
	text, err := e.append(nil)
	if err != nil {
		return err
	}
	return to.WriteValue(text)
}

// Write writes e as a line of JSON.
func (e *Entry) Write(w io.Writer) error {
	line, err := e.append(nil)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// append appends e as a JSON object.
func (e *Entry) append(b []byte) ([]byte, error) {
	b = e.appendHead(b)
	var ok bool
	if b, ok = (aboutArguments{e.Digest, e.Arguments, e.Redacted}).append(b); !ok {
		return nil, errInvalid
	}
	return append(b, '}'), nil
}

var errInvalid = errors.New("the arguments are not valid JSON")

// appendHead appends the members before the digest, and the brace before them.
func (e *Entry) appendHead(b []byte) []byte {
	b = appendTime(append(b, '{'), `"time":`, e.Time)
	b = appendText(b, `,"event":`, string(e.Event))
	b = appendGiven(b, `,"id":`, e.ID)
	b = appendGiven(b, `,"ref":`, e.Ref)
	b = appendText(b, `,"upstream":`, e.Upstream)
	b = appendText(b, `,"method":`, e.Method)
	b = appendText(b, `,"name":`, e.Name)
	b = appendGiven(b, `,"principal":`, e.Principal)
	b = appendTexts(b, `,"groups":`, e.Groups)
	b = e.Client.append(b)
	b = hints(e.Hints).append(b)
	if e.Listed {
		b = append(b, `,"listed":true`...)
	}
	if e.Changed {
		b = append(b, `,"changed":true`...)
	}
	b = appendGiven(b, `,"toolDigest":`, e.ToolDigest)
	if e.Accepted {
		b = append(b, `,"accepted":true`...)
	}
	b = appendText(b, `,"action":`, string(e.Action))
	b = appendGiven(b, `,"observed":`, string(e.Observed))
	b = appendGiven(b, `,"workflow":`, e.Workflow)
	b = appendGiven(b, `,"rule":`, e.Rule)
	b = appendTexts(b, `,"policies":`, e.Policies)
	b = appendGiven(b, `,"snapshot":`, e.Snapshot)
	b = appendGiven(b, `,"outcome":`, e.Outcome)
	if e.Took != 0 {
		b = strconv.AppendInt(append(b, `,"took":`...), int64(e.Took), 10)
	}
	if !e.Decided.IsZero() {
		b = appendTime(b, `,"decided":`, e.Decided)
	}
	b = appendTexts(b, `,"by":`, e.By)
	return e.appendEnd(b)
}

// appendEnd appends what only an entry about the end of a held call has.
func (e *Entry) appendEnd(b []byte) []byte {
	b = appendGiven(b, `,"reason":`, e.Reason)
	b = appendGiven(b, `,"grant":`, e.Grant)
	b = appendGiven(b, `,"stage":`, string(e.Stage))
	b = appendGiven(b, `,"ran":`, string(e.Ran))
	if len(e.Shown) == 0 {
		return b
	}
	if shown := slices.Clone(e.Shown); shown.IsValid() && shown.Compact() == nil {
		b = append(append(b, `,"shown":`...), shown...)
	}
	if e.Cut {
		b = append(b, `,"cut":true`...)
	}
	return b
}

// aboutArguments are the members about the arguments.
type aboutArguments struct {
	digest    string
	arguments jsontext.Value
	redacted  bool
}

// append appends the members. It reports false if the arguments are not valid JSON.
func (a aboutArguments) append(b []byte) ([]byte, bool) {
	b = appendGiven(b, `,"digest":`, a.digest)
	if len(a.arguments) > 0 {
		arguments := slices.Clone(a.arguments)
		if !arguments.IsValid() || arguments.Compact() != nil {
			return b, false
		}
		b = append(append(b, `,"arguments":`...), arguments...)
	}
	if a.redacted {
		b = append(b, `,"redacted":true`...)
	}
	return b, true
}

func (c Client) append(b []byte) []byte {
	if c == (Client{}) {
		return b
	}
	b = append(b, `,"client":{`...)
	begin := len(b)
	b = appendGiven(b, `,"name":`, c.Name)
	b = appendGiven(b, `,"version":`, c.Version)
	b = appendGiven(b, `,"protocol":`, c.Protocol)
	return append(slices.Delete(b, begin, begin+1), '}') // the first comma
}

func (h hints) append(b []byte) []byte {
	if h == (hints{}) {
		return b
	}
	b = append(b, `,"hints":{`...)
	begin := len(b)
	b = appendBool(b, `,"readOnly":`, h.ReadOnly)
	b = appendBool(b, `,"destructive":`, h.Destructive)
	b = appendBool(b, `,"idempotent":`, h.Idempotent)
	b = appendBool(b, `,"openWorld":`, h.OpenWorld)
	b = appendGiven(b, `,"title":`, h.Title)
	return append(slices.Delete(b, begin, begin+1), '}')
}

func appendText(b []byte, name, text string) []byte {
	return jsonrpc.AppendString(append(b, name...), text)
}

func appendGiven(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendText(b, name, text)
}

func appendTexts(b []byte, name string, texts []string) []byte {
	if len(texts) == 0 {
		return b
	}
	b = append(append(b, name...), '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonrpc.AppendString(b, text)
	}
	return append(b, ']')
}

func appendTime(b []byte, name string, t time.Time) []byte {
	b = append(append(b, name...), '"')
	return append(t.UTC().AppendFormat(b, time.RFC3339Nano), '"')
}

func appendBool(b []byte, name string, v *bool) []byte {
	if v == nil {
		return b
	}
	return strconv.AppendBool(append(b, name...), *v)
}
