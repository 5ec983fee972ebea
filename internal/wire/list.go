package wire

import (
	"bytes"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Listed is one entry of a list that the upstream gave: a tool, a resource, a
// template of resources or a prompt.
type Listed struct {
	Name  string // of tools and prompts
	URI   string // of resources; of templates, the template
	Entry jsonrpc.Value

	execution jsonrpc.Value
}

// A View is what a client gets to see of an entry.
type View struct {
	Hidden      bool
	TaskSupport string // of a tool, for execution.taskSupport; empty leaves that alone
}

// lists names the member that holds the list in the result of each method.
var lists = map[string]string{
	"tools/list":               "tools",
	"prompts/list":             "prompts",
	"resources/list":           "resources",
	"resources/templates/list": "resourceTemplates",
}

// IsList reports whether the result of method is a list of what can be called
// or read.
func IsList(method string) bool { return lists[method] != "" }

// ListedBy returns the method whose result m looks like, if that is a list. It
// is for a response of which the request is not known.
func ListedBy(m *jsonrpc.Message) (method string, ok bool) {
	for name, value := range m.Result.Members() {
		if name == "content" {
			return "", false // of a tool
		}
		for by, member := range lists {
			if name == member && value.IsArray() {
				method, ok = by, true
			}
		}
	}
	return method, ok
}

// Entries returns the list in the response m to a request with the given
// method.
func Entries(m *jsonrpc.Message, method string) jsonrpc.Value {
	return m.Result.Member(lists[method])
}

// RewriteList returns the response m to a request with the given method, with
// each entry of its list as view has it. Every byte that view has no part in
// stays as it is.
func RewriteList(m *jsonrpc.Message, method string, view func(Listed) View) []byte {
	list := Entries(m, method)
	var patch jsonrpc.Patch
	var kept [][]byte
	hidden := false
	for entry := range list.Elements() {
		l := listed(entry)
		v := view(l)
		if v.Hidden {
			hidden = true
			continue
		}
		seen := l.withTaskSupport(v.TaskSupport)
		kept = append(kept, seen)
		if !bytes.Equal(seen, entry.Bytes) {
			patch.Replace(entry, seen)
		}
	}
	if hidden {
		patch = jsonrpc.Patch{}
		patch.Replace(list, slices.Concat([]byte("["), bytes.Join(kept, []byte(",")), []byte("]")))
		keepPrivate(&patch, m.Result)
	}
	if patch.Empty() {
		return m.Raw
	}
	return patch.Apply(m.Raw)
}

func listed(entry jsonrpc.Value) Listed {
	l := Listed{Entry: entry}
	for name, value := range entry.Members() {
		switch name {
		case "name":
			l.Name, _ = value.Text()
		case "uri", "uriTemplate":
			l.URI, _ = value.Text()
		case "execution":
			l.execution = value
		}
	}
	return l
}

// withTaskSupport returns the entry, a tool, with execution.taskSupport set to
// support.
func (l Listed) withTaskSupport(support string) []byte {
	if support == "" {
		return l.Entry.Bytes
	}
	value := jsonrpc.AppendString(nil, support)
	var patch jsonrpc.Patch
	switch {
	case l.execution.IsObject():
		l.execution.Offset -= l.Entry.Offset
		patch.Set(l.execution, "taskSupport", value)
	case l.execution.Present():
		l.execution.Offset -= l.Entry.Offset
		patch.Replace(l.execution, nest(string(value), []string{"taskSupport"}))
	default:
		patch.Insert(jsonrpc.Value{Bytes: l.Entry.Bytes}, "execution", nest(string(value), []string{"taskSupport"}))
	}
	return patch.Apply(l.Entry.Bytes)
}

// keepPrivate sees to it that a list of which parts are hidden from some is not
// shared with others by a cache.
func keepPrivate(patch *jsonrpc.Patch, result jsonrpc.Value) {
	if scope, _ := result.Member("cacheScope").Text(); scope == "public" {
		patch.Set(result, "cacheScope", []byte(`"private"`))
	}
}
