package mcptask

import (
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A ServerSupport says what a server can do with tasks, however it said so.
type ServerSupport struct {
	Call      bool // 2025-11-25: tools/call may ask for a task
	List      bool // 2025-11-25: tasks/list
	Cancel    bool // 2025-11-25: tasks/cancel
	Notify    bool // not in the protocol: promises notifications/tasks/status
	Extension bool // 2026-07-28: may answer tools/call with a task
}

// A ClientSupport says what a client can do with tasks, however it said so. A
// client of 2025-11-25 that only wants tasks from servers declares nothing.
type ClientSupport struct {
	Sample    bool // 2025-11-25: sampling/createMessage may ask for a task
	Elicit    bool // 2025-11-25: elicitation/create may ask for a task
	List      bool // 2025-11-25: tasks/list
	Cancel    bool // 2025-11-25: tasks/cancel
	Extension bool // 2026-07-28: understands a task in place of a result
}

// A ServerCapability is the member tasks of a 2025-11-25 server's capabilities.
// An absent member means that the server does not support the feature.
type ServerCapability struct {
	List     Object                     `json:"list,omitzero"`
	Cancel   Object                     `json:"cancel,omitzero"`
	Requests *ServerRequests            `json:"requests,omitzero"`
	Extra    map[string]json.RawMessage `json:",embed"`
}

// ServerRequests names the requests that a server may answer with a task.
type ServerRequests struct {
	Tools *ToolRequests              `json:"tools,omitzero"`
	Extra map[string]json.RawMessage `json:",embed"`
}

// ToolRequests names the requests about tools among [ServerRequests].
type ToolRequests struct {
	Call  Object                     `json:"call,omitzero"`
	Extra map[string]json.RawMessage `json:",embed"`
}

// A ClientCapability is the member tasks of a 2025-11-25 client's capabilities.
// It is about tasks that the client keeps for the server.
type ClientCapability struct {
	List     Object                     `json:"list,omitzero"`
	Cancel   Object                     `json:"cancel,omitzero"`
	Requests *ClientRequests            `json:"requests,omitzero"`
	Extra    map[string]json.RawMessage `json:",embed"`
}

// ClientRequests names the requests that a client may answer with a task.
type ClientRequests struct {
	Sampling    *SamplingRequests          `json:"sampling,omitzero"`
	Elicitation *ElicitationRequests       `json:"elicitation,omitzero"`
	Extra       map[string]json.RawMessage `json:",embed"`
}

// SamplingRequests names the requests about sampling among [ClientRequests].
type SamplingRequests struct {
	CreateMessage Object                     `json:"createMessage,omitzero"`
	Extra         map[string]json.RawMessage `json:",embed"`
}

// ElicitationRequests names the requests about elicitation among
// [ClientRequests].
type ElicitationRequests struct {
	Create Object                     `json:"create,omitzero"`
	Extra  map[string]json.RawMessage `json:",embed"`
}

// FullServer returns the capability of a server that keeps tasks for tool
// calls, lists them and cancels them.
func FullServer() ServerCapability {
	return ServerSupport{Call: true, List: true, Cancel: true}.Capability()
}

// ToolsOnly returns the capability of a server that keeps tasks for tool calls
// and neither lists nor cancels them.
func ToolsOnly() ServerCapability {
	return ServerSupport{Call: true}.Capability()
}

// FullClient returns the capability of a client that keeps tasks for every
// request that it can.
func FullClient() ClientCapability {
	return ClientSupport{Sample: true, Elicit: true, List: true, Cancel: true}.Capability()
}

// Capability returns what a 2025-11-25 server with support s declares. A server
// that cannot tell its callers apart must leave List out.
func (s ServerSupport) Capability() ServerCapability {
	var c ServerCapability
	if s.List {
		c.List = Object{}
	}
	if s.Cancel {
		c.Cancel = Object{}
	}
	if s.Call {
		c.Requests = &ServerRequests{Tools: &ToolRequests{Call: Object{}}}
	}
	return c
}

// Capability returns what a 2025-11-25 client with support s declares.
func (s ClientSupport) Capability() ClientCapability {
	var c ClientCapability
	if s.List {
		c.List = Object{}
	}
	if s.Cancel {
		c.Cancel = Object{}
	}
	if s.Sample || s.Elicit {
		c.Requests = &ClientRequests{}
	}
	if s.Sample {
		c.Requests.Sampling = &SamplingRequests{CreateMessage: Object{}}
	}
	if s.Elicit {
		c.Requests.Elicitation = &ElicitationRequests{Create: Object{}}
	}
	return c
}

// Extensions returns the member extensions of a 2026-07-28 capability object
// that declares tasks and nothing else. The value of the tasks extension is
// exactly {}: clients refuse any other.
func Extensions() Object {
	return Object{{Name: Extension, Value: json.RawMessage("{}")}}
}

// RequestDeclaresTasks reports whether the sender of a 2026-07-28 request with
// this _meta understands tasks. Nothing it said earlier counts.
func RequestDeclaresTasks(meta Object) bool {
	capabilities, _ := meta.Get(MetaClientCapabilities)
	return DetectClient(capabilities).Extension
}

// DetectServer reads the capabilities of a server: the member of that name of
// the result of initialize or of server/discover. Besides what the protocol
// says it understands what servers were seen to send:
//
//	"tasks": true                                   everything
//	"tasks": {"requests": true}                     calls
//	"tasks": {"requests": {"tools": true}}          calls
//	"tasks": {"requests": {"tools": {}}}            calls; Python SDK 1.23 to 1.26 forgot call
//	"tasks": {"requests": {"tools": {"call": true}}}
//	"tasks": {"requests": {"tools/call": true}}     calls, by the name of the method
//	"experimental": {"tasks": …}                    any of these, while tasks was no member of its own
//	"notifications": {"tasks": {"status": true}}    status notifications
//
// A member that is null or false declares nothing, and "tasks": {} declares
// tasks of no request at all.
func DetectServer(capabilities []byte) ServerSupport {
	c := jsonrpc.Value{Bytes: capabilities}
	tasks := tasksOf(c)
	return ServerSupport{
		Call:      declares(tasks, "tools", "call", "tools/call"),
		List:      isTrue(tasks) || on(tasks.Member("list")),
		Cancel:    isTrue(tasks) || on(tasks.Member("cancel")),
		Notify:    on(c.Member("notifications").Member("tasks").Member("status")),
		Extension: on(c.Member("extensions").Member(Extension)),
	}
}

// DetectClient reads the capabilities of a client: the member of that name of
// the params of initialize, or what a request of 2026-07-28 has in its _meta. It is
// as lenient as [DetectServer].
func DetectClient(capabilities []byte) ClientSupport {
	c := jsonrpc.Value{Bytes: capabilities}
	tasks := tasksOf(c)
	return ClientSupport{
		Sample:    declares(tasks, "sampling", "createMessage", "sampling/createMessage"),
		Elicit:    declares(tasks, "elicitation", "create", "elicitation/create"),
		List:      isTrue(tasks) || on(tasks.Member("list")),
		Cancel:    isTrue(tasks) || on(tasks.Member("cancel")),
		Extension: on(c.Member("extensions").Member(Extension)),
	}
}

func tasksOf(capabilities jsonrpc.Value) jsonrpc.Value {
	if tasks := capabilities.Member("tasks"); on(tasks) {
		return tasks
	}
	return capabilities.Member("experimental").Member("tasks")
}

// declares reports whether tasks has the request verb of group, which as a
// method is called method.
func declares(tasks jsonrpc.Value, group, verb, method string) bool {
	requests := tasks.Member("requests")
	if isTrue(tasks) || isTrue(requests) || on(requests.Member(method)) {
		return true
	}
	verbs := requests.Member(group)
	return isTrue(verbs) || on(verbs.Member(verb)) || isEmpty(verbs)
}

// on reports whether v declares something: it is there, and not null or false.
func on(v jsonrpc.Value) bool {
	return v.Present() && !v.IsNull() && string(v.Bytes) != "false"
}

func isTrue(v jsonrpc.Value) bool { return string(v.Bytes) == "true" }

// isEmpty reports whether v is an object without members.
func isEmpty(v jsonrpc.Value) bool {
	for range v.Members() {
		return false
	}
	return v.IsObject()
}
