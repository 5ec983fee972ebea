package mcphttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// newOpenFixture starts a gate that denies /etc and drop_*, holds hold_* and docs://hold/*, and
// forwards everything else.
func newOpenFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) {
		s.Policy = compile(t,
			policy.Rule{Match: "file:///etc/*", Action: policy.Deny},
			policy.Rule{Match: "drop_*", Action: policy.Deny},
			policy.Rule{Match: "hold_*", Action: policy.Approve},
			policy.Rule{Match: "docs://hold/*", Action: policy.Approve},
			policy.Rule{Match: "*", Action: policy.Forward})
	})
}

// Names that the upstream could read differently are refused.
func TestAmbiguousNames(t *testing.T) {
	h := newOpenFixture(t)
	for _, params := range []string{
		`"method":"resources/read","params":{"uri":"FILE:///etc/passwd"}`,
		`"method":"resources/read","params":{"uri":"file:/etc/passwd"}`,
		`"method":"resources/subscribe","params":{"uri":"file://localhost/etc/passwd"}`,
		`"method":"resources/read","params":{"uri":"file:\\\\\\etc\\passwd"}`,
		`"method":"resources/read","params":{"uri":" file:///etc/passwd"}`,
		`"method":"resources/read","params":{"uri":"file:///x/.\t./etc/passwd"}`,
		`"method":"resources/read","params":{"uri":"file:///etc%2Fpasswd"}`,
		`"method":"resources/read","params":{"uri":"file:///x/%252e%252e/etc/passwd"}`,
		`"method":"resources/read","params":{"uri":"file:///e%09tc/passwd"}`,
		`"method":"tools/call","params":{"name":"drop_\u200ball"}`,
		`"method":"prompts/get","params":{"name":"e\u0301"}`,
		`"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"FILE:///etc/{x}"},"argument":{}}`,
	} {
		wantText(t, params, h.ask(`{"jsonrpc":"2.0","id":1,`+params+`}`), `"code":-32602`, `"error_type":"ambiguous_name"`)
	}
	h.wantRan()
	wantText(t, "a plain URI", h.ask(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///home/x"}}`), "done")
}

// A tool or prompt name of more than 1 KiB, or a URI of more than 8 KiB, is refused under any
// policy.
func TestLongNamesAreRefused(t *testing.T) {
	h := newOpenFixture(t)
	name, uri := strings.Repeat("a", 1025), "docs://"+strings.Repeat("a", 8186)
	for _, params := range []string{
		`"method":"tools/call","params":{"name":"` + name + `"}`,
		`"method":"prompts/get","params":{"name":"` + name + `"}`,
		`"method":"resources/read","params":{"uri":"` + uri + `"}`,
		`"method":"resources/subscribe","params":{"uri":"` + uri + `"}`,
		`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"` + name + `"}}`,
		`"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"` + uri + `"}}`,
		`"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["docs://x","` + uri + `"]}}`,
	} {
		message := `{"jsonrpc":"2.0","id":1,` + params + `}`
		wantText(t, params, h.ask(message), `"code":-32602`, `"error_type":"name_too_long"`)
		wantText(t, params+" in a batch", h.ask(batch(message)), `"error_type":"name_too_long"`)
		wantText(t, params+" as a notification", h.ask(`{"jsonrpc":"2.0",`+params+`}`), `"error_type":"name_too_long"`)
	}
	wantText(t, "a modern call", h.ask(modernCall(name, ""), modernHeaders(name)...), `"code":-32602`, `"error_type":"name_too_long"`)
	h.wantRan()
	wantText(t, "the longest name", h.ask(toolCall("1", name[1:], "")), "done")
	wantText(t, "the longest URI", h.ask(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"`+uri[:8192]+`"}}`), "done")
}

func TestManySubscriptionsAreRefused(t *testing.T) {
	h := newOpenFixture(t)
	uris := strings.Repeat(`"docs://x",`, 1000) + `"docs://x"`
	wantText(t, "1001 resources", h.ask(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[`+uris+`]}}}`),
		`"error_type":"invalid_params"`, "more than 1000 resources")
}

