package mcptask

import (
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Names that have a meaning in _meta or among the extensions.
const (
	// MetaRelatedTask ties a message of 2025-11-25 to its task. See [WithRelatedTask].
	MetaRelatedTask = "io.modelcontextprotocol/related-task"
	// MetaImmediateResponse holds what a host of 2025-11-25 may show its model while
	// the task runs. See [WithImmediateResponse].
	MetaImmediateResponse = "io.modelcontextprotocol/model-immediate-response"
	// MetaSubscriptionID ties a notification of 2026-07-28 to the request that
	// subscribed to it. See [WithSubscriptionID].
	MetaSubscriptionID = "io.modelcontextprotocol/subscriptionId"
	// MetaClientCapabilities holds, in every request of 2026-07-28, what its sender
	// can do. See [RequestDeclaresTasks].
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	// Extension is the name of the tasks extension.
	Extension = "io.modelcontextprotocol/tasks"
)

// RelatedTask returns the id of the task that a message with this _meta belongs
// to, and whether it belongs to one.
func RelatedTask(meta Object) (id string, ok bool) {
	related, _ := meta.Get(MetaRelatedTask)
	return jsonrpc.Value{Bytes: related}.Member("taskId").Text()
}

// WithRelatedTask returns meta with a note that the message belongs to the task
// with the given id. The 2025-11-25 answer to tasks/result must have it; those
// to tasks/get, tasks/list and tasks/cancel, the status notification and every
// message of 2026-07-28 must not.
func WithRelatedTask(meta Object, id string) Object {
	return meta.With(MetaRelatedTask, relatedTask(id))
}

func relatedTask(id string) json.RawMessage {
	return Object{{"taskId", quote(id)}}.text()
}

// ImmediateResponse returns what the host may show its model at once, and
// whether the server gave anything.
func ImmediateResponse(meta Object) (text string, ok bool) {
	response, _ := meta.Get(MetaImmediateResponse)
	return jsonrpc.Value{Bytes: response}.Text()
}

// WithImmediateResponse returns meta with text for the model that waits. It
// belongs on a [CreateResult2025] only.
func WithImmediateResponse(meta Object, text string) Object {
	return meta.With(MetaImmediateResponse, quote(text))
}

// WithSubscriptionID returns meta with the JSON-RPC id of the
// subscriptions/listen request that a notification answers. The id is kept as
// it is written, since 1 and "1" are two ids.
func WithSubscriptionID(meta Object, id json.RawMessage) Object {
	return meta.With(MetaSubscriptionID, id)
}

// quote returns s as a JSON string.
func quote(s string) json.RawMessage { return jsonrpc.AppendString(nil, s) }
