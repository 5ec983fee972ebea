package mcptask_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

const id = "tg_786512e2-9e0d-44bd-8f29-789f320fe840"

var (
	created = time.Date(2025, 11, 25, 10, 30, 0, 0, time.UTC)
	changed = created.Add(10 * time.Minute)
)

func millis(n int64) *schema.Millis { return new(schema.Millis(n)) }

func legacyTask() schema.Task2025 {
	return schema.Task2025{
		TaskID: id, Status: schema.Working, StatusMessage: "In progress",
		CreatedAt: schema.At(created), LastUpdatedAt: schema.At(changed),
		TTL: millis(60000), PollInterval: millis(5000),
	}
}

func modernTask(status schema.Status) schema.Task2026 {
	return schema.Task2026{
		TaskID: id, Status: status,
		CreatedAt: schema.At(created), LastUpdatedAt: schema.At(changed),
		TTL: millis(60000), PollInterval: millis(5000),
	}
}

// forms lists every message type with the definition that it must satisfy and its expected
// text: TYPE-01, TYPE-04 to TYPE-08, TYPE-10.
func forms() []form {
	const (
		legacyText = `"taskId":"` + id + `","status":"working","statusMessage":"In progress","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","ttl":60000,"pollInterval":5000`
		times      = `"createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","ttlMs":60000,"pollIntervalMs":5000`
	)
	modernText := func(s string) string { return `"taskId":"` + id + `","status":"` + s + `",` + times }
	meta := schema.Object{{Name: "server.approval", Value: json.RawMessage(`{"state":"pending"}`)}}
	sub := schema.WithSubscriptionID(nil, json.RawMessage(`"l1"`))
	return []form{
		{
			"TYPE-01 task", schemaLegacy, "Task", legacyTask(), `{` + legacyText + `}`,
		},
		{
			"TYPE-01 create result is nested", schemaLegacy, "CreateTaskResult",
			schema.CreateResult2025{Task: legacyTask()},
			`{"task":{` + legacyText + `}}`,
		},
		{
			"TYPE-10 create result with an immediate response", schemaLegacy, "CreateTaskResult",
			schema.CreateResult2025{Task: legacyTask(), Meta: schema.WithImmediateResponse(nil, "Wait.")},
			`{"task":{` + legacyText + `},"_meta":{"io.modelcontextprotocol/model-immediate-response":"Wait."}}`,
		},
		{
			"TYPE-01 get result is flat", schemaLegacy, "GetTaskResult",
			schema.TaskResult2025{Task2025: legacyTask(), Meta: meta},
			`{` + legacyText + `,"_meta":{"server.approval":{"state":"pending"}}}`,
		},
		{
			"TYPE-01 cancel result is flat", schemaLegacy, "CancelTaskResult",
			schema.TaskResult2025{Task2025: legacyTask()},
			`{` + legacyText + `}`,
		},
		{
			"TYPE-01 list page", schemaLegacy, "ListTasksResult",
			schema.ListResult2025{Tasks: []schema.Task2025{legacyTask()}, NextCursor: "c2"},
			`{"tasks":[{` + legacyText + `}],"nextCursor":"c2"}`,
		},
		{
			"TYPE-01 empty list page", schemaLegacy, "ListTasksResult", schema.ListResult2025{}, `{"tasks":[]}`,
		},
		{
			"TYPE-04 related task", schemaLegacy, "GetTaskPayloadResult",
			schema.Object{{Name: "_meta", Value: json.RawMessage(`{"io.modelcontextprotocol/related-task":{"taskId":"a"}}`)}},
			`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a"}}}`,
		},
		{
			"TYPE-06 augmentation", schemaLegacy, "TaskMetadata", schema.Augmentation{TTL: millis(60000)}, `{"ttl":60000}`,
		},
		{
			"TYPE-06 augmentation without ttl", schemaLegacy, "TaskMetadata", schema.Augmentation{}, `{}`,
		},
		{
			"TYPE-06 list params", schemaLegacy, "PaginatedRequestParams", schema.ListParams{Cursor: "c1"}, `{"cursor":"c1"}`,
		},
		{
			"TYPE-07 status notification", schemaLegacy, "TaskStatusNotification",
			schema.StatusNotification2025{
				JSONRPC: "2.0", Method: mcpname.NotifyTasksStatus,
				Params: schema.TaskResult2025{Task2025: legacyTask()},
			},
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{` + legacyText + `}}`,
		},
		{
			"TYPE-08 tool execution", schemaLegacy, "ToolExecution",
			schema.ToolExecution{TaskSupport: schema.SupportOptional},
			`{"taskSupport":"optional"}`,
		},
		{
			"TYPE-08 tool execution without a word", schemaLegacy, "ToolExecution", schema.ToolExecution{}, `{}`,
		},
		{
			"modern task", schemaTasks, "WorkingTask", modernTask("working"), `{` + modernText("working") + `}`,
		},
		{
			"modern create result is flat", schemaTasks, "CreateTaskResult",
			schema.CreateResult2026{ResultType: schema.TaskResult, Task2026: modernTask("working")},
			`{"resultType":"task",` + modernText("working") + `}`,
		},
		{
			"modern get, completed", schemaTasks, "GetTaskResult",
			schema.GetResult2026{ResultType: schema.Complete, DetailedTask: schema.DetailedTask{
				Task2026: modernTask("completed"), Result: json.RawMessage(`{"content":[]}`),
			}},
			`{"resultType":"complete",` + modernText("completed") + `,"result":{"content":[]}}`,
		},
		{
			"modern get, failed", schemaTasks, "GetTaskResult",
			schema.GetResult2026{ResultType: schema.Complete, DetailedTask: schema.DetailedTask{
				Task2026: modernTask("failed"), Error: json.RawMessage(`{"code":-1,"message":"m"}`),
			}},
			`{"resultType":"complete",` + modernText("failed") + `,"error":{"code":-1,"message":"m"}}`,
		},
		{
			"modern get, input required", schemaTasks, "GetTaskResult",
			schema.GetResult2026{ResultType: schema.Complete, DetailedTask: schema.DetailedTask{
				Task2026:      modernTask("input_required"),
				InputRequests: schema.Object{{Name: "k", Value: json.RawMessage(`{"method":"roots/list"}`)}},
			}, Meta: meta},
			`{"resultType":"complete",` + modernText("input_required") +
				`,"inputRequests":{"k":{"method":"roots/list"}},"_meta":{"server.approval":{"state":"pending"}}}`,
		},
		{
			"modern get, cancelled", schemaTasks, "CancelledTask",
			schema.DetailedTask{Task2026: modernTask("cancelled")},
			`{` + modernText("cancelled") + `}`,
		},
		{
			"modern cancel acknowledgement", schemaTasks, "CancelTaskResult",
			schema.Ack2026{ResultType: schema.Complete},
			`{"resultType":"complete"}`,
		},
		{
			"modern update acknowledgement", schemaTasks, "UpdateTaskResult",
			schema.Ack2026{ResultType: schema.Complete},
			`{"resultType":"complete"}`,
		},
		{
			"modern status notification", schemaTasks, "TaskStatusNotification",
			schema.StatusNotification2026{
				JSONRPC: "2.0", Method: mcpname.NotifyTasks,
				Params: schema.StatusParams2026{Meta: sub, DetailedTask: schema.DetailedTask{Task2026: modernTask("working")}},
			},
			`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l1"},` +
				modernText("working") + `}}`,
		},
		{
			"modern subscription", schemaTasks, "TaskSubscriptionNotifications",
			schema.Subscription{TaskIDs: []string{"a"}},
			`{"taskIds":["a"]}`,
		},
	}
}

