package clients_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// scenarios are the scenarios of the official suite about tasks, each with the checks that
// fail. All other checks must pass, and the named ones must fail, so that the list stays
// correct. The suite itself skips one more scenario, about notifications.
func scenarios() map[string][]string {
	return map[string][]string{
		"tasks-lifecycle":              nil,
		"tasks-capability-negotiation": nil,
		"tasks-wire-fields":            nil,
		"tasks-request-state-removal":  nil,
		"tasks-request-headers":        nil,
		"tasks-dispatch-and-envelope":  nil,
		"tasks-required-task-error":    nil,
		// The gate requests an approval before the tool is called, so its task exists before
		// the tool can send requests to its client.
		"tasks-mrtr-composition": {"sep-2663-mrtr-synchronous-before-task-creation"},
		"tasks-mrtr-input":       nil,
	}
}

// The suite tests the tasks of the gate: the server behind it has none. A test approver
// approves all held calls.
func TestTasksConformance(t *testing.T) {
	testenv.NeedNode(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	official, err := suite.Install(t.Context(), filepath.Join(cache, "thoughtgate"))
	if err != nil {
		t.Fatal(err)
	}
	for name, failing := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{}
			s.url, s.operator, s.token = openGate(t, newJobs(), jobsPolicy)
			s.approveAll(t)
			results, err := official.Run(t.Context(), suite.Target{URL: s.url, Scenario: name}, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if results.Count(name, suite.Success) == 0 {
				t.Errorf("all checks fail: %+v", results)
			}
			var failed []string
			for _, check := range results[name] {
				if check.Status != suite.Success {
					failed = append(failed, check.ID)
					t.Logf("%s: %s", check.ID, check.Message)
				}
			}
			if diff := cmp.Diff(failing, failed); diff != "" {
				t.Errorf("failing checks (-want +got):\n%s", diff)
			}
		})
	}
}

// approveAll approves all held calls until the test ends. It ignores the error of a call that
// its client has cancelled.
func (s *site) approveAll(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			held, _ := s.list(ctx, "pending")
			for _, a := range held {
				_ = s.decided(ctx, a, "approve")
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { stop(); <-stopped })
}

// jobsPolicy is the policy for the tools of the scenarios: greet is not held, and failing_job
// can be called only as a task.
const jobsPolicy = `
rules:
  - {match: greet, action: forward}
default: approve
tasks: {min_poll_interval: 100ms, max_poll_interval: 100ms, max_pending_per_owner: 100, force_required: [failing_job]}
`

// newJobs returns a server with these tools.
func newJobs() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "jobs", Version: "1"}, nil)
	for name, run := range map[string]mcp.ToolHandler{
		"greet": greet, "slow_compute": slowCompute, "failing_job": failingJob, "protocol_error_job": protocolErrorJob,
		"confirm_delete": asking("confirm"), "multi_input": asking("first", "second"), "test_tool_with_task": asking("user_name"),
	} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, run)
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
}

func says(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func greet(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Name string `json:"name"`
	}
	err := json.Unmarshal(r.Params.Arguments, &args)
	return says("Hello, " + args.Name + "!"), err
}

func slowCompute(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
		return nil, err
	}
	done := time.NewTimer(time.Duration(args.Seconds * float64(time.Second)))
	defer done.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-done.C:
		return says("computed"), nil
	}
}

func failingJob(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res := says("it did not work")
	res.IsError = true
	return res, nil
}

func protocolErrorJob(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke"}
}

// asking returns a tool that waits until the client has answered its requests.
func asking(questions ...string) mcp.ToolHandler {
	return func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		open := mcp.InputRequestMap{}
		for _, q := range questions {
			open[q] = &mcp.ElicitParams{Message: q + "?", RequestedSchema: map[string]any{
				"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
			}}
		}
		if len(r.Params.InputResponses) < len(questions) {
			return &mcp.CallToolResult{InputRequests: open}, nil
		}
		var answers []string
		for _, q := range questions {
			if answer, ok := r.Params.InputResponses[q].(*mcp.ElicitResult); ok {
				answers = append(answers, fmt.Sprint(answer.Content["name"]))
			}
		}
		slices.Sort(answers)
		return says(fmt.Sprint(answers)), nil
	}
}
