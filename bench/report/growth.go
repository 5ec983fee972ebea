package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// The kinds of growth.
const (
	Flat   = "flat"
	Linear = "linear"
	Steep  = "steeper than linear"
)

// The largest exponents of the size that count as flat and as linear. They leave a margin,
// because caches become too small and trees deeper. GrowthKinds explains the terms.
const (
	flatSlope   = 0.5
	linearSlope = 1.4
)

// GrowthKinds explains the terms in a table of growth.
const GrowthKinds = `Flat: from the middle size to the largest, ten times the size costs at most three times as
much. Linear: at most twenty-five times. The bounds leave room for the noise of a busy machine.`

// A Series has the cost of one thing at several sizes, the smallest first.
type Series struct {
	What  string
	Sizes []float64
	Costs []float64
}

// GoSeries returns the series of benchmarks whose names end with a size, such as
// Growth/list/1000.
func GoSeries(all []GoBench) []Series {
	var series []Series
	for _, b := range all {
		at := strings.LastIndexByte(b.Name, '/')
		size, err := strconv.ParseFloat(b.Name[at+1:], 64)
		cost, measured := b.Metrics["ns/op"]
		if at < 0 || err != nil || !measured {
			continue
		}
		_, what, _ := strings.Cut(b.Name[:at], "/")
		i := slices.IndexFunc(series, func(s Series) bool { return s.What == what })
		if i < 0 {
			i = len(series)
			series = append(series, Series{What: what})
		}
		series[i].Sizes, series[i].Costs = append(series[i].Sizes, size), append(series[i].Costs, cost)
	}
	return series
}

// Kind returns how the cost grows from the middle size to the largest. At small sizes, bounded
// quantities such as a page of a list still grow.
func (s Series) Kind() string {
	last := len(s.Costs) - 1
	if last < 1 {
		return "-"
	}
	middle := last / 2
	slope := math.Log(s.Costs[last]/s.Costs[middle]) / math.Log(s.Sizes[last]/s.Sizes[middle])
	switch {
	case slope <= flatSlope:
		return Flat
	case slope <= linearSlope:
		return Linear
	default:
		return Steep
	}
}

// Growth returns a table of series that have the same sizes, in microseconds.
func Growth(all []Series) Table {
	var t Table
	for _, s := range all {
		if t.Head == nil {
			t.Head = []string{"µs"}
			for _, size := range s.Sizes {
				t.Head = append(t.Head, Number(size))
			}
			t.Head = append(t.Head, "grows")
		}
		row := []string{s.What}
		for _, cost := range s.Costs {
			row = append(row, Number(cost/1000))
		}
		t.Add(append(row, s.Kind())...)
	}
	return t
}
