package report

import (
	"math"
	"slices"
	"time"
)

// Median returns the middle value, or the mean of the two in the middle, or NaN without
// values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Quantile returns the smallest value v for which at least the share q of the values is at most
// v. The values must be sorted. Without values it returns 0.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Pairwise applies f to the values of a and b from the same rounds.
func Pairwise(a, b []float64, f func(a, b float64) float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, f(a[i], b[i]))
	}
	return out
}

// Ratio returns a / b, for [Pairwise].
func Ratio(a, b float64) float64 { return a / b }

// Difference returns a - b, for [Pairwise].
func Difference(a, b float64) float64 { return a - b }

// Quartiles returns the bounds of the middle half of the values.
func Quartiles(values []float64) (low, high float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := (len(sorted) - 1) / 4
	return sorted[at], sorted[len(sorted)-1-at]
}

// Middle returns the middle half of values as text.
func Middle(values []float64) string {
	low, high := Quartiles(values)
	return Number(low) + "–" + Number(high)
}

// Range returns the smallest and the largest value as text.
func Range(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	return Number(slices.Min(values)) + " to " + Number(slices.Max(values))
}
