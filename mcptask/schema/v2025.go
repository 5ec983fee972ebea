package schema

// A Task2025 is a task in the form of 2025-11-25.
type Task2025 struct {
	TaskID        string    `json:"taskId"`
	Status        Status    `json:"status"`
	StatusMessage string    `json:"statusMessage,omitzero"`
	CreatedAt     Timestamp `json:"createdAt"`
	LastUpdatedAt Timestamp `json:"lastUpdatedAt"`
	TTL           *Millis   `json:"ttl"`                   // how long the task is kept, from its creation; nil is written as null and means forever
	PollInterval  *Millis   `json:"pollInterval,omitzero"` // how long to wait between two tasks/get requests
	Extra         Object    `json:"-"`                     // members that this package does not know
}

// A CreateResult2025 is the answer to a request for a task. The task is the value of a separate
// member.
type CreateResult2025 struct {
	Task  Task2025 `json:"task"`
	Meta  Object   `json:"_meta,omitzero"`
	Extra Object   `json:"-"`
}

// A TaskResult2025 is the answer to tasks/get and to tasks/cancel. The members of the task are
// members of the result.
type TaskResult2025 struct {
	Task2025

	Meta Object `json:"_meta,omitzero"`
}

// A ListResult2025 is one page of tasks.
type ListResult2025 struct {
	Tasks      []Task2025 `json:"tasks"`
	NextCursor string     `json:"nextCursor,omitzero"` // absent on the last page
	Meta       Object     `json:"_meta,omitzero"`
	Extra      Object     `json:"-"`
}

// A StatusNotification2025 is the message notifications/tasks/status.
type StatusNotification2025 = Notification[TaskResult2025]

// A ToolExecution is the member execution of a tool.
type ToolExecution struct {
	TaskSupport TaskSupport `json:"taskSupport,omitzero"`
	Extra       Object      `json:"-"`
}

// An Augmentation is the member task of a request's params, with which a client asks for a
// task. 2026-07-28 has no such member: the server decides.
type Augmentation struct {
	TTL   *Millis `json:"ttl,omitzero"`
	Extra Object  `json:"-"`
}
