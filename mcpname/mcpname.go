// Package mcpname has the names of methods, _meta members and extensions in all versions of MCP.
// Other packages use these constants instead of literals.
package mcpname

// Methods of requests.
const (
	Initialize     = "initialize"
	Ping           = "ping"
	ServerDiscover = "server/discover"

	ToolsList              = "tools/list"
	ToolsCall              = "tools/call"
	PromptsList            = "prompts/list"
	PromptsGet             = "prompts/get"
	ResourcesList          = "resources/list"
	ResourcesRead          = "resources/read"
	ResourcesTemplatesList = "resources/templates/list"
	ResourcesSubscribe     = "resources/subscribe"
	ResourcesUnsubscribe   = "resources/unsubscribe"
	CompletionComplete     = "completion/complete"
	LoggingSetLevel        = "logging/setLevel"

	SamplingCreateMessage = "sampling/createMessage"
	ElicitationCreate     = "elicitation/create"
	RootsList             = "roots/list"
	SubscriptionsListen   = "subscriptions/listen"

	TasksGet    = "tasks/get"
	TasksResult = "tasks/result"
	TasksList   = "tasks/list"
	TasksCancel = "tasks/cancel"
	TasksUpdate = "tasks/update"
)

// Methods of notifications. 2025-11-25 uses NotifyTasksStatus, 2026-07-28 uses NotifyTasks.
const (
	NotifyInitialized               = "notifications/initialized"
	NotifyCancelled                 = "notifications/cancelled"
	NotifyProgress                  = "notifications/progress"
	NotifyMessage                   = "notifications/message"
	NotifyToolsListChanged          = "notifications/tools/list_changed"
	NotifyPromptsListChanged        = "notifications/prompts/list_changed"
	NotifyResourcesListChanged      = "notifications/resources/list_changed"
	NotifyResourcesUpdated          = "notifications/resources/updated"
	NotifyRootsListChanged          = "notifications/roots/list_changed"
	NotifyElicitationComplete       = "notifications/elicitation/complete"
	NotifySubscriptionsAcknowledged = "notifications/subscriptions/acknowledged"
	NotifyTasks                     = "notifications/tasks"
	NotifyTasksStatus               = "notifications/tasks/status"
)

// Members of _meta.
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"          // in every request of 2026-07-28: its version
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"               // likewise: name and version of the client
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"       // likewise: capabilities of the client
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"               // in results of 2026-07-28: name and version of the server
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"           // ties a notification of 2026-07-28 to the request that subscribed to it
	MetaRelatedTask        = "io.modelcontextprotocol/related-task"             // ties a message of 2025-11-25 to its task
	MetaImmediateResponse  = "io.modelcontextprotocol/model-immediate-response" // result for the model while a task of 2025-11-25 runs
	MetaAuthorization      = "io.modelcontextprotocol/authorization"            // draft SEP-2643: reason why a call was not allowed
	MetaToolApproval       = "io.modelcontextprotocol/tool-approval"            // draft SEP-2848: state of an approval
)

// Extensions.
const (
	ExtensionTasks = "io.modelcontextprotocol/tasks"
)
