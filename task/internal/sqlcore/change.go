package sqlcore

import (
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// FindTask is the statement that reads a [StoredTask].
const FindTask = "SELECT owner, account, state, version, size FROM tasks WHERE id = $1"

// A StoredTask has the columns of a task that a change checks.
type StoredTask struct {
	Owner   string
	Account string // see [task.Task.Account]
	State   task.State
	Version int64 // zero if there is no such task
	Size    int64
}

// Columns returns the destinations of the columns of [FindTask].
func (f *StoredTask) Columns() []any {
	return []any{&f.Owner, &f.Account, &f.State, &f.Version, &f.Size}
}

// Exists reports whether the task is stored.
func (f StoredTask) Exists() bool { return f.Version != 0 }

// A ChangedTask is a task that was created, changed or deleted.
type ChangedTask struct {
	ID    task.ID
	Owner string
}

// Swept is the condition that selects tasks that have ended and are due before $1.
const Swept = "pending = FALSE AND due < $1"

// Reclaim returns the condition, with its arguments, that selects the tasks of an account
// that a full store may delete. An empty account means all.
func Reclaim(account string) (where string, args []any) {
	if account != "" {
		return "disposable AND account = $1", []any{account}
	}
	return "pending = FALSE AND disposable", nil
}

// A Chunk is a chunk to write.
type Chunk struct {
	Ref  task.Ref
	N    int
	Data []byte
}

// Refusal returns the error if the chunk cannot be written for the stored task.
func (c *Chunk) Refusal(old StoredTask) error {
	if !old.Exists() {
		return c.Ref.NotFound(action.WriteChunk)
	}
	if err := c.Ref.Check(old.Owner, action.WriteChunk); err != nil {
		return err
	}
	return c.Ref.CheckChunk(c.N, c.Data)
}
