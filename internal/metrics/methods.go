package metrics

import "github.com/thoughtgate/thoughtgate-go/mcpname"

// methods are the values of the method label: every request and notification of MCP from
// 2025-03-26 to 2026-07-28 and of its tasks extension, and names for messages without a
// method.
var methods = map[string]bool{
	mcpname.Initialize: true, mcpname.Ping: true, mcpname.ServerDiscover: true,
	mcpname.CompletionComplete: true, mcpname.ElicitationCreate: true, mcpname.LoggingSetLevel: true, mcpname.RootsList: true, mcpname.SamplingCreateMessage: true,
	mcpname.PromptsGet: true, mcpname.PromptsList: true,
	mcpname.ResourcesList: true, mcpname.ResourcesRead: true, mcpname.ResourcesSubscribe: true, mcpname.ResourcesTemplatesList: true, mcpname.ResourcesUnsubscribe: true,
	mcpname.SubscriptionsListen: true,
	mcpname.TasksCancel:         true, mcpname.TasksGet: true, mcpname.TasksList: true, mcpname.TasksResult: true, mcpname.TasksUpdate: true,
	mcpname.ToolsCall: true, mcpname.ToolsList: true,

	mcpname.NotifyCancelled: true, mcpname.NotifyInitialized: true, mcpname.NotifyMessage: true, mcpname.NotifyProgress: true,
	mcpname.NotifyElicitationComplete:  true,
	mcpname.NotifyPromptsListChanged:   true,
	mcpname.NotifyResourcesListChanged: true, mcpname.NotifyResourcesUpdated: true,
	mcpname.NotifyRootsListChanged:          true,
	mcpname.NotifySubscriptionsAcknowledged: true,
	mcpname.NotifyTasks:                     true, mcpname.NotifyTasksStatus: true,
	mcpname.NotifyToolsListChanged: true,

	"batch": true, "response": true, "GET": true, "DELETE": true, other: true,
}
