package sqltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// RunOwedCancellationsOfOlderVersions checks a task that was cancelled while its call ran,
// before the tables had an index of owed cancellations. The migration adds such tasks to the
// index, even when it cannot read them. It leaves out tasks that owe no cancellation.
func RunOwedCancellationsOfOlderVersions(t *testing.T, empty Empty) {
	old := empty(t)
	if old == nil {
		return
	}
	old.Load(t, "0005_rooms")
	old.insert(t, owes(t, "tg_owes"))
	sealed := owes(t, "tg_sealed")
	sealed.Execution, sealed.Call.Message = nil, "sealed:1:key:0000"
	old.insert(t, sealed)
	page, err := old.Open(t).List(t.Context(), task.Query{Scope: task.AnyOwner(), OwesCancellation: true})
	Must(t, err)
	var found []task.ID
	for _, one := range page.Tasks {
		found = append(found, one.ID)
	}
	if fmt.Sprint(found) != "[tg_owes tg_sealed]" {
		t.Errorf("found %v", found)
	}
}

// owes returns a task that was cancelled while its call ran.
func owes(t *testing.T, id task.ID) task.Task {
	t.Helper()
	d := Draft(1)
	d.ID = id
	made, err := task.New(d, Epoch)
	Must(t, err)
	for _, e := range []lifecycle.Event{
		lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate 1", LeaseUntil: Epoch.Add(time.Minute)}, lifecycle.Cancel{By: "ann"},
	} {
		made, err = lifecycle.Apply(made, e, Epoch)
		Must(t, err)
	}
	return made
}

// insert adds a row in the way of programs of version 5.
func (p *Place) insert(t *testing.T, one task.Task) {
	t.Helper()
	document, err := storekit.Encode(one)
	Must(t, err)
	conn, err := p.DB.Conn(t.Context())
	Must(t, err)
	defer conn.Close()
	p.announce(t, conn, 5)
	_, err = conn.ExecContext(t.Context(), `INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document)
		VALUES ($1, $2, $3, FALSE, $4, $5, $6, $7, $8)`, string(one.ID), one.Owner, string(one.State), one.Digest[:],
		one.CreatedAt.UnixMicro(), one.Due().UnixMicro(), one.Version, string(document))
	Must(t, err)
}
