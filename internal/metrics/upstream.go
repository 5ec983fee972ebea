package metrics

import "github.com/prometheus/client_golang/prometheus"

// Ways of running an approved call.
const (
	PathSync = "sync" // the upstream answers when the tool has finished
	PathTask = "task" // the upstream creates a task for the call
)

// Outcomes of polling or cancelling a task of an upstream, besides [Success], [Error] and
// [Timeout].
const (
	NotFound = "not_found"
	Failed   = "failed"
)

// upstreamSeries are the series about approved calls at their upstreams.
type upstreamSeries struct {
	executions    *prometheus.CounterVec
	polls         *prometheus.CounterVec
	results       *prometheus.CounterVec
	cancellations *prometheus.CounterVec
}

func newUpstreamSeries(in factory) upstreamSeries {
	s := upstreamSeries{
		executions:    in.counters("upstream_execution_total", "Approved calls that were made, by the way in which.", "path", "status"),
		polls:         in.counters("upstream_lazy_polls_total", "Times that an upstream was asked for the state of its task, because a client asked.", "status"),
		results:       in.counters("upstream_result_streams_total", "Results of upstreams' tasks that were fetched.", "status"),
		cancellations: in.counters("upstream_cancellations_total", "Cancellations that were sent to upstreams.", "result"),
	}
	for _, status := range []string{Success, Error} {
		s.executions.WithLabelValues(PathSync, status)
		s.executions.WithLabelValues(PathTask, status)
	}
	begin(s.results.WithLabelValues, Success, Error)
	begin(s.polls.WithLabelValues, Success, Error, Timeout, NotFound)
	begin(s.cancellations.WithLabelValues, Success, Failed, Timeout)
	return s
}

// ResultStreamed counts an attempt to fetch the result of a task of an upstream, with
// [Success] or [Error].
func (m *Metrics) ResultStreamed(status string) {
	m.used().upstreams.results.WithLabelValues(status).Inc()
}

// UpstreamExecuted counts an approved call that was sent to its upstream. The status is
// [Success] if the upstream answered.
func (m *Metrics) UpstreamExecuted(path, status string) {
	m.used().upstreams.executions.WithLabelValues(path, status).Inc()
}

// LazyPoll counts a request for the status of a task of an upstream.
func (m *Metrics) LazyPoll(status string) {
	m.used().upstreams.polls.WithLabelValues(status).Inc()
}

// UpstreamCancelled counts an attempt to cancel a call or a task at an upstream.
func (m *Metrics) UpstreamCancelled(result string) {
	m.used().upstreams.cancellations.WithLabelValues(result).Inc()
}
