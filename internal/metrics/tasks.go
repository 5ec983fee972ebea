package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Timed stages of a held call.
const (
	StageApproval  = "approval_wait" // from holding the call to the final decision
	StageExecution = "execution"     // from running the call to its end
	StageTotal     = "total"         // from holding the call to its end
)

// Results of waiting for an approval in an open request.
const (
	WaitApproved = "approved"            // the call was run
	WaitRejected = "rejected"            // the call was not allowed to run
	WaitTimeout  = "timeout"             // the client was asked to call again, or the time to decide was over
	WaitGone     = "client_disconnected" // the client closed the request
)

// Events of standing approvals.
const (
	GrantGiven   = "given"
	GrantUsed    = "used"
	GrantRevoked = "revoked"
)

// taskSeries are the series about held calls.
type taskSeries struct {
	created     *prometheus.CounterVec
	completed   *prometheus.CounterVec
	active      *prometheus.GaugeVec
	duration    *prometheus.HistogramVec
	transitions *prometheus.CounterVec
	rateLimited prometheus.Counter
	zombies     prometheus.Counter
	resultBytes prometheus.Counter
	waits       *prometheus.CounterVec
	waited      prometheus.Observer
	audited     *prometheus.CounterVec
	unaudited   prometheus.Counter
	messages    *prometheus.CounterVec
	grants      *prometheus.CounterVec
	unsent      *prometheus.GaugeVec
	listens     *prometheus.GaugeVec
	oldest      *atomic.Int64 // the time of the oldest call that waits for a decision, in Unix nanoseconds; 0 if there is none

	tools *labels
}

// endStates are the states that end a held call.
var endStates = []string{"completed", "failed", "rejected", "cancelled", "expired"}

// working is the first state of every task.
const working = "working"

func newTaskSeries(in factory) taskSeries {
	patience := []float64{1, 5, 15, 60, 300, 900, 3600, 14400, 86400}
	s := taskSeries{
		oldest: new(atomic.Int64), tools: new(labels),
		created:     in.counters("tasks_created_total", "Calls that were held.", "tool"),
		completed:   in.counters("tasks_completed_total", "Held calls that have ended.", "tool", "outcome"),
		active:      in.gauges("tasks_active", "Held calls that have not ended; replicas with one store all count the same ones.", "status"),
		duration:    in.histograms("tasks_duration_seconds", "How long held calls took, by part of their life.", patience, "stage"),
		transitions: in.counters("task_transitions_total", "Changes of state of held calls.", "from", "to"),
		rateLimited: in.counters("task_rate_limited_total", "Calls that were refused because too many are held.").WithLabelValues(),
		resultBytes: in.counters("upstream_result_bytes_total", "Bytes of the results of held calls that were kept.").WithLabelValues(),
		zombies:     in.counters("zombie_execution_prevented_total", "Approved calls that were not run because the client was gone.").WithLabelValues(),
		waits:       in.counters("blocking_approval_total", "Requests that were kept open for an approval, by how that ended.", "result"),
		waited:      in.histograms("blocking_approval_duration_seconds", "How long requests were kept open for an approval.", patience).WithLabelValues(),
		audited:     in.counters("audit_events_total", "Steps of held calls that were recorded in the audit log.", "step"),
		unaudited:   in.counters("audit_failures_total", "Steps of held calls that were not taken because they could not be recorded.").WithLabelValues(),
		grants:      in.counters("grants_total", "Standing approvals that were given and revoked, and calls that they let run.", "event"),
		messages:    in.counters("channel_messages_total", "Messages to people on channels, by how sending ended.", "channel", "outcome"),
		unsent:      in.gauges("channel_messages_waiting", "Messages that could not be sent to a channel yet.", "channel"),
		listens:     in.gauges("channel_listening", "Whether decisions of people on a channel arrive: 1, or 0 if they do not.", "channel"),
	}
	in.auto.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "tasks_oldest_pending_seconds", Help: "Age of the oldest held call that waits for a decision; 0 if none does.",
	}, s.oldestAge)
	begin(s.active.WithLabelValues, working, "input_required", "approved", "executing")
	begin(s.duration.WithLabelValues, StageApproval, StageExecution, StageTotal)
	begin(s.grants.WithLabelValues, GrantGiven, GrantUsed, GrantRevoked)
	begin(s.waits.WithLabelValues, WaitApproved, WaitRejected, WaitTimeout, WaitGone)
	return s
}

func (s *taskSeries) oldestAge() float64 {
	held := s.oldest.Load()
	if held == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, held)).Seconds())
}

// AddTransition creates the series of [Metrics.TaskMoved] for two states with the value 0.
func (m *Metrics) AddTransition(from, to string) {
	m.used().tasks.transitions.WithLabelValues(from, to)
}

