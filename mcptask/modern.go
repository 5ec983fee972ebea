package mcptask

import "github.com/go-json-experiment/json/jsontext"

// A ModernTask is a task as the tasks extension of 2026-07-28 describes it.
type ModernTask struct {
	TaskID        string         `json:"taskId"`
	Status        Status         `json:"status"`
	StatusMessage string         `json:"statusMessage,omitzero"`
	CreatedAt     Timestamp      `json:"createdAt"`
	LastUpdatedAt Timestamp      `json:"lastUpdatedAt"`
	TTL           *Millis        `json:"ttlMs"`                   // how long the task is kept, from its creation; nil, written null, is for ever
	PollInterval  *Millis        `json:"pollIntervalMs,omitzero"` // how long to wait between two calls of tasks/get
	Extra         jsontext.Value `json:",embed"`                  // members that this package does not know
}

// A DetailedTask is a task with what its status calls for: questions while
// input is required, the result once completed, the error once failed.
type DetailedTask struct {
	ModernTask

	InputRequests Object         `json:"inputRequests,omitzero"` // requests to the client, by a key that is never used again
	Result        jsontext.Value `json:"result,omitzero"`        // what the request itself would have returned
	Error         jsontext.Value `json:"error,omitzero"`         // the JSON-RPC error the request itself would have returned
}

// A ModernCreateResult is a task returned in place of a request's own result.
// The task's members are the result's own.
type ModernCreateResult struct {
	ResultType ResultType `json:"resultType"` // TaskResult
	ModernTask

	Meta Object `json:"_meta,omitzero"`
}

// A ModernGetResult is the answer to tasks/get.
type ModernGetResult struct {
	ResultType ResultType `json:"resultType"` // Complete
	DetailedTask

	Meta Object `json:"_meta,omitzero"`
}

// A ModernAck is the answer to tasks/update and to tasks/cancel. It says that
// the request was taken, not that it had an effect yet.
type ModernAck struct {
	ResultType ResultType     `json:"resultType"` // Complete
	Meta       Object         `json:"_meta,omitzero"`
	Extra      jsontext.Value `json:",embed"`
}

// ModernStatusParams are the params of notifications/tasks. Meta names the
// subscription that the notification belongs to.
type ModernStatusParams struct {
	Meta Object `json:"_meta,omitzero"`
	DetailedTask
}

// A ModernStatusNotification is the message notifications/tasks.
type ModernStatusNotification = Notification[ModernStatusParams]

// A Subscription is the member notifications of subscriptions/listen and of its
// acknowledgement, as far as it concerns tasks.
type Subscription struct {
	TaskIDs []string       `json:"taskIds,omitzero"`
	Extra   jsontext.Value `json:",embed"`
}
