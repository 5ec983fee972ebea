package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// questionEnds are the outcomes of calls that waited for a decision.
var questionEnds = []string{"approved", "rejected", "expired", "cancelled", "failed"}

// approvalSeries are the series about calls that wait for a decision, by workflow.
type approvalSeries struct {
	pending *prometheus.GaugeVec
	looked  *prometheus.HistogramVec
	decided *prometheus.HistogramVec
	ended   *prometheus.CounterVec

	workflows *labels
	mu        sync.Mutex
	counted   map[string]bool // the workflows whose gauge is not 0
}

func newApprovalSeries(in factory) *approvalSeries {
	patience := []float64{5, 15, 60, 300, 900, 3600, 14400, 86400}
	return &approvalSeries{
		workflows: new(labels), counted: map[string]bool{},
		pending: in.gauges("approvals_pending", "Held calls that wait for a decision; replicas with one store all count the same ones.", "workflow"),
		looked:  in.histograms("approval_first_look_seconds", "How long held calls waited until an approver looked at them.", patience, "workflow"),
		decided: in.histograms("approval_decision_seconds", "How long held calls waited until they were approved or rejected.", patience, "workflow"),
		ended:   in.counters("approvals_ended_total", "Held calls that no longer wait for a decision, by how that ended.", "workflow", "outcome"),
	}
}

// AddWorkflow creates the series of a workflow with the value 0.
func (m *Metrics) AddWorkflow(workflow string) {
	m = m.used()
	workflow = m.approvals.workflows.bounded(workflow)
	m.approvals.pending.WithLabelValues(workflow)
	m.approvals.looked.WithLabelValues(workflow)
	m.approvals.decided.WithLabelValues(workflow)
	for _, outcome := range questionEnds {
		m.approvals.ended.WithLabelValues(workflow, outcome)
	}
}

// ApprovalsCounted sets the numbers of calls that wait for a decision, by workflow.
func (m *Metrics) ApprovalsCounted(pending map[string]int) {
	m = m.used()
	l := m.approvals
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

// ApprovalSeen records how long a call waited until an approver first looked at it.
func (m *Metrics) ApprovalSeen(workflow string, after time.Duration) {
	m = m.used()
	m.approvals.looked.WithLabelValues(m.approvals.workflows.bounded(workflow)).Observe(after.Seconds())
}

// ApprovalEnded records the outcome of a call that waited for a decision, and how long it
// waited.
func (m *Metrics) ApprovalEnded(workflow, outcome string, after time.Duration) {
	m = m.used()
	workflow = m.approvals.workflows.bounded(workflow)
	m.approvals.ended.WithLabelValues(workflow, outcome).Inc()
	if outcome == "approved" || outcome == "rejected" {
		m.approvals.decided.WithLabelValues(workflow).Observe(after.Seconds())
	}
}
