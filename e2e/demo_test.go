package e2e_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// The demo's server supports both eras at one endpoint, so its gate has to distinguish them by
// message.
func TestDemo(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := demo.New()
		heard := make(chan string, 10)
		cs := s.serveHandler(t, server).connect(t, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				offer(heard, r.Params.Message)
			},
		})

		callText(t, cs, &mcp.CallToolParams{Name: "delete_file", Arguments: map[string]any{"path": "/payroll/bonuses.csv"}})
		report := callText(t, cs, &mcp.CallToolParams{Name: "big_report", Arguments: map[string]any{"megabytes": 1}})
		if len(report) != 1<<20 {
			t.Errorf("the report has %d bytes", len(report))
		}
		slow := &mcp.CallToolParams{Name: "slow_report", Arguments: map[string]any{"seconds": 0.01}}
		slow.SetProgressToken("p")
		callText(t, cs, slow)
		expect(t, heard, "wrote page 1 of 1")

		want := []demo.Call{
			{Tool: "delete_file", Arguments: `{"path":"/payroll/bonuses.csv"}`, Outcome: demo.Done},
			{Tool: "big_report", Arguments: `{"megabytes":1}`, Outcome: demo.Done},
			{Tool: "slow_report", Arguments: `{"seconds":0.01}`, Outcome: demo.Done},
		}
		if diff := cmp.Diff(want, server.Calls()); diff != "" {
			t.Errorf("executed (-want +got):\n%s", diff)
		}
	})
}
