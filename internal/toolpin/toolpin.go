// Package toolpin reads, writes and compares lock files: the definitions of tools that the users
// of a gate have accepted. A lock file is JSON with sorted tools, so that a change of a tool is a
// small change of the file. It has no hidden characters, whatever the definitions contain.
package toolpin

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Limits of a lock file.
const (
	MaxFile       = 16 << 20  // bytes of a file
	MaxDefinition = 256 << 10 // bytes of a definition in canonical form
	MaxTools      = 10_000    // of an upstream
	maxName       = 1 << 10   // bytes of the name of a tool; the gate refuses calls with a longer one
)

// version is the format of lock files.
const version = 1

// A File has the pinned tools of upstreams, by their names.
type File map[string]Tools

// Tools are the definitions of an upstream's tools, by name, in canonical form.
type Tools map[string][]byte

// The form of a file. The name of a tool comes first in its definition.
type form struct {
	Version   int                         `json:"version"`
	Upstreams map[string][]jsontext.Value `json:"upstreams"`
}

// Read reads a lock file.
func Read(text []byte) (File, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("has more than %d bytes", MaxFile)
	}
	var f form
	if err := json.Unmarshal(text, &f, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("is not a lock file: %w", err)
	}
	if f.Version != version {
		return nil, fmt.Errorf("has version %d, but only version %d is known", f.Version, version)
	}
	file := File{}
	for _, upstream := range slices.Sorted(maps.Keys(f.Upstreams)) {
		tools := Tools{}
		for _, definition := range f.Upstreams[upstream] {
			if err := tools.Add(jsonrpc.Value{Bytes: definition}); err != nil {
				return nil, fmt.Errorf("upstream %s: %w", safetext.Name(upstream, maxShown), err)
			}
		}
		file[upstream] = tools
	}
	return file, nil
}

// maxShown is how many characters of a name are shown.
const maxShown = 120

// Add adds the definition of a tool, as its upstream lists it.
func (t Tools) Add(definition jsonrpc.Value) error {
	name, ok := definition.Member("name").Text()
	if !ok || name == "" {
		return errors.New("a tool has no name")
	}
	shown := safetext.Name(name, maxShown)
	text, ok := definition.AppendCanonical(nil, ignored...)
	switch {
	case !ok:
		return fmt.Errorf("the definition of the tool %s is not valid", shown)
	case len(name) > maxName || len(text) > MaxDefinition:
		return fmt.Errorf("the definition of the tool %s is too large", shown)
	case t[name] != nil:
		return fmt.Errorf("the tool %s is there twice", shown)
	case len(t) == MaxTools:
		return fmt.Errorf("there are more than %d tools", MaxTools)
	}
	t[name] = text
	return nil
}

// ignored are the members that do not matter to approvers. The digest of a definition does not
// have them either.
var ignored = []string{"execution", "icons", "_meta"}

// Text returns the text of the file.
func (f File) Text() ([]byte, error) {
	out := form{version, make(map[string][]jsontext.Value, len(f))}
	for upstream, tools := range f {
		list := make([]jsontext.Value, 0, len(tools))
		for _, name := range slices.Sorted(maps.Keys(tools)) {
			list = append(list, nameFirst(name, tools[name]))
		}
		out.Upstreams[upstream] = list
	}
	text, err := json.Marshal(&out, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, err
	}
	safe := append([]byte(safetext.Escape(string(text))), '\n')
	if len(safe) > MaxFile {
		return nil, fmt.Errorf("the lock file would have more than %d bytes", MaxFile)
	}
	return safe, nil
}

// nameFirst returns a definition with its name as the first member.
func nameFirst(name string, definition []byte) jsontext.Value {
	rest, _ := jsonrpc.Value{Bytes: definition}.AppendCanonical(nil, "name")
	out := jsonrpc.AppendString([]byte(`{"name":`), name)
	if rest = bytes.TrimPrefix(rest, []byte("{")); len(rest) > 1 {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// A Difference is a tool whose definitions differ in two files. One of the definitions is nil if
// the tool is in one file only.
type Difference struct {
	Upstream, Tool string
	Old, New       []byte
}

// Differences returns the differences between f and a newer file, sorted.
func (f File) Differences(newer File) []Difference {
	var all []Difference
	for _, upstream := range allKeys(f, newer) {
		was, is := f[upstream], newer[upstream]
		for _, name := range allKeys(was, is) {
			if !bytes.Equal(was[name], is[name]) {
				all = append(all, Difference{upstream, name, was[name], is[name]})
			}
		}
	}
	return all
}

// allKeys returns the keys of two maps, sorted.
func allKeys[M ~map[string]V, V any](a, b M) []string {
	keys := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(keys)
	return slices.Compact(keys)
}
