package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxTools is how many tools have series of their own. Agents and upstreams
// choose the names, so they must not be able to fill the page.
const maxTools = 200

// Parts of the life of a held call that are timed.
const (
	StageApproval  = "approval_wait" // from holding it to the final decision
	StageExecution = "execution"     // from starting it to its end
	StageTotal     = "total"         // from holding it to its end
)

// How waiting in an open request ended.
const (
	WaitApproved = "approved"            // the call was run
	WaitRejected = "rejected"            // the call was not allowed to run
	WaitTimeout  = "timeout"             // the client was asked to come again, or time ran out
	WaitGone     = "client_disconnected" // the client left
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
	waited      prometheus.Histogram
	audited     *prometheus.CounterVec
	unaudited   prometheus.Counter
	messages    *prometheus.CounterVec
	grants      *prometheus.CounterVec
	unsent      *prometheus.GaugeVec
	listens     *prometheus.GaugeVec
	oldest      *atomic.Int64 // when the oldest call was held that still waits, in Unix nanoseconds; 0 if none does

	tools *labels
}

// The states in which a held call has not ended, and those that end it.
var (
	pendingStates = []string{working, "input_required", "approved", "executing"}
	endStates     = []string{"completed", "failed", "rejected", "cancelled", "expired"}
)

// working is the state in which every task begins.
const working = "working"

func newTaskSeries(r *prometheus.Registry) taskSeries {
	patience := []float64{1, 5, 15, 60, 300, 900, 3600, 14400, 86400}
	s := taskSeries{
		oldest: new(atomic.Int64), tools: new(labels),
		created: register(r, prometheus.NewCounterVec(
			counter("tasks_created_total", "Calls that were held."), []string{"tool"})),
		completed: register(r, prometheus.NewCounterVec(
			counter("tasks_completed_total", "Held calls that have ended."), []string{"tool", "outcome"})),
		active: register(r, prometheus.NewGaugeVec(
			gauge("tasks_active", "Held calls that have not ended; replicas with one store all count the same ones."), []string{"status"})),
		duration: register(r, prometheus.NewHistogramVec(
			histogram("tasks_duration_seconds", "How long held calls took, by part of their life.", patience), []string{"stage"})),
		transitions: register(r, prometheus.NewCounterVec(
			counter("task_transitions_total", "Changes of state of held calls."), []string{"from", "to"})),
		rateLimited: register(r, prometheus.NewCounter(
			counter("task_rate_limited_total", "Calls that were refused because too many are held."))),
		resultBytes: register(r, prometheus.NewCounter(
			counter("upstream_result_bytes_total", "Bytes of the results of held calls that were kept."))),
		zombies: register(r, prometheus.NewCounter(
			counter("zombie_execution_prevented_total", "Approved calls that were not run because the client was gone."))),
		waits: register(r, prometheus.NewCounterVec(
			counter("blocking_approval_total", "Requests that were kept open for an approval, by how that ended."), []string{"result"})),
		waited: register(r, prometheus.NewHistogram(
			histogram("blocking_approval_duration_seconds", "How long requests were kept open for an approval.", patience))),
		audited: register(r, prometheus.NewCounterVec(
			counter("audit_events_total", "Steps of held calls that were recorded in the audit log."), []string{"step"})),
		unaudited: register(r, prometheus.NewCounter(
			counter("audit_failures_total", "Steps of held calls that were not taken because they could not be recorded."))),
		grants: register(r, prometheus.NewCounterVec(
			counter("grants_total", "Standing approvals that were given and revoked, and calls that they let run."), []string{"event"})),
		messages: register(r, prometheus.NewCounterVec(
			counter("channel_messages_total", "Messages to people on channels, by how sending ended."), []string{"channel", "outcome"})),
		unsent: register(r, prometheus.NewGaugeVec(
			gauge("channel_messages_waiting", "Messages that could not be sent to a channel yet."), []string{"channel"})),
		listens: register(r, prometheus.NewGaugeVec(
			gauge("channel_listening", "Whether decisions of people on a channel arrive: 1, or 0 if they do not."), []string{"channel"})),
	}
	register(r, prometheus.NewGaugeFunc(
		gauge("tasks_oldest_pending_seconds", "Age of the oldest held call that waits for a decision; 0 if none does."), s.oldestAge))
	s.begin()
	return s
}

// begin puts the series on the page that are known before anything happens.
func (s *taskSeries) begin() {
	for _, state := range pendingStates {
		s.active.WithLabelValues(state)
	}
	for _, stage := range []string{StageApproval, StageExecution, StageTotal} {
		s.duration.WithLabelValues(stage)
	}
	for _, event := range []string{GrantGiven, GrantUsed, GrantRevoked} {
		begin(s.grants, event)
	}
	for _, result := range []string{WaitApproved, WaitRejected, WaitTimeout, WaitGone} {
		begin(s.waits, result)
	}
}

func (s *taskSeries) oldestAge() float64 {
	held := s.oldest.Load()
	if held == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, held)).Seconds())
}

// CanMove says that held calls may change from one state to another, so that
// [Metrics.TaskMoved] begins with 0 for that.
func (m *Metrics) CanMove(from, to string) {
	if m != nil {
		begin(m.tasks.transitions, from, to)
	}
}

// CanRecord puts the steps that [Metrics.Audited] may count on the page.
func (m *Metrics) CanRecord(steps ...string) {
	if m == nil {
		return
	}
	for _, step := range steps {
		begin(m.tasks.audited, step)
	}
}

