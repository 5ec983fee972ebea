package translate_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/taskserver"
)

// A modern server gets the messages of a batch one by one, and the client all answers at once.
func TestBatch(t *testing.T) {
	s := taskserver.New()
	ann := initialized(t, newTranslator(t, time.Minute, s.Modern), "ann", "2025-03-26")
	batch := func(messages string) (int, string) {
		status, text, _ := ask(t, ann.tr, sent{principal: "ann", session: ann.session, body: "[" + messages + "]"})
		return status, text
	}
	_, text := batch(`{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}},` +
		`{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"plain"}},{"jsonrpc":"2.0","id":3,"method":"missing"},{"jsonrpc":"2.0","id":4,"method":"initialize"}`)
	var answers []struct {
		ID            json.RawMessage
		Result, Error json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &answers); err != nil || len(answers) != 4 {
		t.Fatalf("%s: %v", text, err)
	}
	for _, a := range answers {
		switch string(a.ID) {
		case "1":
			expect(t, "list", string(a.Result), `"tools"`)
		case `"two"`:
			expect(t, "call", string(a.Result), "at once")
		case "3", "4":
			expect(t, "refused", string(a.Error), `"code":-32`)
		default:
			t.Errorf("an answer to %s", a.ID)
		}
	}
	if status, text := batch(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`); status != http.StatusAccepted || text != "" {
		t.Errorf("only notifications: %d %s", status, text)
	}
	if status, _, _ := ask(t, ann.tr, sent{principal: "bob", session: ann.session, body: `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain"}}]`}); status != http.StatusNotFound {
		t.Errorf("another principal uses the session: %d", status)
	}
}

// The server's question about one message of a batch reaches the client before the other answers.
func TestQuestionInBatch(t *testing.T) {
	s := taskserver.New()
	ann := initialized(t, newTranslator(t, time.Minute, s.Modern), "ann", "2025-03-26")
	resp, leave, err := open(t, ann.tr, sent{principal: "ann", session: ann.session, body: `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"confirm"}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow"}}]`})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	events := bufio.NewScanner(resp.Body)
	asked := nextEvent(t, events)
	expect(t, "question", asked, "elicitation/create")
	var q struct{ ID json.RawMessage }
	json.Unmarshal([]byte(asked), &q)
	ask(t, ann.tr, sent{principal: "ann", session: ann.session, body: `[{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept"}}]`})
	expect(t, "first", nextEvent(t, events), `"id":1`, "done")
	id := "task-1"
	if s.Status(id) == "completed" {
		id = "task-2"
	}
	s.Set(id, "completed")
	expect(t, "second", nextEvent(t, events), `"id":2`, "done")
	for events.Scan() {
		if strings.HasPrefix(events.Text(), "data:") {
			t.Errorf("more: %s", events.Text())
		}
	}
}
