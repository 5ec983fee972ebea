package mcp

import (
	"bytes"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A ListEntry is one entry of an upstream's list: a tool, a resource, a resource template or a
// prompt.
type ListEntry struct {
	Name  string // of tools and prompts
	URI   string // of resources; the template of templates
	Entry jsonrpc.Value

	execution jsonrpc.Value
}

// A View is what a client sees of an entry.
type View struct {
	Hidden      bool
	TaskSupport string // execution.taskSupport of a tool; empty leaves it unchanged
}

// lists maps each list method to the result member with the list.
var lists = map[string]string{
	mcpname.ToolsList:              "tools",
	mcpname.PromptsList:            "prompts",
	mcpname.ResourcesList:          "resources",
	mcpname.ResourcesTemplatesList: "resourceTemplates",
}

// IsList reports whether method returns a list.
func IsList(method string) bool { return lists[method] != "" }

// ListedBy returns the list method whose result m looks like. It is for a response whose
// request is unknown.
func ListedBy(m *jsonrpc.Message) (method string, ok bool) {
	for name, value := range m.Result.Members() {
		if name == "content" {
			return "", false // a tool result
		}
		for by, member := range lists {
			if name == member && value.IsArray() {
				method, ok = by, true
			}
		}
	}
	return method, ok
}

// Entries returns the list in the response m to a request with the given method.
func Entries(m *jsonrpc.Message, method string) jsonrpc.Value {
	return m.Result.Member(lists[method])
}

// RewriteList returns the response m with each list entry as view says. All other bytes stay.
func RewriteList(m *jsonrpc.Message, method string, view func(ListEntry) View) []byte {
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
		patch.Replace(list, jsonrpc.Array(kept))
		keepPrivate(&patch, m.Result)
	}
	if patch.Empty() {
		return m.Raw
	}
	return patch.Apply(m.Raw)
}

func listed(entry jsonrpc.Value) ListEntry {
	l := ListEntry{Entry: entry}
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

// withTaskSupport returns the tool with execution.taskSupport set to support.
func (l ListEntry) withTaskSupport(support string) []byte {
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

// keepPrivate prevents shared caching of a filtered list.
func keepPrivate(patch *jsonrpc.Patch, result jsonrpc.Value) {
	if scope, _ := result.Member("cacheScope").Text(); scope == "public" {
		patch.Set(result, "cacheScope", []byte(`"private"`))
	}
}
