package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// answerWith makes an upstream answer with text, in which ID stands for the request ID.
func answerWith(kind, text string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", kind)
		io.WriteString(w, strings.ReplaceAll(text, "ID", id))
	}
}

const (
	asJSON   = "application/json"
	asEvents = "text/event-stream"
)

// GOV-004 F-006.6, F-006.7: an answer of any size and form is delivered unchanged.
func TestLargeAnswers(t *testing.T) {
	text := strings.Repeat("déjà vu ", 40<<10) // 400 KiB
	result := `{"content":[{"type":"text","text":"` + text + `"}]}`
	answer := `{"jsonrpc":"2.0","id":ID,"result":` + result + `}`
	tests := map[string]func(http.ResponseWriter, string){
		"JSON":                      answerWith(asJSON, answer),
		"JSON with the id last":     answerWith(asJSON, ` { "result" : `+result+` , "jsonrpc":"2.0","id": ID } `),
		"JSON after a keep-alive":   answerWith(asJSON, strings.Repeat(" \n", 100<<10)+answer),
		"an event":                  answerWith(asEvents, "event: message\ndata: "+answer+"\n\n"),
		"an event of several lines": answerWith(asEvents, "data: {\"jsonrpc\":\"2.0\",\ndata: \"result\":\nid: 5\ndata:"+result+"\r\ndata:,\"id\":ID}\n\n"),
		"an event after others": answerWith(asEvents, ": hello\n\nid: 1\ndata:\n\n"+
			`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+text+"\"}}\n\n"+
			"data: no JSON\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{}}\n\n"+
			"data: "+answer+"\n\n"),
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.answer = answer
			id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
			h.approve(task.ID(id))
			for range 2 {
				got := h.ask(legacyAbout("tasks/result", id))
				want := `{"jsonrpc":"2.0","id":5,"result":` + strings.TrimSuffix(result, "}") + `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}}}`
				if got != want {
					t.Fatalf("got %d bytes %.300q…%.100q; want %d", len(got), got, got[max(0, len(got)-100):], len(want))
				}
			}
		})
	}
}

// The check happens once, while the answer arrives. The error flag may stand anywhere in the
// result.
func TestToolErrors(t *testing.T) {
	text := strings.Repeat("x", 200<<10)
	tests := map[string]struct {
		result string
		kind   task.ResultKind
	}{
		"first":   {`{"isError":true,"content":["` + text + `"]}`, task.ResultToolError},
		"last":    {`{"content":["` + text + `"],"is\u0045rror" : true}`, task.ResultToolError},
		"nested":  {`{"content":[{"isError":true},"` + text + `"]}`, task.ResultOK},
		"a small": {`{"content":[],"isError":true}`, task.ResultToolError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.answer = answerWith(asJSON, `{"jsonrpc":"2.0","id":ID,"result":`+tt.result+`}`)
			id := h.runs("hold_x")
			got, err := h.store.Get(t.Context(), task.AnyOwner().Ref(task.ID(id)))
			if err != nil || got.Result == nil || got.Result.Kind != tt.kind {
				t.Errorf("result %+v, %v; want one of kind %s", got.Result, err, tt.kind)
			}
		})
	}
}

// An invalid or incomplete answer is not a result, and the call may have run.
func TestUnusableLargeAnswers(t *testing.T) {
	text := strings.Repeat("x", 200<<10)
	const begin = `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"`
	breaksOff := func(kind, text string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, id string) {
			answerWith(kind, text)(w, id)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	tests := map[string]func(http.ResponseWriter, string){
		"breaks off":                 breaksOff(asJSON, begin+text),
		"breaks off in an event":     breaksOff(asEvents, "data: "+begin+text),
		"an event without an end":    answerWith(asEvents, "data: "+begin+text+`"}]}}`+"\n"),
		"ends early":                 answerWith(asJSON, begin+text+`"}]`),
		"no JSON in the end":         answerWith(asJSON, begin+text+`"}],}}`),
		"for another request":        answerWith(asJSON, `{"jsonrpc":"2.0","result":{"a":"`+text+`"},"id":99}`),
		"result and error":           answerWith(asJSON, begin+text+`"}]},"error":{}}`),
		"of another type, told late": answerWith(asJSON, begin+text+`"}],"resultType":"input_required","inputRequests":{}}}`),
		"no object":                  answerWith(asJSON, `{"jsonrpc":"2.0","id":ID,"result":["`+text+`"]}`),
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.answer = answer
			id := h.runs("hold_x")
			got := h.ask(legacyAbout("tasks/result", id))
			wantText(t, "answer", got, `"id":5`, `"error":{"code":-32002`, `"upstream_invalid_response"`)
			if name != "no object" {
				wantText(t, "answer", got, "may have run")
			}

			// A client that reads the answer as it arrives sees it break off, or gets an error.
			req := h.send(toolCall("7", "hold_y", ""))
			h.approve(h.pending(1)[0])
			<-req.done
			if !strings.Contains(req.body, `"upstream_invalid_response"`) && !strings.HasSuffix(req.body, "unexpected EOF") {
				t.Errorf("the first reader got %.200q…%q", req.body, req.body[max(0, len(req.body)-200):])
			}
		})
	}
}

