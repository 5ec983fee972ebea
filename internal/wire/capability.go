package wire

import (
	"slices"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// ExtensionTasks names the tasks extension of 2026-07-28.
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// Abilities are what the gate can do for clients besides what the upstream
// behind it can.
type Abilities struct {
	Tasks       bool
	ListTasks   bool // legacy only: needs clients that can be distinguished
	ListChanged bool // notify clients when what they see of lists changes
}

// Declare returns the response m to initialize or server/discover with the
// gate's abilities added, as a server of era e declares them. The upstream's own
// declarations stay.
func Declare(m *jsonrpc.Message, e Era, a Abilities) []byte {
	capabilities := m.Result.Member("capabilities")
	if !capabilities.IsObject() {
		return m.Raw
	}
	var patch jsonrpc.Patch
	switch {
	case a.Tasks && e == Modern:
		ensure(&patch, capabilities, "extensions", ExtensionTasks)
	case a.Tasks:
		addLegacyTasks(&patch, capabilities, a)
	}
	if a.ListChanged {
		addListChanged(&patch, capabilities)
	}
	return patch.Apply(m.Raw)
}

// DeclareTasks returns the modern request m with the tasks extension among what
// its sender declares.
func DeclareTasks(m *jsonrpc.Message) []byte {
	var patch jsonrpc.Patch
	ensure(&patch, m.Params.Meta, MetaCapabilities, "extensions", ExtensionTasks)
	return patch.Apply(m.Raw)
}

// addListChanged lets what the upstream has lists of change.
func addListChanged(patch *jsonrpc.Patch, capabilities jsonrpc.Value) {
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if lists := capabilities.Member(kind); lists.IsObject() {
			patch.Set(lists, "listChanged", []byte("true"))
		}
	}
}

func addLegacyTasks(patch *jsonrpc.Patch, capabilities jsonrpc.Value, a Abilities) {
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

// ensure gives the object a member, found by its path, that is an object,
// unless it has one already.
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

// nest returns leaf inside an object for each name of path.
func nest(leaf string, path []string) []byte {
	json := []byte(leaf)
	for _, name := range slices.Backward(path) {
		json = slices.Concat([]byte{'{'}, jsonrpc.AppendString(nil, name), []byte{':'}, json, []byte{'}'})
	}
	return json
}
