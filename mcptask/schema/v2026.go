package schema

import "encoding/json"

// A Task2026 is a task in the form of the tasks extension of 2026-07-28.
type Task2026 struct {
	TaskID        string    `json:"taskId"`
	Status        Status    `json:"status"`
	StatusMessage string    `json:"statusMessage,omitzero"`
	CreatedAt     Timestamp `json:"createdAt"`
	LastUpdatedAt Timestamp `json:"lastUpdatedAt"`
	TTL           *Millis   `json:"ttlMs"`                   // how long the task is kept, from its creation; nil is written as null and means forever
	PollInterval  *Millis   `json:"pollIntervalMs,omitzero"` // how long to wait between two tasks/get requests
	Extra         Object    `json:"-"`                       // members that this package does not know
}

// A DetailedTask is a task with the data for its status: the questions if it requires input,
// the result if it has completed, the error if it has failed.
type DetailedTask struct {
	Task2026

	InputRequests Object          `json:"inputRequests,omitzero"` // requests to the client, by keys that are never reused
	Result        json.RawMessage `json:"result,omitzero"`        // the result of the request
	Error         json.RawMessage `json:"error,omitzero"`         // the JSON-RPC error of the request
}

// A CreateResult2026 is a task that is returned in place of the result of a request. The
// members of the task are members of the result.
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

// An Ack2026 is the answer to tasks/update and to tasks/cancel. The request was accepted, but
// may take effect later.
type Ack2026 struct {
	ResultType ResultType `json:"resultType"` // Complete
	Meta       Object     `json:"_meta,omitzero"`
	Extra      Object     `json:"-"`
}

// StatusParams2026 are the params of notifications/tasks. Meta contains the id of the
// subscription to which the notification belongs.
type StatusParams2026 struct {
	Meta Object `json:"_meta,omitzero"`
	DetailedTask
}

// A StatusNotification2026 is the message notifications/tasks.
type StatusNotification2026 = Notification[StatusParams2026]

// A Subscription is the part of the member notifications of subscriptions/listen, and of its
// acknowledgement, that concerns tasks.
type Subscription struct {
	TaskIDs []string `json:"taskIds,omitzero"`
	Extra   Object   `json:"-"`
}
