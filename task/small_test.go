package task_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A store that holds all tasks in memory uses these functions to count and list them.
func TestCountAndListTasksInMemory(t *testing.T) {
	mine, ended := newTask(t), apply(t, newTask(t), lifecycle.Cancel{By: "ann"})
	other := newTask(t)
	other.ID, other.Owner, other.Group, other.Digest = "tg_2", "bob", "r", task.Digest{1}
	fresh := newTask(t)
	fresh.ID, fresh.Group = "tg_3", "r"
	var load task.Load
	for _, one := range []task.Task{mine, ended, other} { // mine and ended have the owner of fresh, other has its group
		load.Add(one, fresh)
	}
	if want := (task.Load{AccountBytes: other.Weight(), Owner: 1, Group: 1, Grouped: 1, Total: 2, Duplicate: mine.ID}); load != want {
		t.Errorf("%+v; want %+v", load, want)
	}

	q := task.Query{Scope: task.AnyOwner(), Limit: 1}
	var seen []task.ID
	for {
		page, err := q.PageOf([]task.Task{other, mine, fresh})
		if err != nil || len(page.Tasks) != 1 {
			t.Fatalf("%v, %v", page.Tasks, err)
		}
		seen = append(seen, page.Tasks[0].ID)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if len(seen) != 3 || seen[1] != "tg_2" || seen[2] != "tg_3" {
		t.Errorf("pages: %v", seen)
	}
	q.Cursor = "x"
	if _, err := q.PageOf(nil); err == nil {
		t.Error("an invalid cursor was accepted")
	}
}
