package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

// advice is the text that the documentation adds to the help of a metric: the values of its
// labels, and how to read it.
var advice = map[string]string{
	"approval_first_look_seconds":   "Each call counts once, on one replica.",
	"approvals_ended_total":         "`outcome` is `approved`, `rejected`, `expired`, `cancelled` or `failed`.",
	"blocking_approval_total":       "`result` is `approved`, `rejected`, `timeout` (the agent must call again, or time ran out) or `client_disconnected`.",
	"catalog_overflows_total":       "`limit` is `tool`, `client`, `upstream` or `memory`.",
	"channel_messages_total":        "`outcome` is `success` or `error`.",
	"config_reloads_total":          "`status` is `success` or `error`.",
	"grants_total":                  "`event` is `given`, `revoked` or `used`.",
	"mcp_request_duration_seconds":  "It includes the time held for approval.",
	"mcp_requests_total":            "A request is an `error` if the gate refused it, its client left, or the upstream answered with an error.",
	"mcp_upstream_duration_seconds": "For streams that clients keep open, until they begin.",
	"mcp_upstream_requests_total":   "`status` is `success`, `error` (HTTP 5xx, broken answers) or `timeout`; a JSON-RPC error is a success.",
	"sse_streams_active":            "`kind` is `get`, `post`, or `events` of single tasks.",
	"task_validation_errors_total":  "`error` is `required` or `malformed`.",
	"tasks_duration_seconds":        "`stage` is `approval_wait`, `execution` or `total`.",
	"upstream_execution_total":      "`path` is `sync`, or `task` for a task of the upstream.",
}

// TestDocumented checks, or generates, the list of metrics in the documentation.
func TestDocumented(t *testing.T) {
	m := New()
	m.RequestDone("tools/call", Success, time.Second)
	m.Refused("parse_error")
	m.CatalogOverflowed("files", "tool")
	m.ToolsListed("files", nil)
	m.TaskHeld("delete_file")
	m.AddTransition("working", "failed")
	m.AddSteps("held")
	m.AddChannel("risk")
	m.AddWorkflow("ops")
	m.ChannelReceives("risk", nil)
	m.SetBuild("v1", "go1")
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list string
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), namespace+"_") {
			names = append(names, f.GetName())
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
			kind := strings.ToLower(f.GetType().String())
			if labels != nil {
				kind += " by " + strings.Join(labels, ", ")
			}
			list += fmt.Sprintf("- `%s` (%s): %s\n", f.GetName(), kind, doctest.Sentence(f.GetHelp(), advice[strings.TrimPrefix(f.GetName(), namespace+"_")]))
		}
	}
	for _, name := range registered(m.registry) {
		if strings.HasPrefix(name, namespace+"_") && !slices.Contains(names, name) {
			t.Errorf("this test creates no series of %s", name)
		}
	}
	doctest.Generated(t, "../../docs/metrics.md", "metrics", list)
}

// registered returns the names of all metrics in r.
func registered(r *prometheus.Registry) []string {
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		r.Describe(all)
	}()
	var names []string
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range all {
		if m := name.FindStringSubmatch(d.String()); m != nil {
			names = append(names, m[1])
		}
	}
	return names
}
