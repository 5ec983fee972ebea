package approval_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

var writeStored = flag.Bool("fixture", false, "write testdata/stored.json as this program stores calls")

const (
	storedFile = "testdata/stored.json"
	storedKeys = "k1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// A storedTask is a stored task, with the message that its program would have sent for it. The
// time in a synctest bubble is the same in every run.
type storedTask struct {
	Name     string          `json:"name"`
	Sealed   bool            `json:"sealed"`
	Document json.RawMessage `json:"document"`
	Sent     string          `json:"sent"`
}

// storedCalls are the messages of the tasks in the fixture.
var storedCalls = map[string]string{
	"plain":   `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"}}}`,
	"escaped": " {\"id\" : \"x\",\"jsonrpc\":\"2.0\",\"method\":\"tools\\/call\", \"params\":{ \"arguments\" : {\"p\\u0061th\":\"\\u00e9 \\ud83d\\ude00\",\"n\":1.0e0},\"name\":\"d\\u0065lete\"}}\n",
	"carries": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/b"},"force":true,"task":{"ttl":60000},` +
		`"_meta":{"progressToken":1,"tenant":"b","claudecode/toolUseId":"1"}}}`,
	"modern": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}},"roots":{}},"traceparent":"00-1-2-01"}}}`,
	"resource": `{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"file:///a","name":"n"}}`,
	"batch": `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}, {"jsonrpc":"2.0","method":"notifications/x"},` +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b","arguments":{}}}]`,
}

// Calls stored by an earlier program run as that program would have run them. Calls that it was
// running are not run again.
func TestStoredCallsRun(t *testing.T) {
	if *writeStored {
		writeStoredCalls(t)
	}
	text, err := os.ReadFile(storedFile)
	if err != nil {
		t.Fatal(err)
	}
	var all []storedTask
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		t.Run(one.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStored(t, one) })
		})
	}
}

func runStored(t *testing.T, one storedTask) {
	inner := memstore.New(memstore.Options{})
	t.Cleanup(func() { inner.Close() })
	stored, err := storekit.Decode(one.Document)
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Create(t.Context(), stored, task.Limits{}); err != nil {
		t.Fatal(err)
	}
	o := branch(t, storedIn(t, inner, one.Sealed), nil)
	send := &recorder{}
	state := stored.State
	if state == task.InputRequired {
		o.approve(t, stored.ID)
		state = task.Approved
	}
	if _, err := o.Contact(t.Context(), mine(stored), send); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	want, ended := []string{one.Sent}, task.Completed
	if state == task.Executing {
		want, ended = nil, task.Failed
		time.Sleep(time.Hour)
		defer o.runHousekeeping(t)()
		synctest.Wait()
	}
	if diff := cmp.Diff(want, send.sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if got := o.now(t, stored.ID); got.State != ended {
		t.Errorf("state %s, want %s", got.State, ended)
	}
}

// storedIn returns the store as a program sees it.
func storedIn(t *testing.T, inner gatestore.Store, sealed bool) gatestore.Store {
	if !sealed {
		return inner
	}
	keys, err := sealedstore.ParseKeys(storedKeys)
	if err != nil {
		t.Fatal(err)
	}
	return sealedstore.New(inner, keys)
}

// A recorder records sent messages.
type recorder struct {
	plain

	sent []string
}

func (r *recorder) Call(_ context.Context, _ task.Task, m approval.UpstreamRequest) (approval.Outcome, error) {
	r.sent = append(r.sent, string(m.Text))
	return answer(`{"content":[]}`), nil
}

// writeStoredCalls writes the fixture.
func writeStoredCalls(t *testing.T) {
	var all []storedTask
	for name, text := range storedCalls {
		for _, state := range []task.State{task.InputRequired, task.Approved, task.Executing} {
			for _, sealed := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					inner := memstore.New(memstore.Options{})
					defer inner.Close()
					o := branch(t, storedIn(t, inner, sealed), nil)
					c := call("ann", "")
					c.Message = []byte(text)
					if name == "batch" {
						c.InBatch = make([]approval.Tool, 3)
					}
					held := o.hold(t, c)
					if state != task.InputRequired {
						held = o.approve(t, held.ID)
					}
					if state == task.Executing {
						updater := lifecycle.Updater{Store: o.store}
						var err error
						claim := lifecycle.Claim{By: "gate", Executor: "gone", LeaseUntil: time.Now().Add(time.Minute)}
						if held, err = updater.Advance(t.Context(), mine(held), claim, time.Now()); err != nil {
							t.Fatal(err)
						}
					}
					one := storedTask{Name: name + " " + string(state), Sealed: sealed, Sent: outgoingText(t, held)}
					if sealed {
						one.Name += " sealed"
					}
					raw, err := inner.Get(t.Context(), mine(held))
					if err == nil {
						one.Document, err = storekit.Encode(raw)
					}
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, one)
				})
			}
		}
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile(storedFile, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func outgoingText(t *testing.T, held task.Task) string {
	m, err := approval.NewUpstreamRequest(held)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Text)
}
