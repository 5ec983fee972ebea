package schema

import (
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A ServerSupport lists the features of tasks that a server supports, in either era.
type ServerSupport struct {
	Call      bool // 2025-11-25: tools/call may ask for a task
	List      bool // 2025-11-25: tasks/list
	Cancel    bool // 2025-11-25: tasks/cancel
	Notify    bool // not in the protocol: sends notifications/tasks/status
	Extension bool // 2026-07-28: may return a task as the answer to tools/call
}

// A ClientSupport lists the features of tasks that a client supports, in either era. A
// client of 2025-11-25 that only uses tasks of servers declares no feature.
type ClientSupport struct {
	Sample    bool // 2025-11-25: sampling/createMessage may ask for a task
	Elicit    bool // 2025-11-25: elicitation/create may ask for a task
	List      bool // 2025-11-25: tasks/list
	Cancel    bool // 2025-11-25: tasks/cancel
	Extension bool // 2026-07-28: accepts a task as the answer to a request
}

// A ServerCapability is the member tasks of a 2025-11-25 server's capabilities.
// An absent member means that the server does not support the feature.
type ServerCapability struct {
	List     Object          `json:"list,omitzero"`
	Cancel   Object          `json:"cancel,omitzero"`
	Requests *ServerRequests `json:"requests,omitzero"`
	Extra    Object          `json:"-"`
}

// ServerRequests names the requests that a server may answer with a task.
type ServerRequests struct {
	Tools *ToolRequests `json:"tools,omitzero"`
	Extra Object        `json:"-"`
}

// ToolRequests names the requests about tools among [ServerRequests].
type ToolRequests struct {
	Call  Object `json:"call,omitzero"`
	Extra Object `json:"-"`
}

// A ClientCapability is the member tasks of a 2025-11-25 client's capabilities.
// It is about tasks that the client keeps for the server.
type ClientCapability struct {
	List     Object          `json:"list,omitzero"`
	Cancel   Object          `json:"cancel,omitzero"`
	Requests *ClientRequests `json:"requests,omitzero"`
	Extra    Object          `json:"-"`
}

// ClientRequests names the requests that a client may answer with a task.
type ClientRequests struct {
	Sampling    *SamplingRequests    `json:"sampling,omitzero"`
	Elicitation *ElicitationRequests `json:"elicitation,omitzero"`
	Extra       Object               `json:"-"`
}

// SamplingRequests names the requests about sampling among [ClientRequests].
type SamplingRequests struct {
	CreateMessage Object `json:"createMessage,omitzero"`
	Extra         Object `json:"-"`
}

// ElicitationRequests names the requests about elicitation among
// [ClientRequests].
type ElicitationRequests struct {
	Create Object `json:"create,omitzero"`
	Extra  Object `json:"-"`
}

// FullServer returns the capability of a server that supports tasks for tool calls, tasks/list
// and tasks/cancel.
func FullServer() ServerCapability {
	return ServerSupport{Call: true, List: true, Cancel: true}.Capability()
}

// ToolsOnly returns the capability of a server that supports tasks for tool calls, without
// tasks/list and tasks/cancel.
func ToolsOnly() ServerCapability {
	return ServerSupport{Call: true}.Capability()
}

// FullClient returns the capability of a client that supports tasks for every kind of request.
func FullClient() ClientCapability {
	return ClientSupport{Sample: true, Elicit: true, List: true, Cancel: true}.Capability()
}

// Capability returns the capability that a 2025-11-25 server with support s declares. A server
// whose clients are not identified must leave List out.
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

// Capability returns the capability that a 2025-11-25 client with support s declares.
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

// Extensions returns the member extensions of a 2026-07-28 capability object that only declares
// tasks. The value of the tasks extension is exactly {}, because clients refuse other values.
func Extensions() Object {
	return Object{{Name: mcpname.ExtensionTasks, Value: json.RawMessage("{}")}}
}

// RequestDeclaresTasks reports whether the sender of a 2026-07-28 request with this _meta
// supports tasks. Declarations of earlier requests do not count.
func RequestDeclaresTasks(meta Object) bool {
	capabilities, _ := meta.Get(mcpname.MetaClientCapabilities)
	return DetectClient(capabilities).Extension
}

// DetectServer reads the capabilities of a server: the member capabilities in the result of
// initialize or of server/discover. Besides the form of the protocol, it accepts forms that
// servers were seen to send:
//
//	"tasks": true                                   everything
//	"tasks": {"requests": true}                     calls
//	"tasks": {"requests": {"tools": true}}          calls
//	"tasks": {"requests": {"tools": {}}}            calls; Python SDK 1.23 to 1.26 omits call
//	"tasks": {"requests": {"tools": {"call": true}}}
//	"tasks": {"requests": {"tools/call": true}}     calls, by the name of the method
//	"experimental": {"tasks": …}                    each of the above, from before tasks had its own member
//	"notifications": {"tasks": {"status": true}}    status notifications
//
// A member that is null or false declares no support. "tasks": {} declares tasks for no
// request.
func DetectServer(capabilities []byte) ServerSupport {
	c := jsonrpc.Value{Bytes: capabilities}
	tasks := tasksOf(c)
	return ServerSupport{
		Call:      declares(tasks, "tools", "call", mcpname.ToolsCall),
		List:      tasks.IsTrue() || on(tasks.Member("list")),
		Cancel:    tasks.IsTrue() || on(tasks.Member("cancel")),
		Notify:    on(c.Member("notifications").Member("tasks").Member("status")),
		Extension: on(c.Member("extensions").Member(mcpname.ExtensionTasks)),
	}
}

// DetectClient reads the capabilities of a client: the member capabilities in the params of
// initialize, or in the _meta of a 2026-07-28 request. It is as lenient as [DetectServer].
func DetectClient(capabilities []byte) ClientSupport {
	c := jsonrpc.Value{Bytes: capabilities}
	tasks := tasksOf(c)
	return ClientSupport{
		Sample:    declares(tasks, "sampling", "createMessage", mcpname.SamplingCreateMessage),
		Elicit:    declares(tasks, "elicitation", "create", mcpname.ElicitationCreate),
		List:      tasks.IsTrue() || on(tasks.Member("list")),
		Cancel:    tasks.IsTrue() || on(tasks.Member("cancel")),
		Extension: on(c.Member("extensions").Member(mcpname.ExtensionTasks)),
	}
}

func tasksOf(capabilities jsonrpc.Value) jsonrpc.Value {
	if tasks := capabilities.Member("tasks"); on(tasks) {
		return tasks
	}
	return capabilities.Member("experimental").Member("tasks")
}

// declares reports whether tasks has the request verb of group. Method is the name of the same
// request as a method.
func declares(tasks jsonrpc.Value, group, verb, method string) bool {
	requests := tasks.Member("requests")
	if tasks.IsTrue() || requests.IsTrue() || on(requests.Member(method)) {
		return true
	}
	verbs := requests.Member(group)
	return verbs.IsTrue() || on(verbs.Member(verb)) || verbs.IsEmptyObject()
}

// on reports whether v declares a feature: it is present, and not null or false.
func on(v jsonrpc.Value) bool {
	return v.Present() && !v.IsNull() && string(v.Bytes) != "false"
}
