package report

import (
	"strconv"
	"strings"
)

// A GoBench is one line of the output of go test -bench.
type GoBench struct {
	Name    string             // without Benchmark and without the number of processors
	Metrics map[string]float64 // by unit, such as "ns/op" and "allocs/op"
	Line    string             // the whole line
}

// GoBenches returns the benchmark lines in the output of go test -bench.
func GoBenches(output string) []GoBench {
	var all []GoBench
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		b := GoBench{Name: benchName(fields[0]), Metrics: map[string]float64{}, Line: line}
		for i := 2; i+1 < len(fields); i += 2 { // after the name and the number of runs
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				b.Metrics[fields[i+1]] = value
			}
		}
		if len(b.Metrics) == 0 {
			continue
		}
		all = append(all, b)
	}
	return all
}

func benchName(field string) string {
	name := strings.TrimPrefix(field, "Benchmark")
	if at := strings.LastIndexByte(name, '-'); at >= 0 {
		if _, err := strconv.Atoi(name[at+1:]); err == nil {
			return name[:at]
		}
	}
	return name
}

// Fastest returns, for each benchmark, its fastest run: other load on the machine can only
// make a benchmark slower.
func Fastest(all []GoBench) []GoBench {
	var fastest []GoBench
	place := map[string]int{}
	for _, b := range all {
		at, seen := place[b.Name]
		switch {
		case !seen:
			place[b.Name] = len(fastest)
			fastest = append(fastest, b)
		case b.Metrics["ns/op"] < fastest[at].Metrics["ns/op"]:
			fastest[at] = b
		}
	}
	return fastest
}

// GoLines returns the original lines.
func GoLines(all []GoBench) string {
	var b strings.Builder
	for _, bench := range all {
		b.WriteString(bench.Line)
	}
	return b.String()
}

// A GoBudget is the budget of one metric of a benchmark and its sub-benchmarks.
type GoBudget struct {
	Name   string // of the benchmark
	Metric string // "ns/op", "allocs/op", …
	Scale  float64
	Unit   string // of the metric times Scale
	Budget float64
	Floor  bool // see [Row]
}

// GoRows returns a row for each budget of each benchmark.
func GoRows(all []GoBench, budgets []GoBudget) []Row {
	var rows []Row
	for _, bench := range all {
		for _, budget := range budgets {
			value, measured := bench.Metrics[budget.Metric]
			if measured && strings.HasPrefix(bench.Name+"/", budget.Name+"/") {
				rows = append(rows, Row{
					What: bench.Name, Value: value * budget.Scale, Unit: budget.Unit, Budget: budget.Budget, Floor: budget.Floor,
				})
			}
		}
	}
	return rows
}
