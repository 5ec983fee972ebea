package approval_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// carrying is a call with members besides its arguments.
const carrying = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"},"force":true,"_meta":{"example.com/as":"root","progressToken":1}}}`

// A task of a version that showed approvers only the arguments has a digest of the arguments
// alone. It still runs, without the other members. An identical call still attaches to it.
func TestTaskOfEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		now := time.Now()
		stored, err := task.New(task.Draft{
			ID: task.NewID(time.Now()), Owner: "ann", Workflow: "ops", TTL: time.Hour, PollInterval: time.Second,
			Call: task.Call{
				Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: `{"path":"/a"}`, Message: carrying,
			},
			Verdict: gatetask.Verdict{Reason: "rules[1]", Snapshot: "s1", Facts: `{"Principal":{"ID":"ann"}}`},
		}, now)
		if err != nil {
			t.Fatal(err)
		}
		if stored, err = lifecycle.Apply(stored, lifecycle.Submit{By: "gate", Quorum: 1, Deadline: now.Add(time.Hour)}, now); err != nil {
			t.Fatal(err)
		}
		if err := o.store.Create(t.Context(), stored, task.Limits{}); err != nil {
			t.Fatal(err)
		}
		if !o.IsIdentical(stored, parsed(t, carrying)) {
			t.Error("IsIdentical = false for the same call")
		}
		if o.IsIdentical(stored, parsed(t, strings.Replace(carrying, "/a", "/b", 1))) {
			t.Error("IsIdentical = true for another call")
		}
		o.approve(t, stored.ID)
		if _, err := o.Contact(t.Context(), mine(stored), o.upstream.send); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if runs := o.upstream.entries(); len(runs) != 1 {
			t.Fatalf("ran %d times", len(runs))
		}
		message, err := approval.NewUpstreamRequest(stored)
		if err != nil || strings.Contains(string(message.Text), "force") || strings.Contains(string(message.Text), "root") {
			t.Errorf("sent as %s, %v; want only the shown members", message.Text, err)
		}
	})
}

// A stored call does not run if its other members differ from those that its approvers saw.
func TestTamperedMembersDoNotRun(t *testing.T) {
	for name, change := range map[string]func(*task.Task){
		"removed": func(t *task.Task) { t.Call.Also = "" },
		"changed": func(t *task.Task) { t.Call.Also = `{"params":{"force":false}}` },
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
				after, _ := o.Contact(t.Context(), mine(held), o.upstream.send)
				synctest.Wait()
				if runs := o.upstream.entries(); len(runs) != 0 {
					t.Errorf("it ran: %v", runs)
				}
				if after.Failure == nil || after.Failure.Stage != lifecycle.StageArgumentDrift {
					t.Errorf("failure %+v; want argument_drift", after.Failure)
				}
			})
		})
	}
}

// Calls that differ in members besides the arguments have different digests, so they are not
// identical.
func TestDigestCoversOtherMembers(t *testing.T) {
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
				t.Errorf("same digest for\n%s\n%s", same, message)
			}
			digests[held.Digest] = message
			if d, err := held.Call.Digest(); err != nil || d != held.Digest {
				t.Errorf("digest %v, %v; want %v", d, err, held.Digest)
			}
		}
	})
}

// A revocable is a sender whose client may lose its access.
type revocable struct {
	approval.Sender

	revoked bool
}

func (r *revocable) Revoked() bool { return r.revoked }

// An owner that polled recently and was revoked since does not count as present.
func TestRevokedOwnerStartsNoCall(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, nil)
			held := o.hold(t, call("ann", "/a"))
			sender := &revocable{Sender: o.upstream.send}
			if _, err := o.Contact(t.Context(), mine(held), sender); err != nil {
				t.Fatal(err)
			}
			sender.revoked = revoked
			o.approve(t, held.ID)
			synctest.Wait()
			if ran := len(o.upstream.entries()) > 0; ran == revoked {
				t.Errorf("revoked %v, ran %v", revoked, ran)
			}
		})
	}
}

// parsed returns the request in text.
func parsed(t *testing.T, text string) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.ParseMessage([]byte(text), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
