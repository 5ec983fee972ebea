package redisstore_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A list of outlines only reads the documents of tasks whose outline is missing or has another
// version, because an earlier program wrote them.
func TestOutlinesWithoutDocuments(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	s := open(t, o)
	want := []task.Task{add(t, s, 2).Outline(), add(t, s, 1).Outline(), add(t, s, 0).Outline()}
	list := func(what string) {
		t.Helper()
		page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Outlines: true})
		must(t, err)
		if diff := cmp.Diff(want, page.Tasks); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	list("outlines")
	key := func(of task.Task) string { return "{" + o.Prefix + "}:task:" + string(of.ID) }
	do(t, server, "HDEL", key(want[0]), "outline")
	do(t, server, "HDEL", key(want[1]), "outline")
	list("tasks of an earlier program")
	do(t, server, "HSET", key(want[2]), "document", "{")
	list("a task without its document")
	do(t, server, "HSET", key(want[1]), "document", "{")
	_, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Outlines: true})
	if !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("without document and outline: %v", err)
	}
}
