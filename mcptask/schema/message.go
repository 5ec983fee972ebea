package schema

import "encoding/json"

// TaskParams are the params of tasks/get, tasks/result and tasks/cancel, in both eras.
// Only TaskID identifies the task. A related-task member in Meta is ignored.
type TaskParams struct {
	TaskID string `json:"taskId"`
	Meta   Object `json:"_meta,omitzero"`
	Extra  Object `json:"-"`
}

// ListParams are the params of tasks/list.
type ListParams struct {
	Cursor string `json:"cursor,omitzero"` // absent for the first page
	Meta   Object `json:"_meta,omitzero"`
	Extra  Object `json:"-"`
}

// UpdateParams are the params of tasks/update.
type UpdateParams struct {
	TaskID         string          `json:"taskId"`
	InputResponses Object          `json:"inputResponses"` // answers by the key of the question
	TTLMs          json.RawMessage `json:"ttlMs,omitzero"` // the requested TTL, from the creation of the task; see [mcptask.UpdatedTTL]
	Meta           Object          `json:"_meta,omitzero"`
	Extra          Object          `json:"-"`
}

// A Notification is a JSON-RPC notification with params of type P.
type Notification[P any] struct {
	JSONRPC string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  P      `json:"params"`
	Extra   Object `json:"-"`
}