type form struct {
	name, schema, definition string
	value                    any
	text                     string
}

func TestMessagesHaveExpectedText(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range forms() {
		t.Run(tt.name, func(t *testing.T) {
			got := mustMarshal(t, tt.value)
			if diff := cmp.Diff(tt.text, string(got)); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			s.mustMatch(t, tt.schema, tt.definition, got)
		})
	}
}

// TYPE-06: the params of the requests, inside their requests.
func TestParamsMatchSchema(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct {
		schema, definition, method string
		params                     any
	}{
		{schemaLegacy, "GetTaskRequest", mcpname.TasksGet, schema.TaskParams{TaskID: id}},
		{schemaLegacy, "GetTaskPayloadRequest", mcpname.TasksResult, schema.TaskParams{TaskID: id}},
		{schemaLegacy, "CancelTaskRequest", mcpname.TasksCancel, schema.TaskParams{TaskID: id}},
		{schemaLegacy, "ListTasksRequest", mcpname.TasksList, schema.ListParams{}},
		{schemaTasks, "GetTaskRequest", mcpname.TasksGet, schema.TaskParams{TaskID: id}},
		{schemaTasks, "CancelTaskRequest", mcpname.TasksCancel, schema.TaskParams{TaskID: id}},
		{schemaTasks, "UpdateTaskRequest", mcpname.TasksUpdate, schema.UpdateParams{TaskID: id}},
	} {
		t.Run(tt.definition, func(t *testing.T) {
			s.mustMatch(t, tt.schema, tt.definition, mustMarshal(t, schema.Object{
				{Name: "jsonrpc", Value: json.RawMessage(`"2.0"`)},
				{Name: "id", Value: json.RawMessage(`1`)},
				{Name: "method", Value: json.RawMessage(`"` + tt.method + `"`)},
				{Name: "params", Value: mustMarshal(t, tt.params)},
			}))
		})
	}
}

