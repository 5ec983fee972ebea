package mcp

import (
	"slices"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Capabilities are the features that the gate adds to those of the upstream.
type Capabilities struct {
	Tasks       bool
	ListTasks   bool // legacy only: requires clients that can be distinguished
	ListChanged bool // notify clients when the lists they see change
}

// Declare adds the gate's capabilities to the response m to initialize or server/discover. The
// upstream's declarations stay.
func Declare(m *jsonrpc.Message, e Era, a Capabilities) []byte {
	capabilities := m.Result.Member("capabilities")
	if !capabilities.IsObject() {
		return m.Raw
	}
	var patch jsonrpc.Patch
	switch {
	case a.Tasks && e == Modern:
		ensure(&patch, capabilities, "extensions", mcpname.ExtensionTasks)
	case a.Tasks:
		addLegacyTasks(&patch, capabilities, a)
	}
	if a.ListChanged {
		addListChanged(&patch, capabilities)
	}
	return patch.Apply(m.Raw)
}

// DeclareTasks returns the metadata of a modern request with the tasks extension added to the
// capabilities of the client.
func DeclareTasks(meta jsonrpc.Value) []byte {
	var patch jsonrpc.Patch
	meta.Offset = 0
	ensure(&patch, meta, mcpname.MetaClientCapabilities, "extensions", mcpname.ExtensionTasks)
	return patch.Apply(meta.Bytes)
}

// addListChanged declares list changes for every kind of list that the upstream has.
func addListChanged(patch *jsonrpc.Patch, capabilities jsonrpc.Value) {
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if lists := capabilities.Member(kind); lists.IsObject() {
			patch.Set(lists, "listChanged", []byte("true"))
		}
	}
}

func addLegacyTasks(patch *jsonrpc.Patch, capabilities jsonrpc.Value, a Capabilities) {
	whole := `{"cancel":{},"requests":{"tools":{"call":{}}}}`
	if a.ListTasks {
		whole = `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`
	}
	tasks := capabilities.Member("tasks")
	if !tasks.IsObject() {
		patch.Set(capabilities, "tasks", []byte(whole))
		return
	}
	if a.ListTasks {
		ensure(patch, tasks, "list")
	}
	ensure(patch, tasks, "cancel")
	ensure(patch, tasks, "requests", "tools", "call")
}

// ensure adds an empty object at path, unless there is an object already.
func ensure(patch *jsonrpc.Patch, object jsonrpc.Value, path ...string) {
	for i, name := range path {
		member := object.Member(name)
		if !member.IsObject() {
			patch.Set(object, name, nest("{}", path[i+1:]))
			return
		}
		object = member
	}
}

// nest wraps leaf in one object per name of path.
func nest(leaf string, path []string) []byte {
	json := []byte(leaf)
	for _, name := range slices.Backward(path) {
		json = slices.Concat([]byte{'{'}, jsonrpc.AppendString(nil, name), []byte{':'}, json, []byte{'}'})
	}
	return json
}