// AddSteps creates the series of [Metrics.Audited] for steps with the value 0.
func (m *Metrics) AddSteps(steps ...string) {
	begin(m.used().tasks.audited.WithLabelValues, steps...)
}

// TaskHeld counts a held call of a tool. It is in the first state until [Metrics.TaskMoved].
func (m *Metrics) TaskHeld(tool string) {
	m = m.used()
	tool = m.tasks.tools.bounded(tool)
	for _, end := range endStates {
		m.tasks.completed.WithLabelValues(tool, end)
	}
	m.tasks.created.WithLabelValues(tool).Inc()
	m.tasks.active.WithLabelValues(working).Inc()
}

// TaskRefused counts a call that could not be held.
func (m *Metrics) TaskRefused() {
	m.used().tasks.rateLimited.Inc()
}

// TaskMoved counts a change of state of a held call.
func (m *Metrics) TaskMoved(from, to string) {
	m = m.used()
	m.tasks.transitions.WithLabelValues(from, to).Inc()
	m.tasks.active.WithLabelValues(from).Dec()
	m.tasks.active.WithLabelValues(to).Inc()
}

// TaskEnded counts the end of a held call of a tool, after [Metrics.TaskMoved].
func (m *Metrics) TaskEnded(tool, state string) {
	m = m.used()
	m.tasks.completed.WithLabelValues(m.tasks.tools.bounded(tool), state).Inc()
	m.tasks.active.DeleteLabelValues(state)
}

// TasksCounted sets the numbers of held calls that have not ended, by state, and the time of
// the oldest that waits for a decision, or zero. It corrects the numbers of this process,
// which do not include changes by other replicas.
func (m *Metrics) TasksCounted(byState map[string]int, oldest time.Time) {
	m = m.used()
	for state, n := range byState {
		m.tasks.active.WithLabelValues(state).Set(float64(n))
	}
	held := int64(0)
	if !oldest.IsZero() {
		held = oldest.UnixNano()
	}
	m.tasks.oldest.Store(held)
}

// TaskTook records the duration of a stage of a held call: [StageApproval], [StageExecution]
// or [StageTotal].
func (m *Metrics) TaskTook(stage string, d time.Duration) {
	m.used().tasks.duration.WithLabelValues(stage).Observe(d.Seconds())
}

// ResultKept records the size of the result of a held call, in bytes.
func (m *Metrics) ResultKept(size int64) {
	m.used().tasks.resultBytes.Add(float64(size))
}

// ZombiePrevented counts an approved call that did not run because its client was gone.
func (m *Metrics) ZombiePrevented() {
	m.used().tasks.zombies.Inc()
}

// Audited counts a recorded step of a held call.
func (m *Metrics) Audited(step string) {
	m.used().tasks.audited.WithLabelValues(step).Inc()
}

// AuditFailed counts a step that did not happen because the store could not record it.
func (m *Metrics) AuditFailed() {
	m.used().tasks.unaudited.Inc()
}

// Granted counts an event of a standing approval.
func (m *Metrics) Granted(event string) {
	m.used().tasks.grants.WithLabelValues(event).Inc()
}

// ChannelSent counts a message to a channel. Err is the error of sending it, or nil.
func (m *Metrics) ChannelSent(channel string, err error) {
	m = m.used()
	outcome := Success
	if err != nil {
		outcome = Error
	}
	m.tasks.messages.WithLabelValues(channel, outcome).Inc()
}

// ChannelWaiting sets the number of messages to a channel that failed and will be retried.
func (m *Metrics) ChannelWaiting(channel string, messages int) {
	m.used().tasks.unsent.WithLabelValues(channel).Set(float64(messages))
}

// ChannelReceives sets whether decisions from a channel arrive. Err is nil if they do.
func (m *Metrics) ChannelReceives(channel string, err error) {
	m = m.used()
	value := 1.0
	if err != nil {
		value = 0
	}
	m.tasks.listens.WithLabelValues(channel).Set(value)
}

// RemoveChannel removes the series of a channel.
func (m *Metrics) RemoveChannel(channel string) {
	m = m.used()
	m.tasks.unsent.DeleteLabelValues(channel)
	m.tasks.listens.DeleteLabelValues(channel)
}

// AddChannel creates the series of a channel with the value 0.
func (m *Metrics) AddChannel(channel string) {
	m = m.used()
	for _, outcome := range []string{Success, Error} {
		m.tasks.messages.WithLabelValues(channel, outcome)
	}
	m.ChannelWaiting(channel, 0)
}

// WaitEnded records the result and duration of waiting for an approval in an open request. The
// result is [WaitApproved], [WaitRejected], [WaitTimeout] or [WaitGone].
func (m *Metrics) WaitEnded(result string, after time.Duration) {
	m = m.used()
	m.tasks.waits.WithLabelValues(result).Inc()
	m.tasks.waited.Observe(after.Seconds())
}
