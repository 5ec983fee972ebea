package sqltest

import (
	"errors"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// RunBytesOfEarlierVersion checks that the tasks of version 10, which counted bytes for owners,
// count for their account, and no longer when they are deleted.
func RunBytesOfEarlierVersion(t *testing.T, empty Empty) {
	old := empty(t)
	if old == nil {
		return
	}
	old.Load(t, "0010_sizes")
	old.change(t, "UPDATE tasks SET room = 'g', size = 10000 WHERE id IN ('tg_working', 'tg_cancelled')")
	s := old.Open(t)
	size := func(owner, group string) int64 {
		d := Draft(77)
		d.Owner, d.Group = owner, group
		made, err := task.New(d, Epoch)
		Must(t, err)
		err = s.Create(t.Context(), made, task.Limits{AccountBytes: 1})
		var e *task.Error
		if !errors.As(err, &e) || e.Kind != task.ErrOwnerFull {
			t.Fatalf("err = %v; want %s", err, task.ErrOwnerFull)
		}
		return e.Size - made.Weight()
	}
	owner := Draft(len(task.Rejected)).Owner
	if got := size("someone", "g"); got != 20000 {
		t.Errorf("the group has %d bytes; want 20000", got)
	}
	var rest int64
	Must(t, old.DB.QueryRow("SELECT sum(size) FROM tasks WHERE room = '' AND owner = $1", owner).Scan(&rest))
	if got := size(owner, ""); got != rest || rest == 0 {
		t.Errorf("the owner has %d bytes; want %d", got, rest)
	}
	if n, err := s.Sweep(t.Context(), Epoch.Add(3*TTL), 100); n == 0 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	if got := size("someone", "g"); got != 10000 {
		t.Errorf("after the deletion of one of its tasks, the group has %d bytes; want 10000", got)
	}
}
