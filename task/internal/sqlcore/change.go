package sqlcore

import "github.com/thoughtgate/thoughtgate-go/task"

// Statements that are the same for every database.
const (
	FindTask   = "SELECT owner, state, version FROM tasks WHERE id = $1"
	PutOutline = `INSERT INTO outlines (task, version, document) VALUES ($1, $2, $3)
		ON CONFLICT (task) DO UPDATE SET version = excluded.version, document = excluded.document`
	PutChunk = `INSERT INTO chunks (task, n, data) VALUES ($1, $2, $3)
		ON CONFLICT (task, n) DO UPDATE SET data = excluded.data`
	CountRooms = "SELECT count(*) FILTER (WHERE room = $1), count(*) FROM tasks WHERE pending = TRUE AND room > ''"
)

// A Found is what a change needs to know of a task that is stored.
type Found struct {
	Owner   string
	State   task.State
	Version int64 // zero if there is no such task
}

// Columns returns where the columns of [FindTask] are read into.
func (f *Found) Columns() []any { return []any{&f.Owner, &f.State, &f.Version} }

// There reports whether the task is stored.
func (f Found) There() bool { return f.Version != 0 }

// A Touched is a task that was created, changed or deleted.
type Touched struct {
	ID    task.ID
	Owner string
}

// Overtaken is the error of a swap that came second.
func Overtaken(id task.ID, state task.State) error {
	return &task.Error{
		Kind: task.KindConcurrentModification, ID: id, State: state, Actual: state, Action: task.ActionSwap,
	}
}

// A Chunk is to be written.
type Chunk struct {
	Ref  task.Ref
	N    int
	Data []byte
}

// Refusal says why the chunk cannot be kept beside what is there.
func (c *Chunk) Refusal(old Found) error {
	if !old.There() {
		return c.Ref.NotFound(task.ActionWriteChunk)
	}
	if err := c.Ref.Check(old.Owner, task.ActionWriteChunk); err != nil {
		return err
	}
	return c.Ref.CheckChunk(c.N, c.Data)
}
