package sqltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// RunDebtsOfOlderVersions checks that a task that was cancelled while its call ran, before the tables had an index
// of such tasks, is found by that index once they have it, whether or not it can
// be read there. Tasks that owe nothing are not.
func RunDebtsOfOlderVersions(t *testing.T, empty Empty) {
	old := empty(t)
	if old == nil {
		return
	}
	old.Load(t, "0005_rooms")
	old.insert(t, owes(t, "tg_owes"))
	sealed := owes(t, "tg_sealed")
	sealed.Execution, sealed.Call.Message = nil, "sealed:1:key:0000"
	old.insert(t, sealed)
	page, err := old.Open(t).List(t.Context(), task.Query{Scope: task.AnyOwner(), Owing: true})
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
	for _, e := range []task.Event{
		task.Admit{By: "gate"}, task.Claim{By: "gate 1", LeaseUntil: Epoch.Add(time.Minute)}, task.Cancel{By: "ann"},
	} {
		made, err = made.Apply(e, Epoch)
		Must(t, err)
	}
	return made
}

// insert adds a row as programs of version 5 do.
func (p *Place) insert(t *testing.T, one task.Task) {
	t.Helper()
	document, err := task.Encode(one)
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
