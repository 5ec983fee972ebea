package task

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Variables are notes that server and client keep on a task, each a JSON value
// under a name that begins with [ServerPrefix] or [ClientPrefix].
type Variables map[string]json.RawMessage

// Clone returns a copy of v that shares no memory with it.
func (v Variables) Clone() Variables {
	c := maps.Clone(v)
	for name, value := range c {
		c[name] = slices.Clone(value)
	}
	return c
}

// A Side is the server or the client of a task. Each writes its own variables and reads
// all of them.
type Side string

// The two sides.
const (
	ServerSide Side = "server"
	ClientSide Side = "client"
)

// The prefixes of the names that each side may write.
const (
	ServerPrefix = "server."
	ClientPrefix = "client."
)

// VariableLimits bound what a task's variables may take. A zero field means
// its default.
type VariableLimits struct {
	Count int // how many variables; 64
	Name  int // bytes of a name, prefix included; 128
	Value int // bytes of a value without white space; 16 KiB
	Total int // bytes of all names and values; 64 KiB
}

func (l VariableLimits) withDefaults() VariableLimits {
	return VariableLimits{
		Count: cmp.Or(l.Count, 64), Name: cmp.Or(l.Name, 128), Value: cmp.Or(l.Value, 16<<10), Total: cmp.Or(l.Total, 64<<10),
	}
}

// A VariableChange writes variables, all of them or none. A null deletes.
type VariableChange struct {
	Side   Side
	Values Variables
	Limits VariableLimits
}

// To returns v after the change.
func (c VariableChange) To(v Variables) (Variables, *Error) {
	limits := c.Limits.withDefaults()
	if v = v.Clone(); v == nil {
		v = make(Variables, len(c.Values))
	}
	for name, value := range c.Values {
		if refused := c.Side.mayWrite(name, limits); refused != nil {
			return nil, refused
		}
		kept, refused := limits.normal(name, value)
		if refused != nil {
			return nil, refused
		}
		if string(kept) == "null" {
			delete(v, name)
			continue
		}
		v[name] = kept
	}
	if len(v) == 0 {
		v = nil
	}
	return v, limits.hold(v)
}

// mayWrite returns nil if s may write a variable called name.
func (s Side) mayWrite(name string, limits VariableLimits) *Error {
	rest, ok := strings.CutPrefix(name, string(s)+".")
	switch {
	case !ok || s != ServerSide && s != ClientSide:
		return &Error{Kind: ErrVariableOwnership, Detail: "the " + string(s) + " may not write this name"}
	case len(name) > limits.Name:
		return tooMuch("bytes of a name", len(name), limits.Name)
	case !plain(rest):
		return &Error{Kind: ErrInvalidVariable, Detail: "malformed name"}
	default:
		return nil
	}
}

// plain reports whether name is a valid name in a _meta object: letters, digits and,
// in between, hyphens, underscores and dots.
func plain(name string) bool {
	const inner = "-_."
	for _, c := range []byte(name) {
		if !alphanumeric(c) && strings.IndexByte(inner, c) < 0 {
			return false
		}
	}
	return name != "" && alphanumeric(name[0]) && alphanumeric(name[len(name)-1])
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// normal returns a copy of value without white space.
func (l VariableLimits) normal(name string, value json.RawMessage) (json.RawMessage, *Error) {
	kept, err := jsontext.AppendFormat(nil, value)
	if err != nil {
		return nil, &Error{Kind: ErrInvalidVariable, Detail: name, Err: err}
	}
	if len(kept) > l.Value {
		return nil, tooMuch("bytes of a value", len(kept), l.Value)
	}
	return kept, nil
}

// hold returns nil if v is within the limits as a whole.
func (l VariableLimits) hold(v Variables) *Error {
	if len(v) > l.Count {
		return tooMuch("variables", len(v), l.Count)
	}
	total := 0
	for name, value := range v {
		total += len(name) + len(value)
	}
	if total > l.Total {
		return tooMuch("bytes of variables", total, l.Total)
	}
	return nil
}

func tooMuch(of string, size, limit int) *Error {
	return &Error{Kind: ErrVariableSizeExceeded, Detail: "too many " + of, Size: int64(size), Limit: int64(limit)}
}
