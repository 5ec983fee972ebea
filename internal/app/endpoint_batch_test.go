package app_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// callAs returns a request to call a tool.
func callAs(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `"}}`
}

func batchOf(messages ...string) string { return "[" + strings.Join(messages, ",") + "]" }

const batchRules = "rules: [{match: 'hold*', action: approve}, {match: 'denied*', action: deny, reason: not allowed}, {match: '*', action: forward}]\ndefault: deny\n"

// A batch is divided, and its answers have the order of its requests.
func TestEndpointBatch(t *testing.T) {
	a, b, c := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x", "denied"), newPlainServer(t, "c", "x", "ask")
	a.version, b.version = "2025-03-26", "2025-03-26" // c has no batches
	r := startPlainWith(t, batchRules, a, b, c)
	r.beginAs("2025-03-26")

	_, answer, head := r.post(batchOf(callAs("1", "b__x"), callAs("2", "x"), `{"jsonrpc":"2.0","id":3,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		callAs(`"4"`, "c__x"), `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, callAs("6", "b__denied"), callAs("7", "b__"), callAs("8", "b__x"), callAs("9", "c__x")))
	order := regexp.MustCompile(`^\[\{.*"id":1,.*done by b for session-of-b.*"id":2,.*done by a.*"id":3,"result":\{\}.*"id":"4",.*done by c.*"id":5,.*"b__x".*"id":6,.*not allowed.*"id":7,.*Unknown tool.*"id":8,.*done by b.*"id":9,.*done by c.*\}\]$`)
	if !order.MatchString(answer) || head.Get("Content-Type") != "application/json" {
		t.Errorf("the answers are %s", answer)
	}
	if got := b.heard(); strings.Count(got, `"id"`) != 2 || !strings.HasPrefix(got, "[") {
		t.Errorf("b got %s", got)
	}

	if status, answer, _ := r.post(batchOf(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)); status != http.StatusAccepted || answer != "" {
		t.Errorf("notifications are answered with %d %s", status, answer)
	}

	// A question of a server reaches the client before the answers.
	_, answer, _ = r.post(batchOf(callAs("1", "x"), callAs("2", "c__ask")))
	has(t, answer, `"method":"roots/list"`, `data: [{"jsonrpc":"2.0","id":1,`)
	if question := regexp.MustCompile(`"id":"c:\w{20,}:1"`); !question.MatchString(answer) {
		t.Errorf("the question is %s", answer)
	}

	_, answer, _ = r.post(batchOf(callAs("1", "x"), callAs("1", "b__x")))
	has(t, answer, "the same id")

	b.stop()
	_, answer, _ = r.post(batchOf(callAs("1", "b__x"), callAs("2", "x"), callAs("3", "b__x")))
	has(t, answer, `"id":1,"error"`, `"id":2,"result"`, `"id":3,"error"`, "upstream_unreachable", "done by a")
}

// A batch for one server is held as a whole. One for several cannot be, so nothing of it runs.
func TestEndpointHoldsBatch(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x", "hold")
	a.version, b.version = "2025-03-26", "2025-03-26"
	r := startPlainWith(t, batchRules, a, b)
	r.beginAs("2025-03-26")
	calls := func() int64 { return a.asked.Load() + b.asked.Load() }
	r.list()

	before := calls()
	for _, batch := range []string{batchOf(callAs("1", "x"), callAs("2", "b__hold")), batchOf(callAs("1", "x"), callAs("2", "b__hold"), callAs("3", "b__x"))} {
		_, answer, _ := r.post(batch)
		has(t, answer, `"id":1,"error":{"code":-32600`, `"id":2,"error"`, "for several servers at once", "one by one")
	}
	if n := calls() - before; n != 0 {
		t.Errorf("%d requests to the servers", n)
	}

	for _, more := range []string{"", `,{"jsonrpc":"2.0","id":3,"method":"ping"}`} {
		answered := make(chan string, 1)
		go func() {
			_, answer, _ := r.post("[" + callAs("1", "b__x") + "," + callAs("2", "b__hold") + more + "]")
			answered <- answer
		}()
		id := awaitPending(t, r.gate)
		_, shown, _ := request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/api/approvals/"+id, "", "Authorization", "Bearer "+adminToken)
		has(t, shown, `"upstream":"b"`, "hold")
		approveCall(t, r.gate, id)
		answer := <-answered
		has(t, answer, `"id":1,"result"`, `"id":2,"result"`, "done by b")
		if more != "" {
			has(t, answer, `"id":3,"result":{}`)
		}
	}
}