// TYPE-01: an unlimited ttl is written as null. A missing poll interval is left out.
func TestUnlimitedTTLIsNull(t *testing.T) {
	s := loadSchemas(t)
	legacy := legacyTask()
	legacy.TTL, legacy.PollInterval = nil, nil
	modern := modernTask(schema.Working)
	modern.TTL, modern.PollInterval = nil, nil

	text := mustMarshal(t, legacy)
	s.mustMatch(t, schemaLegacy, "Task", text)
	if !strings.HasSuffix(string(text), `"ttl":null}`) {
		t.Errorf("legacy: %s", text)
	}
	text = mustMarshal(t, modern)
	s.mustMatch(t, schemaTasks, "Task", text)
	if !strings.HasSuffix(string(text), `"ttlMs":null}`) {
		t.Errorf("modern: %s", text)
	}
}

// TYPE-02 and TYPE-03: five statuses, and the allowed changes between them.
func TestStatusChanges(t *testing.T) {
	statuses := []schema.Status{
		schema.Working, schema.InputRequired, schema.Completed, schema.Failed, schema.Cancelled,
	}
	const want = `
working        terminal=false: input_required completed failed cancelled
input_required terminal=false: working completed failed cancelled
completed      terminal=true:
failed         terminal=true:
cancelled      terminal=true:
`
	var b strings.Builder
	b.WriteString("\n")
	for _, from := range statuses {
		line := string(from) + strings.Repeat(" ", 15-len(from)) + "terminal=false:"
		if from.Terminal() {
			line = strings.Replace(line, "false", "true", 1)
		}
		for _, to := range statuses {
			if from.CanBecome(to) {
				line += " " + string(to)
			}
		}
		b.WriteString(line + "\n")
		if !from.Valid() {
			t.Errorf("%s is not valid", from)
		}
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if schema.Status("approved").Valid() {
		t.Error("approved is accepted as a status of the protocol")
	}
}

// TYPE-04 and TYPE-10: a value that is written into _meta can be read from it, and the other
// members stay.
func TestMetaRoundTrips(t *testing.T) {
	before := schema.Object{{Name: "progressToken", Value: json.RawMessage(`1.50`)}}
	meta := schema.WithRelatedTask(before, `quo"ted`)
	meta = schema.WithImmediateResponse(meta, "first")
	meta = schema.WithImmediateResponse(meta, "Wait.")
	meta = schema.WithSubscriptionID(meta, json.RawMessage(`7`))

	const want = `{"progressToken":1.50,"io.modelcontextprotocol/related-task":{"taskId":"quo\"ted"},` +
		`"io.modelcontextprotocol/model-immediate-response":"Wait.","io.modelcontextprotocol/subscriptionId":7}`
	if diff := cmp.Diff(want, string(mustMarshal(t, meta))); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	if got, ok := schema.RelatedTask(meta); !ok || got != `quo"ted` {
		t.Errorf("related task %q, %v", got, ok)
	}
	if got, ok := schema.ImmediateResponse(meta); !ok || got != "Wait." {
		t.Errorf("immediate response %q, %v", got, ok)
	}
	if len(before) != 1 || len(meta.Without("progressToken")) != 3 || len(meta) != 4 {
		t.Error("the original object changed")
	}
}

func TestObjectKeepsMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{ "b" : 1.0 , "a" : [ ] }`: `{"b":1.0,"a":[]}`,
		`null`:                      `{}`,
		`{}`:                        `{}`,
		`[]`:                        "",
		`"a"`:                       "",
		`{"a":1,"a":2}`:             "",
		`{"a":`:                     "",
		`{"a"`:                      "",
		`{1:2}`:                     "",
		``:                          "",
	} {
		var o schema.Object
		err := jsonv2.Unmarshal([]byte(text), &o)
		if (err == nil) != (want != "") {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && string(mustMarshal(t, o)) != want {
			t.Errorf("%s is written %s", text, mustMarshal(t, o))
		}
	}
	o := schema.Object{{Name: "a", Value: json.RawMessage(`1`)}}
	if got := o.Without("b"); len(got) != 1 {
		t.Errorf("without an absent member: %v", got)
	}
	roomy := append(make(schema.Object, 0, 4), o...)
	b, c := roomy.With("b", json.RawMessage(`2`)), roomy.With("c", json.RawMessage(`3`))
	a := roomy.With("a", json.RawMessage(`9`))
	const want = `{"a":1} {"a":1,"b":2} {"a":1,"c":3} {"a":9}`
	got := fmt.Sprintf("%s %s %s %s", mustMarshal(t, roomy), mustMarshal(t, b), mustMarshal(t, c), mustMarshal(t, a))
	if got != want {
		t.Errorf("objects share memory: %s; want %s", got, want)
	}
	for _, bad := range []schema.Object{{{Name: "a"}}, {{Name: "a", Value: json.RawMessage(`{`)}}, append(o, o...)} {
		if text, err := bad.MarshalJSON(); err == nil {
			t.Errorf("%v is written %s", bad, text)
		}
	}
}

func TestMalformedMetaIsIgnored(t *testing.T) {
	for _, text := range []string{`null`, `{}`, `{"taskId":"a"}`, `{"taskId":5}`, `"a"`} {
		meta := schema.Object{
			{Name: mcpname.MetaRelatedTask, Value: json.RawMessage(text)},
			{Name: mcpname.MetaImmediateResponse, Value: json.RawMessage(text)},
		}
		if got, ok := schema.RelatedTask(meta); ok != (text == `{"taskId":"a"}`) {
			t.Errorf("related task of %s: %q, %v", text, got, ok)
		}
		if got, ok := schema.ImmediateResponse(meta); ok != (text == `"a"`) {
			t.Errorf("immediate response of %s: %q, %v", text, got, ok)
		}
	}
}

// TYPE-08: absent and unknown support means forbidden.
func TestUnknownTaskSupportIsForbidden(t *testing.T) {
	for support, want := range map[schema.TaskSupport]schema.TaskSupport{
		"": schema.SupportForbidden, "forbidden": schema.SupportForbidden, "sometimes": schema.SupportForbidden,
		"optional": schema.SupportOptional, "required": schema.SupportRequired,
	} {
		if got := support.Effective(); got != want {
			t.Errorf("%q: %q; want %q", support, got, want)
		}
	}
}

func TestMillisAcceptsWholeNumbers(t *testing.T) {
	for text, want := range map[string]any{
		`0`: schema.Millis(0), `60000`: schema.Millis(60000), `6e4`: schema.Millis(60000),
		`60000.0`: schema.Millis(60000), `-1`: schema.Millis(-1),
		`9223372036854775807`: schema.Millis(math.MaxInt64),
		`1.5`:                 nil, `"60000"`: nil, `true`: nil, `{}`: nil, `1e300`: nil, `9223372036854775808`: nil,
	} {
		var task schema.Augmentation
		err := jsonv2.Unmarshal([]byte(`{"ttl":`+text+`}`), &task)
		switch {
		case want == nil && err == nil:
			t.Errorf("%s read as %d", text, *task.TTL)
		case want != nil && (err != nil || *task.TTL != want):
			t.Errorf("%s: %v, %v; want %d", text, task.TTL, err, want)
		}
	}
	if got := schema.MillisOf(1500*time.Microsecond + time.Second); got != 1001 {
		t.Errorf("MillisOf = %d", got)
	}
	if got := schema.Millis(1500).Duration(); got != 1500*time.Millisecond {
		t.Errorf("Duration = %v", got)
	}
	if got := schema.Millis(math.MaxInt64).Duration(); got <= 0 || got.Hours() < 24*365*200 {
		t.Errorf("huge ttl overflows to %v", got)
	}
}

func TestTimestampFormat(t *testing.T) {
	east := time.FixedZone("", 2*60*60)
	for _, tt := range []struct {
		at   time.Time
		want schema.Timestamp
	}{
		{created, "2025-11-25T10:30:00Z"},
		{created.In(east), "2025-11-25T10:30:00Z"},
		{created.Add(120 * time.Millisecond), "2025-11-25T10:30:00.120Z"},
		{created.Add(999 * time.Nanosecond), "2025-11-25T10:30:00Z"},
	} {
		if got := schema.At(tt.at); got != tt.want {
			t.Errorf("At(%v) = %s; want %s", tt.at, got, tt.want)
		}
	}
	for _, text := range []schema.Timestamp{
		"2025-11-25T10:30:00Z", "2025-11-25T10:30:00.000Z", "2025-11-25T12:30:00+02:00",
		"2025-11-25T10:30:00.000000000+00:00", "2025-11-25t10:30:00z",
	} {
		if got, err := text.Time(); err != nil || !got.Equal(created) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if _, err := schema.Timestamp("yesterday").Time(); err == nil {
		t.Error("the text yesterday is accepted as a time")
	}
}

// Unknown members survive a round trip in every type and in the task inside it. Their order and
// the text of their numbers stay.
func TestUnknownMembersSurvive(t *testing.T) {
	all := forms()
	rapid.Check(t, func(t *rapid.T) {
		form := rapid.SampledFrom(all).Draw(t, "form")
		var want schema.Object
		if err := jsonv2.Unmarshal([]byte(form.text), &want); err != nil {
			t.Fatal(err)
		}
		want = withUnknown(t, want)
		for _, inner := range []string{"task", "params"} {
			if text, ok := want.Get(inner); ok {
				var o schema.Object
				if err := jsonv2.Unmarshal(text, &o); err != nil {
					t.Fatal(err)
				}
				want = want.With(inner, mustMarshal(t, withUnknown(t, o)))
			}
		}
		text, err := jsonv2.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}

		got, err := again(form.value, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), string(got)); diff != "" {
			t.Fatalf("round trip (-want +got):\n%s", diff)
		}
	})
}

func withUnknown(t *rapid.T, o schema.Object) schema.Object {
	names := rapid.SliceOfDistinct(rapid.StringMatching(`x-[a-zé"\\]{1,8}`), rapid.ID).Draw(t, "names")
	for _, name := range names {
		text := rapid.SampledFrom([]string{
			`1.0`, `1e400`, `12345678901234567890`, `null`, `"a\u0000b"`, `{"taskId":[-0.0,{}]}`, `[[]]`,
		}).Draw(t, "value")
		o = o.With(name, json.RawMessage(text))
	}
	return o
}

// again decodes text as a value of the type of like and encodes it.
func again(like any, text []byte) ([]byte, error) {
	value := newLike(like)
	if err := jsonv2.Unmarshal(text, value); err != nil {
		return nil, err
	}
	return jsonv2.Marshal(value)
}
