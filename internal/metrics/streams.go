package metrics

import "github.com/prometheus/client_golang/prometheus"

// Kinds of event streams, by what opened them.
const (
	StreamGet    = "get"
	StreamPost   = "post"
	StreamEvents = "events" // those of one task, for dashboards
)

// Senders of notifications about held calls.
const (
	FromGate     = "gate"     // to a client
	FromUpstream = "upstream" // to the gate
)

// registerStreams makes the metrics about event streams.
func (m *Metrics) registerStreams() {
	streams := register(m.registry, prometheus.NewGaugeVec(
		gauge("sse_streams_active", "Open event streams to agents."), []string{"kind"}))
	m.streams = make(map[string]prometheus.Gauge)
	for _, kind := range []string{StreamGet, StreamPost, StreamEvents} {
		m.streams[kind] = streams.WithLabelValues(kind)
	}
	m.subscriptions = register(m.registry, prometheus.NewGauge(
		gauge("sse_upstream_connections_active", "Open streams from upstreams that the gate reads for clients that listen to held calls.")))
	m.reconnections = register(m.registry, prometheus.NewCounterVec(
		counter("sse_reconnections_total", "Attempts to reopen a lost stream from an upstream."), []string{"result"}))
	begin(m.reconnections, Success)
	begin(m.reconnections, Failed)
	notified := register(m.registry, prometheus.NewCounterVec(
		counter("sse_notifications_total", "Notifications about held calls: those that the gate sent, one for each client that listens (gate), "+
			"and those that upstreams sent to the gate about the tasks that they made of held calls (upstream)."), []string{"source"}))
	m.notified = make(map[string]prometheus.Counter)
	for _, source := range []string{FromGate, FromUpstream} {
		m.notified[source] = notified.WithLabelValues(source)
	}
}

// StreamOpened counts an event stream in, until [Metrics.StreamClosed] is called
// the same kind, which is [StreamGet], [StreamPost] or [StreamEvents].
func (m *Metrics) StreamOpened(kind string) {
	if m != nil {
		m.streams[kind].Inc()
	}
}

// StreamClosed counts an event stream out.
func (m *Metrics) StreamClosed(kind string) {
	if m != nil {
		m.streams[kind].Dec()
	}
}

// Notified counts a notification about a held call: one that a client was sent, or
// one that an upstream sent. The source is [FromGate] or [FromUpstream].
func (m *Metrics) Notified(source string) {
	if m != nil {
		m.notified[source].Inc()
	}
}

// SubscriptionOpened counts an upstream's stream that is listened to in, until
// [Metrics.SubscriptionClosed].
func (m *Metrics) SubscriptionOpened() {
	if m != nil {
		m.subscriptions.Inc()
	}
}

// SubscriptionClosed counts an upstream's stream out.
func (m *Metrics) SubscriptionClosed() {
	if m != nil {
		m.subscriptions.Dec()
	}
}

// Reconnected counts an attempt to listen to an upstream again, with [Success]
// or [Failed].
func (m *Metrics) Reconnected(result string) {
	if m != nil {
		m.reconnections.WithLabelValues(result).Inc()
	}
}
