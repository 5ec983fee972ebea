package mcptask

import (
	"encoding/json"
)

// The methods of tasks. 2025-11-25 has all requests but tasks/update;
// 2026-07-28 has neither tasks/result nor tasks/list.
const (
	MethodGet    = "tasks/get"
	MethodResult = "tasks/result"
	MethodList   = "tasks/list"
	MethodCancel = "tasks/cancel"
	MethodUpdate = "tasks/update"

	MethodStatus2025 = "notifications/tasks/status"
	MethodStatus2026 = "notifications/tasks"
)

// TaskParams are the params of tasks/get, tasks/result and tasks/cancel, in
// both generations. A related-task member in Meta has no meaning here: TaskID
// is what counts.
type TaskParams struct {
	TaskID string                     `json:"taskId"`
	Meta   Object                     `json:"_meta,omitzero"`
	Extra  map[string]json.RawMessage `json:",embed"`
}

// ListParams are the params of tasks/list.
type ListParams struct {
	Cursor string                     `json:"cursor,omitzero"` // absent for the first page
	Meta   Object                     `json:"_meta,omitzero"`
	Extra  map[string]json.RawMessage `json:",embed"`
}

// UpdateParams are the params of tasks/update.
type UpdateParams struct {
	TaskID         string                     `json:"taskId"`
	InputResponses Object                     `json:"inputResponses"` // answers by the key of their question
	TTLMs          json.RawMessage            `json:"ttlMs,omitzero"` // how long the client wants the task to live, from its creation; see [UpdatedTTL]
	Meta           Object                     `json:"_meta,omitzero"`
	Extra          map[string]json.RawMessage `json:",embed"`
}

// A Notification is a JSON-RPC notification with params of type P.
type Notification[P any] struct {
	JSONRPC string                     `json:"jsonrpc"`
	Method  string                     `json:"method"`
	Params  P                          `json:"params"`
	Extra   map[string]json.RawMessage `json:",embed"`
}

func notification[P any](method string, params P) Notification[P] {
	return Notification[P]{JSONRPC: "2.0", Method: method, Params: params}
}

func encode(v any) (json.RawMessage, error) {
	text, err := marshal(v)
	return text, err
}
