package mcphttp_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A slowAnswer is a large upstream answer that pauses in the middle.
type slowAnswer struct {
	half  string
	goOn  chan struct{}
	other chan struct{} // closed when the other half was sent
}

func newSlowAnswer() *slowAnswer {
	return &slowAnswer{half: strings.Repeat("x", 200<<10), goOn: make(chan struct{}), other: make(chan struct{})}
}

func (a *slowAnswer) serve(w http.ResponseWriter, id string) {
	w.Header().Set("Content-Type", asJSON)
	io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"`+a.half)
	_ = http.NewResponseController(w).Flush()
	<-a.goOn
	io.WriteString(w, a.half+`"}]}}`)
	close(a.other)
}

func (a *slowAnswer) result() string {
	return `"result":{"content":[{"type":"text","text":"` + a.half + a.half + `"}]`
}

// begins reads an answer until its result has begun.
func begins(t *testing.T, resp *http.Response) string {
	t.Helper()
	head := make([]byte, 100<<10)
	n, err := io.ReadFull(resp.Body, head)
	if err != nil || !strings.Contains(string(head[:n]), `"result":{"content":[{"type":"text","text":"xxxx`) {
		t.Fatalf("the answer begins with %.200q, %v", head[:n], err)
	}
	return string(head[:n])
}

func (a *slowAnswer) check(t *testing.T, what, begin string, resp *http.Response) {
	t.Helper()
	rest, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	got := begin + string(rest)
	if err != nil || !strings.Contains(got, a.result()) {
		t.Errorf("%s: %d bytes %.200q…, %v", what, len(got), got, err)
	}
}

// 10.1 "Sync execution streams", design 5: readers get a large answer while it is stored. They
// share one execution, and the answer can be fetched again.
func TestReadersShareStreamingAnswer(t *testing.T) {
	h := newFixture(t, nil)
	slow := newSlowAnswer()
	h.answer = slow.serve
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	first := h.answering(t.Context(), legacyAbout("tasks/result", id), "Accept", asJSON)
	second := h.answering(t.Context(), legacyAbout("tasks/result", id))
	firstBegan, secondBegan := begins(t, first), begins(t, second)
	wantText(t, "meanwhile", h.ask(legacyAbout("tasks/get", id)), `"status":"working"`)
	close(slow.goOn)
	slow.check(t, "the first reader", firstBegan, first)
	slow.check(t, "the second reader", secondBegan, second)
	wantText(t, "afterwards", h.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
	slow.check(t, "a late reader", "", h.answering(t.Context(), legacyAbout("tasks/result", id)))
	if ran := h.ran(); !slices.Equal(ran, []string{`hold_x {"x":1}`}) {
		t.Errorf("ran %v; want the call once", ran)
	}
}

// design 6: a reader that disconnects does not interrupt the call, in either era.
func TestAnswerSurvivesLeavingReader(t *testing.T) {
	calls := map[string][]string{
		"legacy": {toolCall("7", "hold_x", "")},
		"modern": append([]string{modernCall("hold_x", "")}, modernHeaders("hold_x")...),
	}
	for era, call := range calls {
		t.Run(era, func(t *testing.T) {
			h := newFixture(t, nil)
			slow := newSlowAnswer()
			h.answer = slow.serve
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			answering := make(chan *http.Response, 1)
			go func() { answering <- h.answering(ctx, call[0], call[1:]...) }()
			id := h.pending(1)[0]
			h.approve(id)
			resp := <-answering
			begins(t, resp)
			leave()
			resp.Body.Close()
			eventually(t, "the gate notices the disconnect", func() bool { used := h.handler.Used(); return used["requests"]+used["waiting"] == 0 })
			close(slow.goOn)
			<-slow.other
			eventually(t, "the task has ended", func() bool {
				got, err := h.store.Get(t.Context(), task.AnyOwner().Ref(id))
				return err == nil && got.State == task.Completed && got.Result.Chunks > 0
			})
			slow.check(t, "a retry", "", h.answering(t.Context(), call[0], call[1:]...)) // attaches
			if ran := h.ran(); len(ran) != 1 {
				t.Errorf("ran %v; want one call", ran)
			}
		})
	}
}

// GOV-004 F-007.7: cancelling lets a reader finish, and the task stays cancelled.
func TestCancelWhileAnswerArrives(t *testing.T) {
	h := newFixture(t, nil)
	slow := newSlowAnswer()
	h.answer = slow.serve
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	reading := h.answering(t.Context(), legacyAbout("tasks/result", id))
	began := begins(t, reading)
	wantText(t, "cancel", h.ask(legacyAbout("tasks/cancel", id)), `"status":"cancelled"`)
	close(slow.goOn)
	slow.check(t, "the reader", began, reading)
	wantText(t, "afterwards", h.ask(legacyAbout("tasks/get", id)), `"status":"cancelled"`)
}

func TestCancelWithoutReader(t *testing.T) {
	h := newFixture(t, nil)
	interrupted := make(chan struct{})
	once := sync.OnceFunc(func() { close(interrupted) }) // the upstream also gets the cancellation
	h.answer = func(w http.ResponseWriter, id string) {
		defer once()
		w.Header().Set("Content-Type", asJSON)
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":"`)
		piece := strings.Repeat("x", 64<<10)
		for {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // the store must not be full before the call is cancelled
		}
	}
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	eventually(t, "the call runs", func() bool { return len(h.ran()) == 1 })
	wantText(t, "cancel", h.ask(legacyAbout("tasks/cancel", id)), `"status":"cancelled"`)
	<-interrupted
}