// A held call must have a name that approvers can read at once.
func TestHeldCallWithLongNameIsRefused(t *testing.T) {
	h := newOpenFixture(t)
	read := func(uri string) string {
		return h.ask(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + uri + `"}}`)
	}
	hidden := strings.Repeat("a", 2000)
	wantText(t, "a long URI", read("docs://hold/"+hidden), `"code":-32602`, `"error_type":"invalid_params"`, "uri of more than 2000 bytes", "it did not run")
	wantText(t, "in a batch", h.ask(batch(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"docs://hold/`+hidden+`"}}`)), `"error_type":"invalid_params"`)
	h.wantRan()
	wantText(t, "one that needs no approval", read("docs://free/"+hidden), "done")
}

// A method that differs from a known one only by case, white space or invisible characters does
// not reach the upstream.
func TestMisspelledMethodsAreRefused(t *testing.T) {
	h := newOpenFixture(t)
	for _, method := range []string{
		"TOOLS/CALL", `tools/call\u0000`, " tools/call", "tools/ call", `tools\u200b/call`, "Tools/Call", `tools/call\n`, `ｔools/call`, "Resources/Read",
		`\u1680tools/call`, `tools/call\u2003`, `tools/call\u00a0`, "tools /call",
		"Prompts/Get", "TASKS/GET", "tasks/Result", "Subscriptions/Listen", "Completion/complete", "Tools/List", `tools/list\u0000`, "Initialize",
	} {
		message := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"name":"drop_all"}}`
		wantText(t, method, h.ask(message), `"code":-32600`, `"error_type":"ambiguous_method"`)
		wantText(t, method+" in a batch", h.ask(batch(message)), `"error_type":"ambiguous_method"`)
	}
	h.wantRan()
	wantText(t, "an unknown method", h.ask(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel"}`), "done")
}

// Messages that refer to prompts or resources are judged by each of them. Those that need
// approval are refused, since they cannot be held.
func TestReferencesAreJudged(t *testing.T) {
	h := newOpenFixture(t)
	h.listen = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n")
	}
	listen := func(notifications string) string {
		return h.ask(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{`+modernMeta(tasksExtension)+
			`,"notifications":`+notifications+`}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	}
	for notifications, kind := range map[string]string{
		`{"resourceSubscriptions":["file:///home/x","file:///etc/passwd"]}`:                           "policy_denied",
		`{"resourceSubscriptions":["docs://hold/x"]}`:                                                 "policy_denied",
		`{"resourceSubscriptions":["FILE:///etc/passwd"]}`:                                            "ambiguous_name",
		`{"resourceSubscriptions":"file:///etc/passwd"}`:                                              "invalid_params",
		`{"resourceSubscriptions":[1]}`:                                                               "invalid_params",
		`{"ResourceSubscriptions":["file:///etc/passwd"]}`:                                            "invalid_params",
		`{"taskIds":["tg_5JX2m0cV8b1rQ7yK3nT4wA"],"resourceSubscriptions":["file:///etc/passwd"]}`:    "policy_denied",
		`{"toolsListChanged":true,"resourceSubscriptions":["docs://x","x://y","file:///etc/shadow"]}`: "policy_denied",
	} {
		wantText(t, notifications, listen(notifications), `"error_type":"`+kind+`"`)
	}
	for ref, kind := range map[string]string{
		`{"type":"ref/prompt","name":"drop_all"}`:            "policy_denied",
		`{"type":"ref/prompt","name":"hold_it"}`:             "policy_denied",
		`{"type":"ref/resource","uri":"file:///etc/{name}"}`: "policy_denied",
		`{"type":"ref/resource","uri":"docs://hold/{name}"}`: "policy_denied",
		`{"type":"ref/resource","name":"x"}`:                 "invalid_params",
		`{"type":"ref/resource","URI":"file:///etc/{name}"}`: "invalid_params",
		`{"type":"ref/other","uri":"x"}`:                     "invalid_params",
	} {
		answer := h.ask(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":` + ref + `}}`)
		wantText(t, ref, answer, `"error_type":"`+kind+`"`)
	}
	if heard := h.listened(); len(heard) != 0 {
		t.Errorf("the upstream was asked %v", heard)
	}
	h.wantRan()
	wantText(t, "allowed", listen(`{"resourceSubscriptions":["file:///home/x"]}`), "acknowledged")
	wantText(t, "allowed", h.ask(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"file:///home/{name}"}}}`), "done")
}

// 3.5 and F-006.3 of REQ-CORE-007: the gate answers requests about its own tasks, also in a
// batch.
func TestOwnTasksInBatch(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	id := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`)))
	ask := func(requestID, method, id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"taskId":%q}}`, requestID, method, id)
	}
	answer := h.ask(batch(ask("1", "tasks/get", id), toolCall("2", "get_a", ""), ask("3", "tasks/result", id), ask("4", "tasks/get", "tg_none"), ask("5", "tasks/update", id)))
	wantText(t, "beside a call", answer, `"id":1,"result":{"taskId":"`+id, `"id":2,"result"`, "done get_a",
		`"id":3,"error":{"code":-32013`, `"id":4,"error":{"code":-32602`, `"id":5,"error":{"code":-32601`)
	h.wantRan(`get_a {"x":1}`)
	h.approve(h.pending(1)[0])
	eventually(t, "the result is available", func() bool {
		return strings.Contains(h.ask(batch(ask(`"r"`, "tasks/result", id))), `"id":"r","result":{"content":[{"type":"text","text":"done hold_x"`)
	})
	wantText(t, "cancelled too late", h.ask(batch(ask("1", "tasks/cancel", id))), `"id":1,"error":{"code":-32602`)
	other := taskID(t, h.ask(toolCall("1", "hold_y", `,"task":{}`)))
	wantText(t, "cancelled", h.ask(batch(ask("1", "tasks/cancel", other))), `"id":1,"result"`, `"status":"cancelled"`)
	h.wantRan(`get_a {"x":1}`, `hold_x {"x":1}`)
	wantText(t, "a list", h.ask(batch(`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`)), `[{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"`+other, `"_meta":{"thoughtgate/tool":"hold_y"}`)
}

