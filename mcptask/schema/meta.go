package schema

import (
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// RelatedTask returns the id of the task to which a message with this _meta belongs. It reports
// false if there is none.
func RelatedTask(meta Object) (id string, ok bool) {
	related, _ := meta.Get(mcpname.MetaRelatedTask)
	return jsonrpc.Value{Bytes: related}.Member("taskId").Text()
}

// WithRelatedTask returns meta with the id of the task to which the message belongs. The
// 2025-11-25 answer to tasks/result must have it. The answers to tasks/get, tasks/list and
// tasks/cancel, the status notification and all messages of 2026-07-28 must not have it.
func WithRelatedTask(meta Object, id string) Object {
	return meta.With(mcpname.MetaRelatedTask, RelatedTaskValue(id))
}

// RelatedTaskValue returns the value of that member: an object with the id of the task.
func RelatedTaskValue(id string) json.RawMessage {
	return Object{{"taskId", quote(id)}}.Text()
}

// ImmediateResponse returns the text that the host may show its model at once. It reports false
// if the server sent none.
func ImmediateResponse(meta Object) (text string, ok bool) {
	response, _ := meta.Get(mcpname.MetaImmediateResponse)
	return jsonrpc.Value{Bytes: response}.Text()
}

// WithImmediateResponse returns meta with a text for the model that waits. Only a
// [CreateResult2025] may have it.
func WithImmediateResponse(meta Object, text string) Object {
	return meta.With(mcpname.MetaImmediateResponse, quote(text))
}

// WithSubscriptionID returns meta with the JSON-RPC id of the subscriptions/listen request to
// which a notification belongs. The text of the id is kept, because 1 and "1" are different
// ids.
func WithSubscriptionID(meta Object, id json.RawMessage) Object {
	return meta.With(mcpname.MetaSubscriptionID, id)
}

// quote returns s as a JSON string.
func quote(s string) json.RawMessage { return jsonrpc.AppendString(nil, s) }
