package mcptask

import "github.com/go-json-experiment/json/jsontext"

// A LegacyTask is a task as 2025-11-25 describes it.
type LegacyTask struct {
	TaskID        string         `json:"taskId"`
	Status        Status         `json:"status"`
	StatusMessage string         `json:"statusMessage,omitzero"`
	CreatedAt     Timestamp      `json:"createdAt"`
	LastUpdatedAt Timestamp      `json:"lastUpdatedAt"`
	TTL           *Millis        `json:"ttl"`                   // how long the task is kept, from its creation; nil, written null, is for ever
	PollInterval  *Millis        `json:"pollInterval,omitzero"` // how long to wait between two calls of tasks/get
	Extra         jsontext.Value `json:",embed"`                // members that this package does not know
}

// A LegacyCreateResult is the answer to a request that asked for a task. The
// task stands in a member of its own.
type LegacyCreateResult struct {
	Task  LegacyTask     `json:"task"`
	Meta  Object         `json:"_meta,omitzero"`
	Extra jsontext.Value `json:",embed"`
}

// A LegacyTaskResult is the answer to tasks/get and to tasks/cancel. The task's
// members are the result's own.
type LegacyTaskResult struct {
	LegacyTask

	Meta Object `json:"_meta,omitzero"`
}

// A LegacyListResult is one page of tasks.
type LegacyListResult struct {
	Tasks      []LegacyTask   `json:"tasks"`
	NextCursor string         `json:"nextCursor,omitzero"` // absent on the last page
	Meta       Object         `json:"_meta,omitzero"`
	Extra      jsontext.Value `json:",embed"`
}

// A LegacyStatusNotification is the message notifications/tasks/status.
type LegacyStatusNotification = Notification[LegacyTaskResult]

// A ToolExecution is the member execution of a tool.
type ToolExecution struct {
	TaskSupport TaskSupport    `json:"taskSupport,omitzero"`
	Extra       jsontext.Value `json:",embed"`
}

// An Augmentation is the member task of a request's params, by which a client
// asks for a task. 2026-07-28 has none: there the server decides alone.
type Augmentation struct {
	TTL   *Millis        `json:"ttl,omitzero"`
	Extra jsontext.Value `json:",embed"`
}