// The upstream never gets messages about tasks of the gate.
func TestOwnTasksInNotifications(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`)))
	note := func(method string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"taskId":%q}}`, method, id)
	}
	for _, method := range []string{"tasks/cancel", "tasks/get", "tasks/update", "tasks/unknown"} {
		for _, message := range []string{note(method), batch(note(method)), batch(note(method), note(method))} {
			if req := h.send(message); req.wait(t) != "" || req.status != http.StatusAccepted {
				t.Errorf("%s: answered %d %s", message, req.status, req.body)
			}
		}
	}
	wantText(t, "beside a request", h.ask(batch(note("tasks/cancel"), toolCall("2", "get_a", ""))), "done get_a")
	h.wantRan(`get_a {"x":1}`)
	h.pending(1)
}

// F-007.2 of REQ-CORE-003: a list in a batch is filtered like any other.
func TestListInBatch(t *testing.T) {
	answers := func(p jsonrpc.Packet) (all []string) {
		for i := range p.Messages {
			result := `{}`
			if p.Messages[i].Method == "tools/list" {
				result = `{"tools":[{"name":"drop_all"},{"name":"get_x"}]}`
			}
			all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.Messages[i].ID.Bytes, result))
		}
		return all
	}
	tells := map[string]func(http.ResponseWriter, []string){
		"array": tellArray, "events": tellEvents,
		"array in an event": func(w http.ResponseWriter, all []string) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: [%s]\n\n", strings.Join(all, ","))
		},
	}
	for name, tell := range tells {
		h := newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) { s.HideDenied = true })
		h.batch = func(w http.ResponseWriter, p jsonrpc.Packet) { tell(w, answers(p)) }
		message := batch(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		request := h.send(message)
		request.wait(t)
		wantText(t, name, request.body, `"id":1,"result":{"tools":[{"name":"get_x"`, `"id":2,"result":{}`)
		if strings.Contains(request.body, "drop_all") {
			t.Errorf("%s: a hidden tool shows: %s", name, request.body)
		}
	}
}

// A list in a held batch is filtered too.
func TestListInHeldBatch(t *testing.T) {
	h := newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) { s.HideDenied = true })
	h.batch = func(w http.ResponseWriter, p jsonrpc.Packet) {
		var answers []string
		for i, result := range []string{`{"tools":[{"name":"drop_all"},{"name":"get_x"}]}`, `{"content":[]}`} {
			answers = append(answers, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.Messages[i].ID.Bytes, result))
		}
		tellArray(w, answers)
	}
	request := h.send(batch(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, toolCall("2", "hold_x", "")))
	h.approve(h.pending(1)[0])
	request.wait(t)
	wantText(t, "the client", request.body, `"id":1,"result":{"tools":[{"name":"get_x"`, `"id":2,"result":{"content":[]}`)
	if strings.Contains(request.body, "drop_all") {
		t.Errorf("a hidden tool shows: %s", request.body)
	}
}
