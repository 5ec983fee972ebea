package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// How a request ended.
const (
	Success = "success"
	Error   = "error"
	Timeout = "timeout" // only for requests to an upstream
)

const (
	namespace = "thoughtgate"

	// other stands for every label value beyond the bounded ones.
	other = "__other__"

	// maxErrorTypes is far above what the program has, so that reaching it
	// means that a text was passed where a type belongs.
	maxErrorTypes = 64
)

// begin makes the series of c with the given labels, so that it is on the page
// with 0 before anything is counted: rates need that.
func begin(c *prometheus.CounterVec, labels ...string) { c.WithLabelValues(labels...) }

// seconds returns bucket bounds from a call that is merely forwarded to one
// that waits for a person.
func seconds() []float64 {
	return []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
}

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
}

func histogram(name, help string, bounds []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: bounds}
}

func register[C prometheus.Collector](r *prometheus.Registry, c C) C {
	r.MustRegister(c)
	return c
}
