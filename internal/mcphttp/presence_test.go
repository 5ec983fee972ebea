package mcphttp_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// see waits until the store reports the given presence of a task's owner.
func (h *fixture) see(id task.ID, want gatetask.Presence) {
	h.t.Helper()
	var got task.Task
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if got, err = h.store.Get(context.Background(), task.AnyOwner().Ref(id)); err != nil {
			h.t.Fatal(err)
		}
		if got.Presence(time.Now()) == want {
			return
		}
	}
	h.t.Fatalf("the owner is %s, last there at %v; want %s", got.Presence(time.Now()), got.ContactAt, want)
}

// A host that has given up counts as gone even if its request stays open. The request ends
// without an answer and cannot be resumed; the call can be repeated.
func TestHostThatGaveUpIsGone(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.HoldWithProgress, w.HoldUnlimited = time.Hour, time.Hour })
	resp := h.begin(t, toolCall("7", "hold_x", `,"_meta":{"progressToken":1}`), "Mcp-Session-Id", "s-1", "MCP-Protocol-Version", "2025-11-25")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	eventID := ""
	for !strings.HasPrefix(eventID, "id: ") && lines.Scan() {
		eventID = lines.Text()
	}
	id := h.pending(1)[0]
	h.see(id, gatetask.OwnerWaits)
	h.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"McpError: MCP error -32001: Request timed out"}}`)
	h.see(id, gatetask.OwnerGone)
	for lines.Scan() { // until the gate ends the stream
		if strings.Contains(lines.Text(), `"id":7`) {
			t.Errorf("a request was answered after its host gave up: %s", lines.Text())
		}
	}
	back := h.sendAs(http.MethodGet, "", "Last-Event-Id", strings.TrimPrefix(eventID, "id: "), "MCP-Protocol-Version", "2025-11-25", "Content-Type", "")
	if back.wait(t); back.status != http.StatusMethodNotAllowed {
		t.Errorf("resumed: %d %s; want 405", back.status, back.body)
	}
	h.see(id, gatetask.OwnerGone)
	h.approve(id)
	if state := h.state(id); state != task.Approved {
		t.Errorf("approved while no client waits: %s", state)
	}
	wantText(t, "repeated", h.ask(toolCall("8", "hold_x", "")), `"id":8`, "done hold_x")
}

// A client that was told to call again does not wait, but is expected back.
func TestClientToldToCallAgainPolls(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	h.ask(toolCall("1", "hold_x", ""))
	h.see(h.pending(1)[0], gatetask.OwnerPolls)
}

// A client without a waiting slot does not wait.
func TestClientWithoutSlotPolls(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.PerOwner, w.HoldWithProgress, w.Hold = 1, time.Hour, time.Hour })
	first := h.sendHeld(toolCall("1", "hold_x", ""))
	id := h.pending(1)[0]
	h.see(id, gatetask.OwnerWaits)
	h.ask(toolCall("2", "hold_y", ""))
	for _, other := range h.pending(2) {
		if other != id {
			h.see(other, gatetask.OwnerPolls)
		}
	}
	first.cancel()
	h.see(id, gatetask.OwnerGone)
}

// A client without a waiting slot that repeats an approved call starts it, and gets the
// correct state.
func TestClientWithoutSlotStartsCall(t *testing.T) {
	h := waitingFixture(t, func(w *conversation.Waiting) { w.PerOwner, w.HoldWithProgress, w.Hold = 1, time.Hour, time.Hour })
	first := h.sendHeld(toolCall("1", "hold_y", ""))
	id := h.pending(1)[0]
	first.cancel()
	h.see(id, gatetask.OwnerGone)
	h.approve(id)
	other := h.sendHeld(toolCall("2", "hold_x", ""))
	defer other.cancel()
	h.askUntil("done hold_y", func() string {
		answer := h.ask(toolCall("3", "hold_y", ""))
		if strings.Contains(answer, "is running") && h.state(id) == task.Approved {
			t.Fatalf("of a call that does not run: %s", answer)
		}
		return answer
	})
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// A client that subscribes to its task waits for it while its stream is open.
func TestSubscriberWaits(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	h.see(task.ID(id), gatetask.OwnerPolls)
	listen, headers := listenTo(id)
	r := h.send(listen, headers...)
	h.see(task.ID(id), gatetask.OwnerWaits)
	r.cancel()
	h.see(task.ID(id), gatetask.OwnerPolls)
}
