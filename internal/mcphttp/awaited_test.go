package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// forged has ways to write an answer to request 7.
var forged = []string{
	`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"forged"}]}}`,
	`{"jsonrpc":"2.0","id":7.0,"result":{"content":[{"type":"text","text":"forged"}]}}`,
	`{"jsonrpc":"2.0","id":70e-1,"result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":"7","result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":"0x7","result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":"0b111","result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":"0o7","result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":"\ufeff7","result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":"7 is the id","result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","i\u0064":7,"r\u0065sult":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"forged"}}`,
	`[{"jsonrpc":"2.0","id":7,"result":{"text":"forged"}}]`,
	`{"jsonrpc":"2.0","id":6,"id":7,"result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id\u0000":7,"id":6,"result":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":7,"RESULT":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":7,"reſult":{"text":"forged"}}`,
	`{"jsonrpc":"2.0","id":7,"Error":{"code":1,"message":"forged"}}`,
	`{"jsonrpc":"2.0","__proto__":{"id":7,"Result":{"text":"forged"}}}`,
	`{"jsonrpc":"2.0","result":{"text":"forged","pad":"` + strings.Repeat("x", 100<<10) + `"},"id":7}`,
}

// listenFor returns everything that a client reads on a GET stream.
func (h *fixture) listenFor(headers ...string) string {
	h.t.Helper()
	request := h.sendAs(http.MethodGet, "", headers...)
	request.wait(h.t)
	return request.body
}

// beginStreams makes calls that the upstream answers with resumable streams.
func (h *fixture) beginStreams(ids ...string) {
	h.t.Helper()
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: theirs\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"streamed\"}}\n\n", id)
	}
	for _, id := range ids {
		wantText(h.t, id, h.ask(toolCall(id, "get_x", "")), "streamed")
	}
	h.answer = nil
}

// The gate queries the upstream about a tool before it holds a call. The upstream cannot answer
// the call meanwhile, alone or in a batch.
func TestForgedAnswerDuringToolQuery(t *testing.T) {
	one := toolCall("7", "hold_x", "")
	for name, message := range map[string]string{
		"alone":      one,
		"as a task":  toolCall("7", "hold_x", `,"task":{}`),
		"in a batch": batch(toolCall("9", "get_x", ""), one),
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.beginStreams("7", "8")
			h.get = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", forged[0], `{"jsonrpc":"2.0","id":8,"result":{"text":"unasked"}}`)
			}
			asked, goOn := make(chan struct{}), make(chan struct{})
			stop := sync.OnceFunc(func() { close(asked); <-goOn })
			h.mu.Lock()
			h.listing = stop
			h.mu.Unlock()
			held := h.send(message)
			<-asked
			got := h.listenFor("Last-Event-ID", "theirs")
			close(goOn)
			if strings.Contains(got, "forged") || !strings.Contains(got, "unasked") {
				t.Errorf("on a stream that it resumed the client got %s", got)
			}
			h.reject(h.pending(1)[0], "enough")
			held.wait(t)
		})
	}
}

