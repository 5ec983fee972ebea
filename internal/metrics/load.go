package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// How questions to people end.
var questionEnds = []string{"approved", "rejected", "expired", "cancelled", "failed"}

// loadSeries are the series about what is asked of people, by workflow.
type loadSeries struct {
	pending *prometheus.GaugeVec
	looked  *prometheus.HistogramVec
	decided *prometheus.HistogramVec
	ended   *prometheus.CounterVec

	workflows *labels
	mu        sync.Mutex
	counted   map[string]bool // the workflows whose gauge is not 0
}

func newLoadSeries(r *prometheus.Registry) *loadSeries {
	patience := []float64{5, 15, 60, 300, 900, 3600, 14400, 86400}
	return &loadSeries{
		workflows: new(labels), counted: map[string]bool{},
		pending: register(r, prometheus.NewGaugeVec(
			gauge("approvals_pending", "Held calls that wait for a decision; replicas with one store all count the same ones."), []string{"workflow"})),
		looked: register(r, prometheus.NewHistogramVec(
			histogram("approval_first_look_seconds", "How long held calls waited until an approver looked at them.", patience), []string{"workflow"})),
		decided: register(r, prometheus.NewHistogramVec(
			histogram("approval_decision_seconds", "How long held calls waited until they were approved or rejected.", patience), []string{"workflow"})),
		ended: register(r, prometheus.NewCounterVec(
			counter("approvals_ended_total", "Held calls that no longer wait for a decision, by how that ended."), []string{"workflow", "outcome"})),
	}
}

// CanAsk makes the series of a workflow appear with 0.
func (m *Metrics) CanAsk(workflow string) {
	if m == nil {
		return
	}
	workflow = m.load.workflows.bounded(workflow)
	m.load.pending.WithLabelValues(workflow)
	m.load.looked.WithLabelValues(workflow)
	m.load.decided.WithLabelValues(workflow)
	for _, outcome := range questionEnds {
		m.load.ended.WithLabelValues(workflow, outcome)
	}
}

// QuestionsCounted says how many calls wait for a decision, by workflow.
func (m *Metrics) QuestionsCounted(pending map[string]int) {
	if m == nil {
		return
	}
	l := m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	totals := map[string]int{}
	for workflow, n := range pending {
		totals[l.workflows.bounded(workflow)] += n
	}
	for workflow := range l.counted {
		if totals[workflow] == 0 {
			l.pending.WithLabelValues(workflow).Set(0)
			delete(l.counted, workflow)
		}
	}
	for workflow, n := range totals {
		l.pending.WithLabelValues(workflow).Set(float64(n))
		l.counted[workflow] = true
	}
}

// QuestionSeen counts how long a call waited until an approver looked at it.
func (m *Metrics) QuestionSeen(workflow string, after time.Duration) {
	if m != nil {
		m.load.looked.WithLabelValues(m.load.workflows.bounded(workflow)).Observe(after.Seconds())
	}
}

// QuestionEnded counts how a question ended, and after how long.
func (m *Metrics) QuestionEnded(workflow, outcome string, after time.Duration) {
	if m == nil {
		return
	}
	workflow = m.load.workflows.bounded(workflow)
	m.load.ended.WithLabelValues(workflow, outcome).Inc()
	if outcome == "approved" || outcome == "rejected" {
		m.load.decided.WithLabelValues(workflow).Observe(after.Seconds())
	}
}
