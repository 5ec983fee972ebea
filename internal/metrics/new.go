package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// New returns metrics in a new registry, with the metrics of the Go runtime and of the
// process.
func New() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	in := factory{promauto.With(r)}
	m := &Metrics{
		registry: r,
		tasks:    newTaskSeries(in), approvals: newApprovalSeries(in), upstreams: newUpstreamSeries(in), streams: newStreamSeries(in),

		requests:         in.counters("mcp_requests_total", "MCP messages from agents that were handled.", "method", "status"),
		requestDuration:  in.histograms("mcp_request_duration_seconds", "Time from the receipt of an agent's message to the end of its answer.", seconds(), "method"),
		upstream:         in.counters("mcp_upstream_requests_total", "Requests sent to upstreams.", "status"),
		upstreamDuration: in.histograms("mcp_upstream_duration_seconds", "Time from sending a request upstream to the end of the answer.", seconds()).WithLabelValues(),
		refused:          in.counters("mcp_refused_total", "Requests that the gateway answered with an error of its own.", "error_type"),
		batchSize:        in.histograms("mcp_batch_size", "Messages in a JSON-RPC batch.", []float64{1, 2, 5, 10, 20, 50, 100}).WithLabelValues(),
		unrecorded:       in.counters("calls_not_recorded_total", "Entries that are missing in the record of calls, because the store did not take them.").WithLabelValues(),
		connections:      in.gauges("mcp_connections_active", "Open connections from agents.").WithLabelValues(),
		overflows: in.counters("catalog_overflows_total",
			"Lists with more than can be kept of one tool, for one client, or of one upstream; the rest counts as unknown.", "upstream", "limit"),
		verdicts: in.counters("policy_verdicts_total",
			"Policy decisions about governed messages; observed ones were forwarded anyway.", "kind", "action", "observed"),
		invalidTask: in.counters("task_validation_errors_total", "Calls whose task was missing or malformed.", "error"),
		annotations: in.gauges("tools_by_annotation",
			"Tools of each upstream that clients were shown in the last hour, by their task support.", "upstream", "annotation"),
		reloads: in.counters("config_reloads_total", "Attempts to reload the configuration.", "status"),
		storeUp: in.gauges("store_up", "Whether the store of held calls can be used: 1, or 0.").WithLabelValues(),
		build:   in.gauges("build_info", "Build information; always 1.", "version", "go_version"),
	}
	m.storeUp.Set(1)
	for _, status := range []string{Success, Error} {
		for method := range methods {
			m.requests.WithLabelValues(method, status)
		}
	}
	begin(m.upstream.WithLabelValues, Success, Error, Timeout)
	begin(m.reloads.WithLabelValues, Success, Error)
	for _, kind := range []string{"tool", "resource", "prompt"} {
		for _, action := range []string{"forward", "approve", "deny"} {
			m.verdicts.WithLabelValues(kind, action, "false")
		}
	}
	begin(m.invalidTask.WithLabelValues, TaskRequired, TaskMalformed)
	return m
}
