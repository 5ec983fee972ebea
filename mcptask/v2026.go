package mcptask

import "encoding/json"

// A Task2026 is a task as the tasks extension of 2026-07-28 describes it.
type Task2026 struct {
	TaskID        string                     `json:"taskId"`
	Status        Status                     `json:"status"`
	StatusMessage string                     `json:"statusMessage,omitzero"`
	CreatedAt     Timestamp                  `json:"createdAt"`
	LastUpdatedAt Timestamp                  `json:"lastUpdatedAt"`
	TTL           *Millis                    `json:"ttlMs"`                   // how long the task is kept, from its creation; nil, written null, is for ever
	PollInterval  *Millis                    `json:"pollIntervalMs,omitzero"` // how long to wait between two calls of tasks/get
	Extra         map[string]json.RawMessage `json:",embed"`                  // members that this package does not know
}

// A DetailedTask is a task with what its status calls for: questions while
// input is required, the result once completed, the error once failed.
type DetailedTask struct {
	Task2026

	InputRequests Object          `json:"inputRequests,omitzero"` // requests to the client, by a key that is never used again
	Result        json.RawMessage `json:"result,omitzero"`        // what the request itself would have returned
	Error         json.RawMessage `json:"error,omitzero"`         // the JSON-RPC error the request itself would have returned
}

// A CreateResult2026 is a task returned in place of a request's own result.
// The task's members are the result's own.
type CreateResult2026 struct {
	ResultType ResultType `json:"resultType"` // TaskResult
	Task2026

	Meta Object `json:"_meta,omitzero"`
}

// A GetResult2026 is the answer to tasks/get.
type GetResult2026 struct {
	ResultType ResultType `json:"resultType"` // Complete
	DetailedTask

	Meta Object `json:"_meta,omitzero"`
}

// A Ack2026 is the answer to tasks/update and to tasks/cancel. It says that
// the request was taken, not that it had an effect yet.
type Ack2026 struct {
	ResultType ResultType                 `json:"resultType"` // Complete
	Meta       Object                     `json:"_meta,omitzero"`
	Extra      map[string]json.RawMessage `json:",embed"`
}

// StatusParams2026 are the params of notifications/tasks. Meta names the
// subscription that the notification belongs to.
type StatusParams2026 struct {
	Meta Object `json:"_meta,omitzero"`
	DetailedTask
}

// A StatusNotification2026 is the message notifications/tasks.
type StatusNotification2026 = Notification[StatusParams2026]

// A Subscription is the member notifications of subscriptions/listen and of its
// acknowledgement, as far as it concerns tasks.
type Subscription struct {
	TaskIDs []string                   `json:"taskIds,omitzero"`
	Extra   map[string]json.RawMessage `json:",embed"`
}