// TaskHeld counts a call of a tool that was held. It is in the state in which
// tasks begin until [Metrics.TaskMoved].
func (m *Metrics) TaskHeld(tool string) {
	if m == nil {
		return
	}
	tool = m.tasks.tools.bounded(tool)
	for _, end := range endStates {
		begin(m.tasks.completed, tool, end)
	}
	m.tasks.created.WithLabelValues(tool).Inc()
	m.tasks.active.WithLabelValues(working).Inc()
}

// TaskRefused counts a call that could not be held.
func (m *Metrics) TaskRefused() {
	if m != nil {
		m.tasks.rateLimited.Inc()
	}
}

// TaskMoved counts a change of state of a held call.
func (m *Metrics) TaskMoved(from, to string) {
	if m != nil {
		m.tasks.transitions.WithLabelValues(from, to).Inc()
		m.tasks.active.WithLabelValues(from).Dec()
		m.tasks.active.WithLabelValues(to).Inc()
	}
}

// TaskEnded counts the end of a held call of a tool, after [Metrics.TaskMoved].
func (m *Metrics) TaskEnded(tool, state string) {
	if m != nil {
		m.tasks.completed.WithLabelValues(m.tasks.tools.bounded(tool), state).Inc()
		m.tasks.active.DeleteLabelValues(state)
	}
}

// TasksCounted corrects how many held calls there are in each state that does
// not end them, and since when the oldest waits for a decision, which is zero if
// none does: this process does not see all that others do.
func (m *Metrics) TasksCounted(byState map[string]int, oldest time.Time) {
	if m == nil {
		return
	}
	for state, n := range byState {
		m.tasks.active.WithLabelValues(state).Set(float64(n))
	}
	held := int64(0)
	if !oldest.IsZero() {
		held = oldest.UnixNano()
	}
	m.tasks.oldest.Store(held)
}

// TaskTook records how long a part of the life of a held call took. The stage
// is [StageApproval], [StageExecution] or [StageTotal].
func (m *Metrics) TaskTook(stage string, d time.Duration) {
	if m != nil {
		m.tasks.duration.WithLabelValues(stage).Observe(d.Seconds())
	}
}

// ResultKept counts the bytes of a held call's result.
func (m *Metrics) ResultKept(size int64) {
	if m != nil {
		m.tasks.resultBytes.Add(float64(size))
	}
}

// ZombiePrevented counts an approved call that was not run because its client
// had gone.
func (m *Metrics) ZombiePrevented() {
	if m != nil {
		m.tasks.zombies.Inc()
	}
}

// Audited counts a step of a held call that was recorded.
func (m *Metrics) Audited(step string) {
	if m != nil {
		m.tasks.audited.WithLabelValues(step).Inc()
	}
}

// AuditFailed counts a step that was not taken because the store failed to
// record it.
func (m *Metrics) AuditFailed() {
	if m != nil {
		m.tasks.unaudited.Inc()
	}
}

// Granted counts what happened to a standing approval.
func (m *Metrics) Granted(event string) {
	if m != nil {
		m.tasks.grants.WithLabelValues(event).Inc()
	}
}

// ChannelSent counts a message to people on a channel.
func (m *Metrics) ChannelSent(channel string, err error) {
	if m == nil {
		return
	}
	outcome := Success
	if err != nil {
		outcome = Error
	}
	m.tasks.messages.WithLabelValues(channel, outcome).Inc()
}

// ChannelWaiting says how many messages could not be sent to a channel yet.
func (m *Metrics) ChannelWaiting(channel string, messages int) {
	if m != nil {
		m.tasks.unsent.WithLabelValues(channel).Set(float64(messages))
	}
}

// ChannelListens says why decisions of people on a channel do not arrive; nil if they
// do.
func (m *Metrics) ChannelListens(channel string, err error) {
	if m == nil {
		return
	}
	value := 1.0
	if err != nil {
		value = 0
	}
	m.tasks.listens.WithLabelValues(channel).Set(value)
}

// ChannelGone removes what was said about a channel that is no longer there.
func (m *Metrics) ChannelGone(channel string) {
	if m != nil {
		m.tasks.unsent.DeleteLabelValues(channel)
		m.tasks.listens.DeleteLabelValues(channel)
	}
}

// CanSend makes the series of a channel appear with 0.
func (m *Metrics) CanSend(channel string) {
	if m == nil {
		return
	}
	for _, outcome := range []string{Success, Error} {
		m.tasks.messages.WithLabelValues(channel, outcome)
	}
	m.ChannelWaiting(channel, 0)
}

// WaitEnded counts a request that was kept open for an approval. The result is
// [WaitApproved], [WaitRejected], [WaitTimeout] or [WaitGone].
func (m *Metrics) WaitEnded(result string, after time.Duration) {
	if m != nil {
		m.tasks.waits.WithLabelValues(result).Inc()
		m.tasks.waited.Observe(after.Seconds())
	}
}

// labels are the values of a label that others choose, bounded in number.
type labels struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// bounded returns value if it is one of the first [maxTools], and otherwise
// what stands for all the others.
func (l *labels) bounded(value string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[value]; ok {
		return value
	}
	if len(l.known) >= maxTools || len(value) > maxToolName {
		return other
	}
	if l.known == nil {
		l.known = make(map[string]struct{})
	}
	l.known[value] = struct{}{}
	return value
}

// maxToolName is the length of the longest name that becomes a label.
const maxToolName = 128
