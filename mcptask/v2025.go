package mcptask

import "encoding/json"

// A Task2025 is a task as 2025-11-25 describes it.
type Task2025 struct {
	TaskID        string                     `json:"taskId"`
	Status        Status                     `json:"status"`
	StatusMessage string                     `json:"statusMessage,omitzero"`
	CreatedAt     Timestamp                  `json:"createdAt"`
	LastUpdatedAt Timestamp                  `json:"lastUpdatedAt"`
	TTL           *Millis                    `json:"ttl"`                   // how long the task is kept, from its creation; nil, written null, is for ever
	PollInterval  *Millis                    `json:"pollInterval,omitzero"` // how long to wait between two calls of tasks/get
	Extra         map[string]json.RawMessage `json:",embed"`                // members that this package does not know
}

// A CreateResult2025 is the answer to a request that asked for a task. The
// task stands in a member of its own.
type CreateResult2025 struct {
	Task  Task2025                   `json:"task"`
	Meta  Object                     `json:"_meta,omitzero"`
	Extra map[string]json.RawMessage `json:",embed"`
}

// A TaskResult2025 is the answer to tasks/get and to tasks/cancel. The task's
// members are the result's own.
type TaskResult2025 struct {
	Task2025

	Meta Object `json:"_meta,omitzero"`
}

// A ListResult2025 is one page of tasks.
type ListResult2025 struct {
	Tasks      []Task2025                 `json:"tasks"`
	NextCursor string                     `json:"nextCursor,omitzero"` // absent on the last page
	Meta       Object                     `json:"_meta,omitzero"`
	Extra      map[string]json.RawMessage `json:",embed"`
}

// A StatusNotification2025 is the message notifications/tasks/status.
type StatusNotification2025 = Notification[TaskResult2025]

// A ToolExecution is the member execution of a tool.
type ToolExecution struct {
	TaskSupport TaskSupport                `json:"taskSupport,omitzero"`
	Extra       map[string]json.RawMessage `json:",embed"`
}

// An Augmentation is the member task of a request's params, by which a client
// asks for a task. 2026-07-28 has none: there the server decides alone.
type Augmentation struct {
	TTL   *Millis                    `json:"ttl,omitzero"`
	Extra map[string]json.RawMessage `json:",embed"`
}
