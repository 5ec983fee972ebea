package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A bench is a server whose clock stands still.
type bench struct {
	*mcptask.Server

	t testing.TB
}

func newBench(t testing.TB) bench {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	now := func() time.Time { return changed }
	return bench{&mcptask.Server{Store: store, Now: now}, t}
}

// keep puts tk into the store.
func (b bench) keep(tk task.Task) {
	b.t.Helper()
	if err := b.Store.Create(b.t.Context(), tk, task.Limits{}); err != nil {
		b.t.Fatal(err)
	}
}

// start creates a task of alice.
func (b bench) start() task.Ref {
	b.t.Helper()
	tk, err := b.Start(b.t.Context(), task.Draft{
		Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "sum", Message: "{}"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return task.OwnedBy("alice").Ref(tk.ID)
}

// ask sends a request of alice and returns the result, or the error in the form for the client.
func (b bench) ask(d mcptask.Dialect, method, params string) string {
	b.t.Helper()
	return b.askAs("alice", d, method, params)
}

func (b bench) askAs(owner string, d mcptask.Dialect, method, params string) string {
	b.t.Helper()
	if d.Era == mcptask.V2026 {
		params = declaring(b.t, params)
	}
	result, err := b.Handle(b.t.Context(), mcptask.Request{Dialect: d, Owner: owner, Method: method, Params: json.RawMessage(params)})
	if err != nil {
		return told(d, err)
	}
	return string(result)
}

func told(d mcptask.Dialect, err error) string {
	e := d.Error(err)
	return fmt.Sprintf("%d %s %s", e.Code, e.Message, e.Data)
}

// declaring returns params that declare the extension. If params have a _meta, it replaces the
// text $tasks there.
func declaring(t testing.TB, params string) string {
	t.Helper()
	capability := `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	if strings.Contains(params, "$tasks") {
		return strings.Replace(params, "$tasks", capability, 1)
	}
	var o schema.Object
	if err := jsonv2.Unmarshal([]byte(params), &o); err != nil {
		t.Fatal(err)
	}
	return string(mustMarshal(t, o.With("_meta", json.RawMessage(`{`+capability+`}`))))
}

const byID = `{"taskId":"` + id + `"}`

func TestServerGetReturnsStatus(t *testing.T) {
	s := loadSchemas(t)
	for _, situation := range situations(t) {
		t.Run(situation.name, func(t *testing.T) {
			b := newBench(t)
			b.keep(situation.task)
			s.mustMatch(t, schemaLegacy, "GetTaskResult", []byte(b.ask(legacy, mcpname.TasksGet, byID)))
			s.mustMatch(t, schemaTasks, "GetTaskResult", []byte(b.ask(modern, mcpname.TasksGet, byID)))
		})
	}
}

// The poll interval follows from the age of the task, so that the client of a tool that takes a
// second does not wait half a minute.
func TestPollIntervalFollowsAge(t *testing.T) {
	b := newBench(t)
	made := changed
	for _, tt := range []struct{ age, want time.Duration }{
		{0, 500 * time.Millisecond},
		{4 * time.Second, 500 * time.Millisecond},
		{time.Minute, 6 * time.Second},
		{30 * time.Minute, 30 * time.Second},
	} {
		b.Now = func() time.Time { return made }
		ref := b.start()
		b.Now = func() time.Time { return made.Add(tt.age) }
		got := jsonrpc.Value{Bytes: []byte(b.ask(legacy, mcpname.TasksGet, `{"taskId":"`+string(ref.ID)+`"}`))}.Member("pollInterval")
		if ms, _ := got.Int(); time.Duration(ms)*time.Millisecond != tt.want {
			t.Errorf("poll interval %s at the age of %v; want %v", got.Bytes, tt.age, tt.want)
		}
	}
}

func TestServerReturnsResultOfEndedTask(t *testing.T) {
	const related = `"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}`
	answered := func(kind task.ResultKind, payload string) task.Task {
		return newTask(t, lifecycle.Admit{By: "gate"}, claim, lifecycle.Complete{By: "gate", Result: inline(kind, payload)})
	}
	rpc := inline(task.ResultRPCError, rpcError)
	for _, tt := range []struct {
		name string
		task task.Task
		want string
	}{
		{"EC-TASK-004 completed", answered(task.ResultOK, `{"content":[],"n":1.50}`), `{"content":[],"n":1.50,"_meta":{` + related + `}}`},
		{"a tool's error", answered(task.ResultToolError, `{"isError":true}`), `{"isError":true,"_meta":{` + related + `}}`},
		{"empty result", answered(task.ResultOK, `{}`), `{"_meta":{` + related + `}}`},
		{
			"result with a _meta", answered(task.ResultOK, `{"_meta":{"a":1.0},"content":[]}`),
			`{"_meta":{"a":1.0,` + related + `},"content":[]}`,
		},
		{
			"result of the upstream's own task", answered(task.ResultOK, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up"}}}`),
			`{"_meta":{` + related + `}}`,
		},
		{
			"EC-TASK-006 upstream error", newTask(t, lifecycle.Admit{By: "gate"}, claim, lifecycle.Fail{
				By: "gate", Failure: task.Failure{Stage: lifecycle.StageUpstreamError, Ran: task.RanYes}, Result: &rpc,
			}),
			`-32050 no such file {"big":12345678901234567890}`,
		},
		{
			"EC-TASK-006 rejected", newTask(t, submit, lifecycle.Reject{By: "bob"}),
			`{"content":[{"type":"text","text":"Rejected by an approver. The tool did not run."}],"isError":true,"_meta":{` + related +
				`,"thoughtgate/error":{"code":-32007,"error_type":"approval_rejected"}}}`,
		},
		{
			"cancelled", newTask(t, submit, lifecycle.Cancel{By: "alice"}),
			`{"content":[{"type":"text","text":"Cancelled by the requestor. The tool did not run."}],"isError":true,"_meta":{` + related +
				`,"thoughtgate/error":{"code":-32602,"error_type":"task_cancelled"}}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.keep(tt.task)
			// The TypeScript client sends a stray task member, which must be ignored, like the
			// _meta.
			params := `{"taskId":"` + id + `","task":{},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}}}`
			for range 2 { // the result can be requested again
				if diff := cmp.Diff(tt.want, b.ask(legacy, mcpname.TasksResult, params)); diff != "" {
					t.Errorf("tasks/result (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// EC-TASK-005: tasks/result waits for the end of the task.
func TestResultWaitsForEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.start()
		results := make(chan string, 1)
		go func() { results <- b.ask(legacy, mcpname.TasksResult, `{"taskId":"`+string(ref.ID)+`"}`) }()
		synctest.Wait()
		select {
		case early := <-results:
			t.Fatalf("tasks/result of a pending task: %s", early)
		default:
		}

		_, err := b.Run(t.Context(), ref, func(context.Context) ([]byte, error) {
			return json.RawMessage(`{"content":[]}`), nil
		})

		if got := <-results; err != nil || !strings.HasPrefix(got, `{"content":[],"_meta":{`) {
			t.Errorf("tasks/result: %s, %v", got, err)
		}
	})
}

// EC-TASK-005: tasks/result waits at most for the configured time.
func TestResultWaitHasTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := b.Handle(ctx, mcptask.Request{
			Owner: "alice", Method: mcpname.TasksResult, Params: json.RawMessage(`{"taskId":"` + string(ref.ID) + `"}`),
		})
		if !errors.Is(err, task.ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
	})
}

// A result that is larger than a chunk is returned whole, in both eras.
func TestLargeResultIsWhole(t *testing.T) {
	b := newBench(t)
	ref := b.start()
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 3*task.ChunkSize) + `"}]}`
	done, err := b.Run(t.Context(), ref, func(context.Context) ([]byte, error) { return json.RawMessage(large), nil })
	if err != nil || done.Result.Chunks < 3 {
		t.Fatalf("%+v, %v", done.Result, err)
	}
	params := `{"taskId":"` + string(ref.ID) + `"}`
	want := strings.TrimSuffix(large, "}")
	if got := b.ask(legacy, mcpname.TasksResult, params); !strings.HasPrefix(got, want) {
		t.Errorf("legacy result of %d bytes; want %d", len(got), len(large))
	}
	result := jsonrpc.Value{Bytes: []byte(b.ask(modern, mcpname.TasksGet, params))}.Member("result")
	if string(result.Bytes) != `{"resultType":"complete",`+large[1:] {
		t.Errorf("modern result of %d bytes; want %d", len(result.Bytes), len(large))
	}
}

// EC-TASK-010 and EC-TASK-011: a client lists its own tasks, newest first, in pages.
func TestServerListsOwnTasksInPages(t *testing.T) {
	s := loadSchemas(t)
	b := newBench(t)
	want := map[string]bool{}
	for i := range 50 {
		d := task.Draft{ID: task.NewID(time.Now()), Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "sum", Message: "{}"}}
		if i%2 == 1 {
			d.Owner = "mallory"
		} else {
			want[string(d.ID)] = true
		}
		tk, err := task.New(d, created.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Store.Create(t.Context(), tk, task.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	params, last, pages := "", schema.Timestamp("9"), 0
	for ; params != "end"; pages++ {
		text := b.ask(legacy, mcpname.TasksList, params)
		s.mustMatch(t, schemaLegacy, "ListTasksResult", []byte(text))
		var page schema.ListResult2025
		if err := jsonv2.Unmarshal([]byte(text), &page); err != nil || pages > 25 {
			t.Fatalf("page %d: %s, %v", pages, text, err)
		}
		for _, tk := range page.Tasks {
			if !want[tk.TaskID] || tk.CreatedAt > last {
				t.Errorf("%s at %s after %s", tk.TaskID, tk.CreatedAt, last)
			}
			delete(want, tk.TaskID)
			last = tk.CreatedAt
		}
		if params = `{"cursor":"` + page.NextCursor + `"}`; page.NextCursor == "" {
			params = "end"
		}
	}
	if len(want) > 0 || pages < 2 {
		t.Errorf("%d pages without %v", pages, want)
	}
	const bad = `-32602 Invalid cursor {"error_type":"invalid_cursor","hint":"start again with the first page"}`
	if diff := cmp.Diff(bad, b.ask(legacy, mcpname.TasksList, `{"cursor":"c1"}`)); diff != "" {
		t.Errorf("bad cursor (-want +got):\n%s", diff)
	}
}

// EC-TASK-007 and EC-TASK-008: cancelling ends a task at once. Cancelling an ended task is an
// error for a legacy client, but not for a modern one.
func TestServerCancelEndsTask(t *testing.T) {
	b := newBench(t)
	b.keep(newTask(t, submit))
	got := jsonrpc.Value{Bytes: []byte(b.ask(legacy, mcpname.TasksCancel, byID))}
	if status, _ := got.Member("status").Text(); status != "cancelled" {
		t.Errorf("legacy cancel: %s", got.Bytes)
	}
	const ended = `-32602 Task has already ended {"error_type":"task_already_terminal","hint":"read the outcome"}`
	if diff := cmp.Diff(ended, b.ask(legacy, mcpname.TasksCancel, byID)); diff != "" {
		t.Errorf("legacy cancel of a terminal task (-want +got):\n%s", diff)
	}
	if got := b.ask(modern, mcpname.TasksCancel, byID); got != `{"resultType":"complete"}` {
		t.Errorf("modern cancel of a terminal task: %s", got)
	}

	b = newBench(t)
	b.keep(newTask(t, submit))
	if got := b.ask(modern, mcpname.TasksCancel, byID); got != `{"resultType":"complete"}` {
		t.Errorf("modern cancel: %s", got)
	}
	tk, err := b.Store.Get(t.Context(), task.AnyOwner().Ref(id))
	if err != nil || tk.State != task.Cancelled || tk.Transitions[len(tk.Transitions)-1].By != "alice" {
		t.Errorf("after a modern cancel: %+v, %v", tk, err)
	}
}

// EC-TASK-003: every method returns the same answer for a foreign task as for a missing one.
func TestForeignTaskLooksMissing(t *testing.T) {
	const want = `-32602 Task not found {"error_type":"task_not_found"}`
	b := newBench(t)
	b.keep(newTask(t, submit))
	for _, tt := range []struct {
		d      mcptask.Dialect
		method string
	}{
		{legacy, mcpname.TasksGet},
		{legacy, mcpname.TasksCancel},
		{legacy, mcpname.TasksResult},
		{modern, mcpname.TasksGet},
		{modern, mcpname.TasksCancel},
		{modern, mcpname.TasksUpdate},
	} {
		foreign := b.askAs("mallory", tt.d, tt.method, byID)
		missing := b.askAs("mallory", tt.d, tt.method, `{"taskId":"tg_00000000-0000-4000-8000-000000000000"}`)
		if foreign != want || missing != want {
			t.Errorf("%s %s: foreign %s, missing %s", eraName(tt.d), tt.method, foreign, missing)
		}
	}
	if got := b.askAs("mallory", legacy, mcpname.TasksList, ""); got != `{"tasks":[]}` {
		t.Errorf("list: %s", got)
	}
}

func TestServerRefusesInvalidRequests(t *testing.T) {
	const (
		noMethod   = `-32601 Method not found {"error_type":"method_not_found"}`
		badParams  = `-32602 Invalid params {"error_type":"invalid_params"}`
		noID       = `-32602 taskId is missing {"error_type":"invalid_params"}`
		capability = `-32021 Missing required client capability {"error_type":"missing_client_capability",` +
			`"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	)
	b := newBench(t)
	b.keep(newTask(t, submit))
	for _, tt := range []struct {
		d                    mcptask.Dialect
		method, params, want string
	}{
		{legacy, mcpname.TasksUpdate, byID, noMethod},
		{modern, mcpname.TasksResult, byID, noMethod},
		{modern, mcpname.TasksList, `{}`, noMethod},
		{legacy, "tools/call", byID, noMethod},
		{legacy, mcpname.TasksGet, ``, noID},
		{legacy, mcpname.TasksGet, `{}`, noID},
		{legacy, mcpname.TasksGet, `{"taskId":5}`, badParams},
		{legacy, mcpname.TasksGet, `{"taskId":"a","taskId":"b"}`, badParams},
		{legacy, mcpname.TasksGet, `{"TASKID":"` + id + `"}`, noID},
		{legacy, mcpname.TasksGet, `{"taskId":"a","_meta":x}`, badParams},
		{legacy, mcpname.TasksList, `[]`, badParams},
		{modern, mcpname.TasksUpdate, `{"inputResponses":{},"_meta":{$tasks}}`, noID},
		{modern, mcpname.TasksUpdate, `{"taskId":"a","inputResponses":[],"_meta":{$tasks}}`, badParams},
		{modern, mcpname.TasksGet, `{"taskId":"` + id + `","_meta":[{$tasks}]}`, badParams},
	} {
		if diff := cmp.Diff(tt.want, b.ask(tt.d, tt.method, tt.params)); diff != "" {
			t.Errorf("%s %s %s (-want +got):\n%s", eraName(tt.d), tt.method, tt.params, diff)
		}
	}
	for _, method := range []string{mcpname.TasksGet, mcpname.TasksUpdate, mcpname.TasksCancel} {
		_, err := b.Handle(t.Context(), mcptask.Request{Dialect: modern, Owner: "alice", Method: method, Params: json.RawMessage(byID)})
		if diff := cmp.Diff(capability, told(modern, err)); diff != "" {
			t.Errorf("%s without the extension (-want +got):\n%s", method, diff)
		}
	}
	b.Store.(io.Closer).Close()
	if got := b.ask(legacy, mcpname.TasksGet, byID); !strings.HasPrefix(got, `-32013 Shutting down, try again {"error_type":"shutting_down"`) {
		t.Errorf("closed store: %s", got)
	}
}

// HNDL-01: a client sets its variables with tasks/update and reads all variables with
// tasks/get. It cannot set the variables of the server.
func TestClientCannotSetServerVariables(t *testing.T) {
	b := newBench(t)
	b.keep(newTask(t, submit))
	b.Variables = task.VariableLimits{Value: 20}
	write := func(variables string) string {
		return b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+id+`","inputResponses":{},"_meta":{$tasks,"other":1,`+variables+`}}`)
	}
	const ack = `{"resultType":"complete"}`
	if got := write(`"client.reason":"tidy","client.n":1.0`); got != ack {
		t.Errorf("update: %s", got)
	}
	if got := write(`"client.n":null`); got != ack {
		t.Errorf("delete: %s", got)
	}
	if got := write(`"client.x":1,"server.approval":{"state":"approved"}`); !strings.Contains(got, "variable_ownership") {
		t.Errorf("foreign prefix: %s", got)
	}
	if got := write(`"client.x":"` + strings.Repeat("x", 30) + `"`); !strings.Contains(got, "variable_size_exceeded") {
		t.Errorf("too large: %s", got)
	}
	const want = `{"client.reason":"tidy","server.approval":{"state":"pending","workflow":"ops","expiresAt":"2025-11-25T11:30:00Z"}}`
	for _, d := range []mcptask.Dialect{legacy, modern} {
		meta := jsonrpc.Value{Bytes: []byte(b.ask(d, mcpname.TasksGet, byID))}.Member("_meta")
		if diff := cmp.Diff(want, string(meta.Bytes)); diff != "" {
			t.Errorf("%s variables (-want +got):\n%s", eraName(d), diff)
		}
	}
	b.ask(modern, mcpname.TasksCancel, byID)
	if got := write(`"client.reason":"late"`); got != ack {
		t.Errorf("update of a terminal task: %s", got)
	}
}

// Only answers to open questions reach the tool.
func TestOnlyAnswersToOpenQuestionsReachTool(t *testing.T) {
	b := newBench(t)
	b.keep(newTask(t, submit, approve, claim, lifecycle.Progress{
		By: "gate", UpstreamTask: "up", InputRequests: json.RawMessage(`{"in-1":{"method":"roots/list"},"in-2":{"method":"roots/list"}}`),
	}))
	answer := func(responses string) string {
		return b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+id+`","inputResponses":`+responses+`}`)
	}
	const ack = `{"resultType":"complete"}`
	if got := answer(`{"in-1":{}}`); got != ack {
		t.Errorf("without a question: %s", got)
	}
	var heard []string
	b.Input = func(_ context.Context, tk task.Task, responses schema.Object) error {
		heard = append(heard, string(tk.ID)+string(mustMarshal(t, responses)))
		return nil
	}
	for _, responses := range []string{`{"in-1":{"roots":[1.0]},"in-9":{}}`, `{"in-9":{}}`, `{}`, `null`} {
		if got := answer(responses); got != ack {
			t.Errorf("%s: %s", responses, got)
		}
	}
	if diff := cmp.Diff([]string{id + `{"in-1":{"roots":[1.0]}}`}, heard); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	b.Input = func(context.Context, task.Task, schema.Object) error {
		return errors.New("upstream has closed the connection")
	}
	if got := answer(`{"in-1":{}}`); !strings.HasPrefix(got, "-32603 Internal error") {
		t.Errorf("failed input: %s", got)
	}
}

func BenchmarkServerGet(b *testing.B) {
	for _, d := range []mcptask.Dialect{legacy, modern} {
		b.Run(eraName(d), func(b *testing.B) {
			server := newBench(b)
			server.keep(newTask(b, submit, approve, claim, complete))
			r := mcptask.Request{Dialect: d, Owner: "alice", Method: mcpname.TasksGet, Params: json.RawMessage(declaring(b, byID))}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.Handle(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
