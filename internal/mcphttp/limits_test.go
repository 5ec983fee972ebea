package mcphttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// The client is told to call again, and others can still wait.
func TestOneClientCannotUseAllWaitingSlots(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.PerOwner = 2 })
	sentAway := make(chan string, 3)
	for range 3 {
		req := h.send(toolCall("1", "hold_x", ""))
		go func() {
			<-req.done
			sentAway <- req.body
		}()
	}
	wantText(t, "one of three", <-sentAway, "has not run")
	h.pending(1)
	other := h.send(toolCall("3", "hold_y", ""), "Mcp-Session-Id", "s-2")
	for _, id := range h.pending(2) {
		h.approve(id)
	}
	wantText(t, "another client", other.wait(t), "done hold_y")
	wantText(t, "forwarded meanwhile", h.ask(toolCall("4", "get_x", "")), "done get_x")
}

// The gate sends neither the query of the client that requests the task, nor answers to the
// upstream's questions.
func TestOnlyShownContentIsSent(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/mcp?tenant=victim", strings.NewReader(legacyAbout("tasks/result", id)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Mcp-Session-Id", "s-1")
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantText(t, "result", readBody(t, resp), "done hold_x")
	if got := h.queries(); strings.Join(got, "") != "" {
		t.Errorf("the upstream was sent the queries %q; want none", got)
	}

	answered := toolCall("26", "hold_y", `,"inputResponses":{"q":{"action":"accept"}},`+modernMeta(""))
	wantText(t, "inputResponses", h.ask(answered, modernHeaders("hold_y")...), `"code":-32602`, "did not run")
	foreign := toolCall("26", "hold_y", `,"requestState":"theirs",`+modernMeta(""))
	wantText(t, "requestState", h.ask(foreign, modernHeaders("hold_y")...), `"code":-32602`, "did not run")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// The refusal says whether the call may still run. Other messages pass.
func TestStoreFailureRefusesHeldCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		told string
	}{
		"not asked":  {&task.Error{Kind: task.ErrUnavailable, NotAttempted: true}, "the call did not run"},
		"full":       {&task.Error{Kind: task.ErrUnavailable, Err: &task.Error{Kind: task.ErrCapacityExceeded, Err: errors.New("disk full")}}, "the call did not run"},
		"broken off": {errors.New("connection reset"), "it may still be approved and run"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
				c.Store = failing{c.Store, tt.err}
			})
			wantText(t, "legacy", h.ask(toolCall("1", "hold_x", "")), `"code":-32013`, `"store_unavailable"`, tt.told, `"retry_after"`)
			modern := h.send(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...)
			wantText(t, "modern", modern.wait(t), `"code":-32603`, `"store_unavailable"`, tt.told)
			if modern.status != http.StatusServiceUnavailable {
				t.Errorf("status %d; want 503", modern.status)
			}
			wantText(t, "batch", h.ask("["+toolCall("1", "hold_x", "")+"]"), `"code":-32013`, `"store_unavailable"`, tt.told)
			wantText(t, "forwarded", h.ask(toolCall("1", "get_x", "")), "done get_x")
			if ran := h.ran(); len(ran) != 1 {
				t.Errorf("ran %v; want the forwarded call only", ran)
			}
		})
	}
}

// A failing store creates no tasks.
type failing struct {
	gatestore.Store

	err error
}

func (f failing) Create(context.Context, task.Task, task.Limits, ...task.Note) error { return f.err }
