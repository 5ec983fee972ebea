// Package metrics holds every number that the gateway shows to Prometheus.
//
// The rest of the program reports what happened through the methods of
// [Metrics] and knows neither names nor labels nor Prometheus. A nil *Metrics
// counts nothing, so a part that is used without metrics needs no second path.
//
// Every label has few values. Text that an agent chooses freely never becomes a
// label: an unknown method counts as "__other__".
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts what the gateway does. Its methods may be called from any
// goroutine. The nil *Metrics is valid and counts nothing.
type Metrics struct {
	registry *prometheus.Registry

	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec
	byMethod        map[string]*methodSeries // one entry per value of the method label

	upstream         map[string]prometheus.Counter // by outcome
	upstreamDuration prometheus.Histogram

	refused     *prometheus.CounterVec
	refusals    sync.Mutex
	byErrorType map[string]prometheus.Counter // guarded by refusals

	verdicts    *prometheus.CounterVec
	byVerdict   map[verdict]prometheus.Counter // those that most messages get
	overflows   *prometheus.CounterVec
	invalidTask *prometheus.CounterVec
	annotations *prometheus.GaugeVec
	reloads     *prometheus.CounterVec
	tasks       taskSeries
	load        *loadSeries
	storeUp     prometheus.Gauge
	upstreams   upstreamSeries
	build       *prometheus.GaugeVec

	batchSize     prometheus.Histogram
	connections   prometheus.Gauge
	streams       map[string]prometheus.Gauge // by what opened them
	subscriptions prometheus.Gauge
	reconnections *prometheus.CounterVec
	notified      map[string]prometheus.Counter // by where it came from
}

// methodSeries are the series of one method, looked up once. The histogram is
// made when the method is first seen: it has many lines, and most methods are
// used by nobody.
type methodSeries struct {
	succeeded, failed prometheus.Counter
	duration          atomic.Pointer[prometheus.Observer]
}

// Problems with the task of a call.
const (
	TaskRequired  = "required" // there is none, and the tool must be called as a task
	TaskMalformed = "malformed"
)

// Built shows which program runs.
func (m *Metrics) Built(version, goVersion string) {
	if m != nil {
		m.build.WithLabelValues(version, goVersion).Set(1)
	}
}

// CanRefuse puts the types of errors that [Metrics.Refused] may count on the page from
// the start.
func (m *Metrics) CanRefuse(errorTypes ...string) {
	if m == nil {
		return
	}
	m.refusals.Lock()
	defer m.refusals.Unlock()
	for _, t := range errorTypes {
		m.byErrorType[t] = m.refused.WithLabelValues(t)
	}
}

// Handler returns the page that Prometheus reads.
func (m *Metrics) Handler() http.Handler {
	if m == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // a process that may not read /proc still has the rest
	})
}

// RequestDone counts one message of an agent that has been dealt with, and how
// long that took. The method is that of the message, or "batch", "response",
// "GET" or "DELETE"; every outcome but [Success] counts as [Error].
func (m *Metrics) RequestDone(method, outcome string, d time.Duration) {
	if m == nil {
		return
	}
	s, known := m.byMethod[method]
	if !known {
		method, s = other, m.byMethod[other]
	}
	if outcome == Success {
		s.succeeded.Inc()
	} else {
		s.failed.Inc()
	}
	duration := s.duration.Load()
	if duration == nil {
		made := m.requestDuration.WithLabelValues(method)
		duration = &made
		s.duration.Store(duration) // whoever else is here stores the same series
	}
	(*duration).Observe(d.Seconds())
}

// UpstreamDone counts one request to an upstream and how long it took. An
// outcome other than [Success] and [Timeout] counts as [Error].
func (m *Metrics) UpstreamDone(outcome string, d time.Duration) {
	if m == nil {
		return
	}
	c, ok := m.upstream[outcome]
	if !ok {
		c = m.upstream[Error]
	}
	c.Inc()
	m.upstreamDuration.Observe(d.Seconds())
}

// Refused counts one request that the gateway answered with an error of its
// own. The errorType is the stable error_type of that answer.
func (m *Metrics) Refused(errorType string) {
	if m == nil {
		return
	}
	m.refusals.Lock()
	defer m.refusals.Unlock()
	c, ok := m.byErrorType[errorType]
	if !ok {
		if len(m.byErrorType) >= maxErrorTypes {
			errorType = other
		}
		c = m.refused.WithLabelValues(errorType)
		m.byErrorType[errorType] = c
	}
	c.Inc()
}

// A verdict is the labels of what policy said of a message.
type verdict struct {
	kind, action string
	observed     bool
}

// Verdict counts what policy said of one message about a kind of thing.
// Observed says that it was forwarded anyway.
func (m *Metrics) Verdict(kind, action string, observed bool) {
	if m == nil {
		return
	}
	c, ok := m.byVerdict[verdict{kind, action, observed}]
	if !ok {
		c = m.verdicts.WithLabelValues(kind, action, strconv.FormatBool(observed))
	}
	c.Inc()
}

// CatalogOverflowed counts a list of an upstream of which not everything could
// be kept, and which limit was reached.
func (m *Metrics) CatalogOverflowed(upstream, limit string) {
	if m != nil {
		m.overflows.WithLabelValues(upstream, limit).Inc()
	}
}

// InvalidTask counts a call whose task was required or malformed. None is
// forbidden: the gate keeps the tasks that an upstream does not.
func (m *Metrics) InvalidTask(problem string) {
	if m != nil {
		m.invalidTask.WithLabelValues(problem).Inc()
	}
}

// ToolsListed takes note of how many tools of an upstream clients are shown with
// each kind of task support.
func (m *Metrics) ToolsListed(upstream string, bySupport map[string]int) {
	if m == nil {
		return
	}
	for _, support := range []string{"required", "optional", "forbidden"} {
		m.annotations.WithLabelValues(upstream, support).Set(float64(bySupport[support]))
	}
}

// Reloaded counts an attempt to reload the configuration.
func (m *Metrics) Reloaded(outcome string) {
	if m != nil {
		m.reloads.WithLabelValues(outcome).Inc()
	}
}

// StoreUp notes whether the store can be used.
func (m *Metrics) StoreUp(up bool) { //nolint:revive // the gauge is a flag
	if m == nil {
		return
	}
	m.storeUp.Set(0)
	if up {
		m.storeUp.Set(1)
	}
}

// BatchSize counts one JSON-RPC batch of n messages.
func (m *Metrics) BatchSize(n int) {
	if m != nil {
		m.batchSize.Observe(float64(n))
	}
}

// ConnOpened counts a connection from an agent in, until [Metrics.ConnClosed].
func (m *Metrics) ConnOpened() {
	if m != nil {
		m.connections.Inc()
	}
}

// ConnClosed counts a connection out.
func (m *Metrics) ConnClosed() {
	if m != nil {
		m.connections.Dec()
	}
}