// runs makes a call as a task without readers, and returns the ended task.
func (h *fixture) runs(tool string) string {
	h.t.Helper()
	id := taskID(h.t, h.ask(toolCall("3", tool, `,"task":{}`)))
	h.approve(task.ID(id))
	eventually(h.t, "the task has ended", func() bool {
		return !strings.Contains(h.ask(legacyAbout("tasks/get", id)), `"status":"working"`)
	})
	return id
}

// The result type may stand anywhere in the result.
func TestResultTypeIsFoundAnywhere(t *testing.T) {
	h := newFixture(t, nil)
	h.answer = answerWith(asJSON, fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"result":{"a":"%s","resultType":"complete"}}`, strings.Repeat("x", 100<<10)))
	req := h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...)
	h.approve(h.pending(1)[0])
	if got := req.wait(t); !strings.HasSuffix(got, `xxx","resultType":"complete"}}`) {
		t.Errorf("got %.300q", got)
	}
}

// The result is not delivered, and client and approver are told that the call ran.
func TestResultTooLarge(t *testing.T) {
	for _, limit := range []string{"of a result", "of the store"} {
		t.Run(limit, func(t *testing.T) {
			h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
				if limit == "of a result" {
					c.MaxResult = 100 << 10
					return
				}
				small := memstore.New(memstore.Options{MaxBytes: 200 << 10})
				t.Cleanup(func() { small.Close() })
				c.Store = small
			})
			h.answer = answerWith(asJSON, `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"`+strings.Repeat("x", 300<<10)+`"}]}}`)
			const text = "It ran, but its result is too large to be kept."
			legacy := h.runs("hold_x")
			wantText(t, "legacy", h.ask(legacyAbout("tasks/result", legacy)), `"code":-32002`, text, `"error_type":"result_too_large"`)

			id := taskID(t, h.ask(modernCall("hold_y", tasksExtension), modernHeaders("hold_y")...))
			h.approve(task.ID(id))
			message, headers := about("tasks/get", id)
			var got string
			eventually(t, "the task has ended", func() bool {
				got = h.ask(message, headers...)
				return strings.Contains(got, `"status":"failed"`)
			})
			wantText(t, "modern", got, `"code":-32603`, text, `"error_type":"result_too_large"`)
		})
	}
}

// Without a task request, a result with a task member is a plain result.
func TestResultWithTaskMember(t *testing.T) {
	h := newFixture(t, nil)
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"made it"}],"task":{"title":"laundry"}}}`)
	}
	held := h.send(toolCall("7", "hold_x", ""))
	h.approve(h.pending(1)[0])
	wantText(t, "result", held.wait(t), "made it", "laundry")
}

// The client gets the ID as it wrote it.
func TestAnswerKeepsSpellingOfID(t *testing.T) {
	h := newFixture(t, nil)
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		otherwise := strings.Replace(id, `"c`, `"\u0063`, 1)
		if otherwise == id {
			t.Errorf("the id %s does not begin with c", id)
		}
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+otherwise+`,"result":{"content":[{"type":"text","text":"made it"}]}}`)
	}
	held := h.send(toolCall(`"\u0061"`, "hold_x", ""))
	h.approve(h.pending(1)[0])
	wantText(t, "result", held.wait(t), "made it", `"id":"\u0061"`)
}