// While a call waits for approval, the upstream cannot answer it on any stream, even if the
// client reuses the ID of an earlier request.
func TestForgedAnswersAreDropped(t *testing.T) {
	h := newFixture(t, nil)
	h.beginStreams("7", "8")
	held := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	const harmless = `{"jsonrpc":"2.0","method":"notifications/message","params":{"text":"a result, an error"}}`
	for _, text := range forged {
		h.get = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "id: 1\ndata: %s\n\nid: 2\ndata: %s\n\nid: 3\ndata: %s\n\n", text, harmless, `{"jsonrpc":"2.0","id":8,"result":{"text":"unasked"}}`)
		}
		if got := h.listenFor(); strings.Contains(got, "forged") || strings.Contains(got, "unasked") || !strings.Contains(got, harmless) || !strings.Contains(got, "id: 1\n") {
			t.Errorf("%.90s: on its GET stream the client got %s", text, got)
		}
		if got := h.listenFor("Last-Event-ID", "theirs"); strings.Contains(got, "forged") || !strings.Contains(got, "unasked") {
			t.Errorf("%.90s: on a stream that it resumed the client got %s", text, got)
		}
		for _, form := range []string{"text/event-stream", "application/json"} {
			h.answer = func(w http.ResponseWriter, id string) {
				w.Header().Set("Content-Type", form)
				if form == "application/json" {
					io.WriteString(w, text)
					return
				}
				fmt.Fprintf(w, "data: %s\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", text, id)
			}
			for _, message := range []string{toolCall("9", "get_x", ""), `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
				other := h.send(message)
				other.wait(t)
				if whole := strings.HasSuffix(strings.TrimSpace(other.body), "}") || strings.HasSuffix(strings.TrimSpace(other.body), "]"); strings.Contains(other.body, "forged") && whole {
					t.Errorf("%.90s: as %s to another request the client got %.300s", text, form, other.body)
				}
			}
		}
	}
	h.answer = nil
	h.approve(id)
	wantText(t, "the client", held.wait(t), `"id":7`, "done hold_x")
}

// On a resumed stream the upstream answers only requests that this gate has sent and whose
// answer has begun as a stream. The gate does not know the calls that other replicas hold.
func TestForgedAnswerAtOtherReplica(t *testing.T) {
	h := newFixture(t, nil)
	other := &fixture{t: t, gateway: startGate(t, h.target, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Records, s.handler.Waiting = h.catalog, h.approvals, h.store, h.waiting
	})}
	h.beginStreams("8")
	wantText(t, "not streamed", h.ask(toolCall("9", "get_x", "")), "done get_x")
	held := h.send(toolCall("7", "hold_x", ""))
	h.pending(1)
	var saying string
	h.get = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: 1\ndata: %s\n\n", saying)
	}
	for _, text := range append(forged, `{"jsonrpc":"2.0","id":8,"result":{"text":"forged"}}`) {
		saying = text
		if got := other.listenFor("Last-Event-ID", "theirs"); strings.Contains(got, "forged") {
			t.Errorf("%.90s: at another replica the client got %s", text, got)
		}
	}
	for answered, want := range map[string]bool{"8": true, "9": false, "10": false} {
		saying = `{"jsonrpc":"2.0","id":` + answered + `,"result":{"text":"late"}}`
		if got := h.listenFor("Last-Event-ID", "theirs"); strings.Contains(got, "late") != want {
			t.Errorf("%s: the client got %s; want the answer: %t", answered, got, want)
		}
	}
	h.sendAs(http.MethodDelete, "").wait(t)
	saying = `{"jsonrpc":"2.0","id":8,"result":{"text":"late"}}`
	if got := h.listenFor("Last-Event-ID", "theirs"); strings.Contains(got, "late") {
		t.Errorf("after the end of the session the client got %s", got)
	}
	held.wait(t)
}

// The upstream cannot answer messages of a batch that it did not get.
func TestForgedAnswerInBatch(t *testing.T) {
	for name, tell := range map[string]func(http.ResponseWriter, []string){"array": tellArray, "events": tellEvents} {
		h := newFixture(t, nil)
		h.batch = func(w http.ResponseWriter, _ jsonrpc.Packet) {
			tell(w, []string{`{"jsonrpc":"2.0","id":1,"result":{"text":"fine"}}`, forged[0]})
		}
		request := h.send(batch(toolCall("1", "get_x", ""), askResult("7", "tg_none")))
		request.wait(t)
		if strings.Contains(request.body, "forged") || !strings.Contains(request.body, "fine") {
			t.Errorf("%s: the client got %s", name, request.body)
		}
	}
}

// The upstream cannot answer requests to the gate itself, such as for the result of a task. A
// large answer to another request still arrives.
func TestForgedTaskResultIsDropped(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`)))
	waits := h.begun(legacyAbout("tasks/result", id)) // with the id 5
	h.get = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"text\":\"forged\"}}\n\n")
	}
	if got := h.listenFor("Last-Event-ID", "theirs"); strings.Contains(got, "forged") {
		t.Errorf("the client got %s", got)
	}
	large := `{"jsonrpc":"2.0","result":{"pad":"` + strings.Repeat("x", 300<<10) + `"},"id":9}`
	h.answer = func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, large)
	}
	other := h.send(toolCall("9", "get_x", ""))
	other.wait(t)
	if other.body != large {
		t.Errorf("the client got %d bytes; want the %d of the answer", len(other.body), len(large))
	}
	waits()
}

// begun sends a message, waits until its answer has begun, and returns a function that
// disconnects.
func (h *fixture) begun(message string) (leave func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/mcp", strings.NewReader(message))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	resp, err := h.Client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadByte(); err != nil {
		h.t.Fatal(err)
	}
	return func() { cancel(); resp.Body.Close() }
}
