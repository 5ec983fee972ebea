package report_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

func TestMedian(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   float64
	}{
		{"one", []float64{7}, 7},
		{"odd and unsorted", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 3, 2}, 2.5},
		{"an outlier does not count", []float64{1, 1, 1, 1, 1000}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := append([]float64{}, tt.values...)
			if got := report.Median(tt.values); got != tt.want {
				t.Errorf("Median(%v) = %v; want %v", tt.values, got, tt.want)
			}
			if diff := cmp.Diff(before, tt.values); diff != "" {
				t.Errorf("Median changed its argument:\n%s", diff)
			}
		})
	}
	if got := report.Median(nil); !math.IsNaN(got) {
		t.Errorf("Median of nothing = %v; want NaN", got)
	}
}

func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	tests := []struct {
		name   string
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{"nothing", nil, 0.5, 0},
		{"one value is every quantile", []time.Duration{3}, 0.99, 3},
		{"middle", hundred, 0.5, 50},
		{"99 of 100", hundred, 0.99, 99},
		{"above 99 of 100", hundred, 0.991, 100},
		{"lowest", hundred, 0, 1},
		{"highest", hundred, 1, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := report.Quantile(tt.sorted, tt.q); got != tt.want {
				t.Errorf("Quantile(%v) = %v; want %v", tt.q, got, tt.want)
			}
		})
	}
}

func TestPairwise(t *testing.T) {
	got := report.Pairwise([]float64{2, 9, 5}, []float64{4, 3}, report.Ratio)
	if diff := cmp.Diff([]float64{0.5, 3}, got); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
	got = report.Pairwise([]float64{2, 9}, []float64{4, 3}, report.Difference)
	if diff := cmp.Diff([]float64{-2, 6}, got); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

func TestRange(t *testing.T) {
	if got, want := report.Range([]float64{0.5, 0.25, 12}), "0.250 to 12"; got != want {
		t.Errorf("Range = %q; want %q", got, want)
	}
	if got := report.Range(nil); got != "" {
		t.Errorf("Range of nothing = %q", got)
	}
}
