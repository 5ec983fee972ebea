package metrics

// methods are the values of the method label: every request and notification
// of MCP from 2025-03-26 to 2026-07-28 and of its tasks extension, and what
// else arrives at the endpoint.
var methods = []string{
	"initialize", "ping", "server/discover",
	"completion/complete", "elicitation/create", "logging/setLevel", "roots/list", "sampling/createMessage",
	"prompts/get", "prompts/list",
	"resources/list", "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe",
	"subscriptions/listen",
	"tasks/cancel", "tasks/get", "tasks/list", "tasks/result", "tasks/update",
	"tools/call", "tools/list",

	"notifications/cancelled", "notifications/initialized", "notifications/message", "notifications/progress",
	"notifications/elicitation/complete",
	"notifications/prompts/list_changed",
	"notifications/resources/list_changed", "notifications/resources/updated",
	"notifications/roots/list_changed",
	"notifications/subscriptions/acknowledged",
	"notifications/tasks", "notifications/tasks/status",
	"notifications/tools/list_changed",

	"batch", "response", "GET", "DELETE", other,
}
