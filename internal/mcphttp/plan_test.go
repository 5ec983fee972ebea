package mcphttp_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// The debug log has one line per request with its plan, in the words of explain.
func TestPlanLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		headers []string
		plan    string
	}{
		"forward":           {toolCall("1", "get_x", ""), nil, "forward (rules[0])"},
		"refuse":            {toolCall("1", "drop_x", ""), nil, "refuse with policy_denied as a tool result (default)"},
		"task":              {toolCall("1", "hold_x", `,"task":{}`), nil, "hold as task for workflow default (rules[2]): the client gets a task"},
		"held request":      {toolCall("1", "hold_x", ""), nil, "hold request for workflow default (rules[2]): the client waits up to 10 milliseconds in its request, then it is asked to call again"},
		"held modern":       {modernCall("hold_x", ""), modernHeaders("hold_x"), "hold request for workflow default (rules[2]): the client waits up to 10 milliseconds in its request, then it is asked to repeat it, 9 times at most"},
		"list":              {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, "forward: the client gets the list without what policy hides"},
		"initialize":        {initialize, nil, "forward: the client gets the capabilities including those of the gate"},
		"about a task":      {legacyAbout("tasks/get", "tg_none"), nil, "answer"},
		"no task object":    {toolCall("1", "hold_x", `,"task":1`), nil, "refuse with invalid_params"},
		"part of the batch": {batch(toolCall("1", "get_x", ""), legacyAbout("tasks/get", "tg_none")), nil, "forward; the gate answers 1 of the batch"},
		"denied in a batch": {batch(toolCall("1", "get_x", ""), toolCall("2", "drop_x", "")), nil, "forward; the gate answers 1 of the batch"},
		"denied batch":      {batch(toolCall("1", "hold_x", ""), toolCall("2", "drop_x", "")), nil, "refuse"},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(logBuffer)
			h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
			h.gateway = startGate(t, h.target, func(s settings) {
				s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, h.waiting
				s.handler.Log = logging.New(log, "json", slog.LevelDebug)
			})
			h.ask(tt.message, tt.headers...)
			if plans := plansIn(t, log.String()); len(plans) != 1 || plans[0] != tt.plan {
				t.Errorf("the log has the plans %q; want %q", plans, tt.plan)
			}
		})
	}
}

// plansIn returns the plans in a log.
func plansIn(t *testing.T, log string) (plans []string) {
	t.Helper()
	for line := range strings.Lines(log) {
		var entry struct {
			Message string `json:"msg"`
			Plan    string `json:"plan"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if entry.Message == "planned" {
			plans = append(plans, entry.Plan)
		}
	}
	return plans
}
