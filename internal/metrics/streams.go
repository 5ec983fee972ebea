package metrics

import "github.com/prometheus/client_golang/prometheus"

// Kinds of event streams, by the request that opened them.
const (
	StreamGet    = "get"
	StreamPost   = "post"
	StreamEvents = "events" // the events of one task, for dashboards
)

// Senders of notifications about held calls.
const (
	FromGate     = "gate"     // to a client
	FromUpstream = "upstream" // to the gate
)

// streamSeries are the series about event streams.
type streamSeries struct {
	open          *prometheus.GaugeVec
	subscriptions prometheus.Gauge
	reconnections *prometheus.CounterVec
	notified      *prometheus.CounterVec
}

func newStreamSeries(in factory) streamSeries {
	s := streamSeries{
		open:          in.gauges("sse_streams_active", "Open event streams to agents.", "kind"),
		subscriptions: in.gauges("sse_upstream_connections_active", "Open streams from upstreams that the gate reads for clients that listen to held calls.").WithLabelValues(),
		reconnections: in.counters("sse_reconnections_total", "Attempts to reopen a lost stream from an upstream.", "result"),
		notified: in.counters("sse_notifications_total", "Notifications about held calls: those that the gate sent, one for each client that listens (gate), "+
			"and those that upstreams sent to the gate about the tasks that they made of held calls (upstream).", "source"),
	}
	begin(s.open.WithLabelValues, StreamGet, StreamPost, StreamEvents)
	begin(s.reconnections.WithLabelValues, Success, Failed)
	begin(s.notified.WithLabelValues, FromGate, FromUpstream)
	return s
}

// StreamOpened counts an open event stream, until [Metrics.StreamClosed] with the same kind:
// [StreamGet], [StreamPost] or [StreamEvents].
func (m *Metrics) StreamOpened(kind string) {
	m.used().streams.open.WithLabelValues(kind).Inc()
}

// StreamClosed ends the effect of [Metrics.StreamOpened].
func (m *Metrics) StreamClosed(kind string) {
	m.used().streams.open.WithLabelValues(kind).Dec()
}

// Notified counts a notification about a held call. The sender is [FromGate] or
// [FromUpstream].
func (m *Metrics) Notified(source string) {
	m.used().streams.notified.WithLabelValues(source).Inc()
}

// SubscriptionOpened counts an open event stream from an upstream, until
// [Metrics.SubscriptionClosed].
func (m *Metrics) SubscriptionOpened() {
	m.used().streams.subscriptions.Inc()
}

// SubscriptionClosed ends the effect of [Metrics.SubscriptionOpened].
func (m *Metrics) SubscriptionClosed() {
	m.used().streams.subscriptions.Dec()
}

// Reconnected counts an attempt to open the event stream of an upstream again, with [Success]
// or [Failed].
func (m *Metrics) Reconnected(result string) {
	m.used().streams.reconnections.WithLabelValues(result).Inc()
}
