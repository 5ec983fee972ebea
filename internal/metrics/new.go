package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// New returns metrics in a registry of their own, together with those of the
// Go runtime and of the process.
func New() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m := &Metrics{
		registry:    r,
		byMethod:    make(map[string]*methodSeries, len(methods)),
		byErrorType: make(map[string]prometheus.Counter),

		requests: register(r, prometheus.NewCounterVec(
			counter("mcp_requests_total", "MCP messages from agents that were handled."),
			[]string{"method", "status"})),
		requestDuration: register(r, prometheus.NewHistogramVec(
			histogram("mcp_request_duration_seconds", "Time from the receipt of an agent's message to the end of its answer.", seconds()),
			[]string{"method"})),
		upstreamDuration: register(r, prometheus.NewHistogram(
			histogram("mcp_upstream_duration_seconds", "Time from sending a request upstream to the end of the answer.", seconds()))),
		refused: register(r, prometheus.NewCounterVec(
			counter("mcp_refused_total", "Requests that the gateway answered with an error of its own."),
			[]string{"error_type"})),
		batchSize: register(r, prometheus.NewHistogram(
			histogram("mcp_batch_size", "Messages in a JSON-RPC batch.", []float64{1, 2, 5, 10, 20, 50, 100}))),
		connections: register(r, prometheus.NewGauge(
			gauge("mcp_connections_active", "Open connections from agents."))),
	}
	m.registerPolicy()
	m.tasks = newTaskSeries(r)
	m.load = newLoadSeries(r)
	m.upstreams = newUpstreamSeries(r)
	for _, method := range methods {
		m.byMethod[method] = &methodSeries{
			succeeded: m.requests.WithLabelValues(method, Success),
			failed:    m.requests.WithLabelValues(method, Error),
		}
	}
	upstream := register(r, prometheus.NewCounterVec(
		counter("mcp_upstream_requests_total", "Requests sent to upstreams."), []string{"status"}))
	m.upstream = map[string]prometheus.Counter{
		Success: upstream.WithLabelValues(Success),
		Error:   upstream.WithLabelValues(Error),
		Timeout: upstream.WithLabelValues(Timeout),
	}
	m.registerStreams()
	m.build = register(r, prometheus.NewGaugeVec(
		gauge("build_info", "Build information; always 1."), []string{"version", "go_version"}))
	return m
}

// registerPolicy makes the metrics about policy.
func (m *Metrics) registerPolicy() {
	r := m.registry
	m.overflows = register(r, prometheus.NewCounterVec(
		counter("catalog_overflows_total", "Lists with more than can be kept of one tool, for one client, or of one upstream; the rest counts as unknown."),
		[]string{"upstream", "limit"}))
	m.verdicts = register(r, prometheus.NewCounterVec(
		counter("policy_verdicts_total", "Policy decisions about governed messages; observed ones were forwarded anyway."),
		[]string{"kind", "action", "observed"}))
	m.invalidTask = register(r, prometheus.NewCounterVec(
		counter("task_validation_errors_total", "Calls whose task was missing or malformed."),
		[]string{"error"}))
	m.annotations = register(r, prometheus.NewGaugeVec(
		gauge("tools_by_annotation", "Tools of each upstream that clients were shown in the last hour, by their task support."),
		[]string{"upstream", "annotation"}))
	m.reloads = register(r, prometheus.NewCounterVec(
		counter("config_reloads_total", "Attempts to reload the configuration."),
		[]string{"status"}))
	m.storeUp = register(r, prometheus.NewGauge(
		gauge("store_up", "Whether the store of held calls can be used: 1, or 0.")))
	m.storeUp.Set(1)
	m.byVerdict = make(map[verdict]prometheus.Counter)
	for _, kind := range []string{"tool", "resource", "prompt"} {
		for _, action := range []string{"forward", "approve", "deny"} {
			m.byVerdict[verdict{kind: kind, action: action}] = m.verdicts.WithLabelValues(kind, action, "false")
		}
	}
	for _, problem := range []string{TaskRequired, TaskMalformed} {
		begin(m.invalidTask, problem)
	}
	begin(m.reloads, Success)
	begin(m.reloads, Error)
}
