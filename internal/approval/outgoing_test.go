package approval_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// carrying is a call that carries more than its arguments.
const carrying = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"},"force":true,"_meta":{"example.com/as":"root","progressToken":1}}}`

// A task of a version that showed only the arguments has a digest of these alone.
// It still runs, without what nobody was shown, and the same call still joins it
// with the state that its client was given.
func TestTaskOfEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		now := time.Now()
		stored, err := task.New(task.Draft{
			ID: task.NewID(time.Now()), Owner: "ann", Workflow: "ops", TTL: time.Hour, PollInterval: time.Second,
			Call: task.Call{
				Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: `{"path":"/a"}`, Message: carrying,
			},
			Verdict: task.Verdict{Reason: "rules[1]", Snapshot: "s1", Facts: `{"Principal":{"ID":"ann"}}`},
		}, now)
		if err != nil {
			t.Fatal(err)
		}
		if stored, err = stored.Apply(task.Submit{By: "gate", Quorum: 1, Deadline: now.Add(time.Hour)}, now); err != nil {
			t.Fatal(err)
		}
		if err := o.store.Create(t.Context(), stored, task.Limits{}); err != nil {
			t.Fatal(err)
		}
		if !o.Same(stored, []byte(carrying)) {
			t.Error("the same call is taken for another")
		}
		if o.Same(stored, []byte(strings.Replace(carrying, "/a", "/b", 1))) {
			t.Error("another call is taken for the same")
		}
		o.approve(t, stored.ID)
		if _, err := o.Contact(t.Context(), mine(stored), o.ledger.send); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if runs := o.ledger.entries(); len(runs) != 1 {
			t.Fatalf("it ran %d times", len(runs))
		}
		message, err := approval.Outgoing(stored)
		if err != nil || strings.Contains(string(message), "force") || strings.Contains(string(message), "root") {
			t.Errorf("it is sent as %s, %v; want only what was shown", message, err)
		}
	})
}

// A stored call whose approvers were shown something else than would be sent is
// not run.
func TestAlsoChangedInStore(t *testing.T) {
	for name, change := range map[string]func(*task.Task){
		"taken out":  func(t *task.Task) { t.Call.Also = "" },
		"made other": func(t *task.Task) { t.Call.Also = `{"params":{"force":false}}` },
		"in the message": func(t *task.Task) {
			t.Call.Message = strings.Replace(t.Call.Message, `"force":true`, `"force":false`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				c := call("ann", "/a")
				c.Message = []byte(carrying)
				held := o.hold(t, c)
				if held.Call.Also != `{"params":{"force":true},"_meta":{"example.com/as":"root"}}` {
					t.Fatalf("also sent: %s", held.Call.Also)
				}
				changed := o.approve(t, held.ID).Clone()
				change(&changed)
				changed.Version++
				if err := o.store.Swap(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
				after, _ := o.Contact(t.Context(), mine(held), o.ledger.send)
				synctest.Wait()
				if runs := o.ledger.entries(); len(runs) != 0 {
					t.Errorf("it ran: %v", runs)
				}
				if after.Failure == nil || after.Failure.Stage != task.StageArgumentDrift {
					t.Errorf("failure %+v; want argument_drift", after.Failure)
				}
			})
		})
	}
}

// Calls that differ only in what is sent besides have different digests, so that
// one is never taken for the other.
func TestAlsoIsPartOfTheDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		digests := make(map[task.Digest]string)
		for _, message := range []string{
			carrying, strings.Replace(carrying, `"force":true`, `"force":false`, 1), strings.Replace(carrying, "root", "ann", 1),
		} {
			c := call("ann", "/a")
			c.Message = []byte(message)
			held := o.hold(t, c)
			if same := digests[held.Digest]; same != "" {
				t.Errorf("one digest for\n%s\n%s", same, message)
			}
			digests[held.Digest] = message
			if d, err := held.Call.Digest(); err != nil || d != held.Digest {
				t.Errorf("the digest is %v, %v; want %v", d, err, held.Digest)
			}
		}
	})
}

// A revocable is a sender whose client may be revoked.
type revocable struct {
	approval.Sender

	revoked bool
}

func (r *revocable) Revoked() bool { return r.revoked }

// An owner who asked a moment ago, and has been revoked since, is not there for
// the call to run.
func TestRevokedOwnerIsGone(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, nil)
			held := o.hold(t, call("ann", "/a"))
			sender := &revocable{Sender: o.ledger.send}
			if _, err := o.Contact(t.Context(), mine(held), sender); err != nil {
				t.Fatal(err)
			}
			sender.revoked = revoked
			o.approve(t, held.ID)
			synctest.Wait()
			if ran := len(o.ledger.entries()) > 0; ran == revoked {
				t.Errorf("revoked %v, ran %v", revoked, ran)
			}
		})
	}
}
