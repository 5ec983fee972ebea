package mcphttp_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Logs and metrics contain no arguments, credentials or answers. The agent gets only answers.
func TestNoSecretsInLogs(t *testing.T) {
	log := new(logBuffer)
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		c.Log = logging.New(log, "json", slog.LevelDebug)
		w.Hold = 10 * time.Millisecond
	})
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"s3cret","data":{"error_type":"s3cret"}}}`, id)
	}
	secret := func(message string) string {
		return strings.Replace(message, `{"x":1}`, `{"password":"s3cret","s3cret":["s3cret"]}`, 1)
	}
	ask := func(message string, headers ...string) string {
		return h.ask(secret(message), append([]string{"X-Api-Key", "s3cret", "Cookie", "s3cret", "Authorization", "Bearer s3cret", "Mcp-Session-Id", "s3cret"}, headers...)...)
	}
	quiet := []string{
		ask(toolCall("1", "hold_x", "")),
		ask(toolCall("1", "drop_x", "")),
		ask(toolCall("1", "hold_x", `,"task":{"ttl":"s3cret"}`)),
		ask(toolCall("1", "hold_y", `,"task":{},"_meta":{"server.s3cret":"s3cret"}`)),
		ask(modernCall("hold_z", ""), modernHeaders("s3cret")...),
		ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","arguments":{"a":"s3cret","a":"s3cret"}}}`),
		ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","arguments":{"a":"s3cret` + "\xff" + `"}}}`),
		ask(legacyAbout("tasks/get", "tg_s3cret")),
	}
	for _, answer := range quiet {
		if strings.Contains(answer, "s3cret") {
			t.Errorf("answered %s", answer)
		}
	}
	ask(toolCall("1", "get_x", ""))
	id := taskID(t, ask(toolCall("1", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id))
	wantText(t, "the upstream's answer", ask(legacyAbout("tasks/result", id)), "s3cret")
	for what, text := range map[string]string{"log of the gate": h.log.String(), "log of the approval service": log.String(), "metrics": scrape(h.gateway)} {
		if at := strings.Index(text, "s3cret"); at >= 0 {
			t.Errorf("in the %s: …%s…", what, text[max(0, at-200):min(len(text), at+100)])
		}
	}
	if log.String() == "" || h.log.String() == "" {
		t.Error("the log is empty")
	}
}
