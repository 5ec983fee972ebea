// Package metrics has all metrics of the gate for Prometheus.
//
// The rest of the program reports events through the methods of [Metrics], and does not
// depend on names, labels or Prometheus:
//
//	m := metrics.New()
//	m.RequestDone("tools/call", metrics.Success, 20*time.Millisecond)
//	http.Handle("/metrics", m.Handler())
//
// A nil *Metrics counts nothing that can be seen, so callers need not check for nil.
//
// Every label has a limited number of values. An agent cannot create values without limit:
// an unknown method counts as "__other__". Series with known labels begin with the value 0,
// because without a first value Prometheus misses the first event in a rate.
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts the work of the gate. It is safe for concurrent use. The nil *Metrics is
// valid and counts nothing that can be seen.
type Metrics struct {
	registry *prometheus.Registry

	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec

	upstream         *prometheus.CounterVec
	upstreamDuration prometheus.Observer

	refused    *prometheus.CounterVec
	errorTypes labels // of refused; limited in case a caller passes a message as the type

	verdicts    *prometheus.CounterVec
	overflows   *prometheus.CounterVec
	invalidTask *prometheus.CounterVec
	annotations *prometheus.GaugeVec
	reloads     *prometheus.CounterVec
	tasks       taskSeries
	approvals   *approvalSeries
	storeUp     prometheus.Gauge
	upstreams   upstreamSeries
	streams     streamSeries
	build       *prometheus.GaugeVec

	unrecorded  prometheus.Counter
	batchSize   prometheus.Observer
	connections prometheus.Gauge
}

// unseen counts for the nil *Metrics. It has no page.
var unseen = sync.OnceValue(New)

// used returns the metrics that count the events of m.
func (m *Metrics) used() *Metrics {
	if m == nil {
		return unseen()
	}
	return m
}

// Problems with the task of a call.
const (
	TaskRequired  = "required" // the call has no task, but the tool requires one
	TaskMalformed = "malformed"
)

// SetBuild sets the version of the program.
func (m *Metrics) SetBuild(version, goVersion string) {
	m.used().build.WithLabelValues(version, goVersion).Set(1)
}

// AddErrorTypes creates series with the value 0 for types of errors that [Metrics.Refused]
// may count.
func (m *Metrics) AddErrorTypes(errorTypes ...string) {
	m = m.used()
	for _, t := range errorTypes {
		m.refused.WithLabelValues(m.errorTypes.bounded(t))
	}
}

// Handler returns the handler for Prometheus.
func (m *Metrics) Handler() http.Handler {
	if m == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // a process without access to /proc still shows the other metrics
	})
}

// RequestDone counts one message of an agent with its duration. The method is the method of
// the message, or "batch", "response", "GET" or "DELETE". Every outcome except [Success]
// counts as [Error].
func (m *Metrics) RequestDone(method, outcome string, d time.Duration) {
	m = m.used()
	if !methods[method] {
		method = other
	}
	if outcome != Success {
		outcome = Error
	}
	m.requests.WithLabelValues(method, outcome).Inc()
	m.requestDuration.WithLabelValues(method).Observe(d.Seconds())
}

// UpstreamDone counts one request to an upstream with its duration. Every outcome except
// [Success] and [Timeout] counts as [Error].
func (m *Metrics) UpstreamDone(outcome string, d time.Duration) {
	m = m.used()
	if outcome != Success && outcome != Timeout {
		outcome = Error
	}
	m.upstream.WithLabelValues(outcome).Inc()
	m.upstreamDuration.Observe(d.Seconds())
}

// Refused counts one request that the gate refused. ErrorType is the stable error_type of the
// answer.
func (m *Metrics) Refused(errorType string) {
	m = m.used()
	m.refused.WithLabelValues(m.errorTypes.bounded(errorType)).Inc()
}

// Verdict counts one verdict of the policy, by the kind of the requested object. Observed
// means that the message was forwarded anyway.
func (m *Metrics) Verdict(kind, action string, observed bool) {
	m.used().verdicts.WithLabelValues(kind, action, strconv.FormatBool(observed)).Inc()
}

// CatalogOverflowed counts a list of an upstream that exceeded a limit, so that the gate could
// not keep all of it.
func (m *Metrics) CatalogOverflowed(upstream, limit string) {
	m.used().overflows.WithLabelValues(upstream, limit).Inc()
}

// InvalidTask counts a call with a missing or malformed task. Tasks are never forbidden, since
// the gate provides them for upstreams without tasks.
func (m *Metrics) InvalidTask(problem string) {
	m.used().invalidTask.WithLabelValues(problem).Inc()
}

// ToolsListed sets the numbers of listed tools of an upstream, by task support.
func (m *Metrics) ToolsListed(upstream string, bySupport map[string]int) {
	m = m.used()
	for _, support := range []string{"required", "optional", "forbidden"} {
		m.annotations.WithLabelValues(upstream, support).Set(float64(bySupport[support]))
	}
}

// Reloaded counts an attempt to reload the configuration.
func (m *Metrics) Reloaded(outcome string) {
	m.used().reloads.WithLabelValues(outcome).Inc()
}

// StoreUp sets whether the store is available.
func (m *Metrics) StoreUp(up bool) { //nolint:revive // the gauge is a flag
	m = m.used()
	m.storeUp.Set(0)
	if up {
		m.storeUp.Set(1)
	}
}

// CallsNotRecorded counts entries that the record of calls lacks.
func (m *Metrics) CallsNotRecorded(n int) {
	m.used().unrecorded.Add(float64(n))
}

// BatchSize counts one JSON-RPC batch of n messages.
func (m *Metrics) BatchSize(n int) {
	m.used().batchSize.Observe(float64(n))
}

// ConnOpened counts an open connection of an agent, until [Metrics.ConnClosed].
func (m *Metrics) ConnOpened() {
	m.used().connections.Inc()
}

// ConnClosed ends the effect of [Metrics.ConnOpened].
func (m *Metrics) ConnClosed() {
	m.used().connections.Dec()
}
