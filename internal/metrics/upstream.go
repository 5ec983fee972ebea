package metrics

import "github.com/prometheus/client_golang/prometheus"

// The ways in which an approved call is made.
const (
	PathSync = "sync" // the upstream answers when the tool has run
	PathTask = "task" // the upstream makes a task of it
)

// How asking an upstream about its task, or cancelling that, can end besides
// [Success], [Error] and [Timeout].
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

func newUpstreamSeries(r *prometheus.Registry) upstreamSeries {
	s := upstreamSeries{
		executions: register(r, prometheus.NewCounterVec(
			counter("upstream_execution_total", "Approved calls that were made, by the way in which."), []string{"path", "status"})),
		polls: register(r, prometheus.NewCounterVec(
			counter("upstream_lazy_polls_total", "Times that an upstream was asked for the state of its task, because a client asked."), []string{"status"})),
		results: register(r, prometheus.NewCounterVec(
			counter("upstream_result_streams_total", "Results of upstreams' tasks that were fetched."), []string{"status"})),
		cancellations: register(r, prometheus.NewCounterVec(
			counter("upstream_cancellations_total", "Cancellations that were sent to upstreams."), []string{"result"})),
	}
	for _, status := range []string{Success, Error} {
		begin(s.executions, PathSync, status)
		begin(s.executions, PathTask, status)
		begin(s.results, status)
	}
	for _, status := range []string{Success, Error, Timeout, NotFound} {
		begin(s.polls, status)
	}
	for _, result := range []string{Success, Failed, Timeout} {
		begin(s.cancellations, result)
	}
	return s
}

// ResultStreamed counts the fetching of the result of an upstream's task, with
// [Success] or [Error].
func (m *Metrics) ResultStreamed(status string) {
	if m != nil {
		m.upstreams.results.WithLabelValues(status).Inc()
	}
}

// UpstreamExecuted counts an approved call that was made, with [Success] if the
// upstream answered.
func (m *Metrics) UpstreamExecuted(path, status string) {
	if m != nil {
		m.upstreams.executions.WithLabelValues(path, status).Inc()
	}
}

// LazyPoll counts a question to an upstream how its task stands, by how that
// ended.
func (m *Metrics) LazyPoll(status string) {
	if m != nil {
		m.upstreams.polls.WithLabelValues(status).Inc()
	}
}

// UpstreamCancelled counts an attempt to cancel a call, or a task, of an
// upstream's.
func (m *Metrics) UpstreamCancelled(result string) {
	if m != nil {
		m.upstreams.cancellations.WithLabelValues(result).Inc()
	}
}
