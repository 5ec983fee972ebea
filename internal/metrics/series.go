package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes of requests.
const (
	Success = "success"
	Error   = "error"
	Timeout = "timeout" // only for requests to an upstream
)

const (
	namespace = "thoughtgate"

	// other replaces label values beyond the limit.
	other = "__other__"
)

// begin creates series of a vector with one label, with the value 0. With is its method
// WithLabelValues.
func begin[T any](with func(...string) T, values ...string) {
	for _, v := range values {
		with(v)
	}
}

// seconds returns bucket bounds for durations from forwarding a call to waiting for a person.
func seconds() []float64 {
	return []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
}

// A factory creates metrics in a registry.
type factory struct{ auto promauto.Factory }

func (in factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return in.auto.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (in factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return in.auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (in factory) histograms(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return in.auto.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: bounds}, labels)
}

// labels are the values of a label that agents or upstreams choose, up to a limit.
type labels struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// Limits of labels.
const (
	maxValues      = 200
	maxValueLength = 128
)

// bounded returns value if it is one of the first [maxValues], and [other] otherwise.
func (l *labels) bounded(value string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[value]; ok {
		return value
	}
	if len(l.known) >= maxValues || len(value) > maxValueLength {
		return other
	}
	if l.known == nil {
		l.known = make(map[string]struct{})
	}
	l.known[value] = struct{}{}
	return value
}
