package conversation

import (
	"context"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// BenchmarkCheckTask has the budget of CORE-007 NF-001.3, 1 ms, for parsing a call and checking its
// task parameter.
func BenchmarkCheckTask(b *testing.B) {
	text := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/a"},"task":{"ttl":60000}}}`)
	c := policyCheck{out: responder{era: mcp.Legacy}}
	for b.Loop() {
		m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		if problem := c.checkTask(m); problem != nil {
			b.Fatal(problem)
		}
	}
}

// BenchmarkFinalReport has the budget of GOV-004 NF-001.4, 50 ms, for handling the final report of
// a task after many other reports.
func BenchmarkFinalReport(b *testing.B) {
	for b.Loop() {
		r, acted := newReports(), make(chan struct{})
		for range 2 * reportBurst {
			r.take(b.Context(), "tg_1", report{act: func(context.Context) {}})
		}
		r.take(b.Context(), "tg_1", report{final: true, act: func(context.Context) { close(acted) }})
		<-acted
		r.close()
	}
}
