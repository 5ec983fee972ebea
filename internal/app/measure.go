package app

import (
	"runtime"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// newMetrics returns metrics that have every series on their page from the start
// whose labels are known.
func newMetrics() *metrics.Metrics {
	m := metrics.New()
	m.Built(version.This().Version, runtime.Version())
	for _, t := range wire.Types() {
		m.CanRefuse(string(t))
	}
	for from, to := range task.Transitions() {
		m.CanMove(string(from), string(to))
	}
	for _, step := range approval.Recorded() {
		m.CanRecord(string(step))
	}
	return m
}
