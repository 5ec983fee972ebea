package report_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

func TestVerdict(t *testing.T) {
	tests := []struct {
		name    string
		row     report.Row
		share   float64
		verdict string
	}{
		{"below the most", report.Row{Value: 0.5, Budget: 1}, 0.5, "within"},
		{"exactly the most", report.Row{Value: 2, Budget: 2}, 1, "within"},
		{"above the most", report.Row{Value: 3, Budget: 2}, 1.5, "over"},
		{"less than nothing used", report.Row{Value: -3, Budget: 2}, 0, "within"},
		{"above the least", report.Row{Value: 1.6, Budget: 0.8, Floor: true}, 0.5, "within"},
		{"below the least", report.Row{Value: 0.4, Budget: 0.8, Floor: true}, 2, "over"},
		{"nothing where there must be something", report.Row{Value: 0, Budget: 0.8, Floor: true}, math.Inf(1), "over"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.row.Share(); got != tt.share {
				t.Errorf("Share = %v; want %v", got, tt.share)
			}
			if got := tt.row.Verdict(); got != tt.verdict {
				t.Errorf("Verdict = %q; want %q", got, tt.verdict)
			}
		})
	}
	if got := (report.Row{Value: 5}).Verdict(); got != "" {
		t.Errorf("without a budget, Verdict = %q; want none", got)
	}
	if got := (report.Row{Value: math.NaN(), Budget: 1}).Verdict(); got != "over" {
		t.Errorf("for a missing value, Verdict = %q; want over", got)
	}
}

// If a budget lies within the middle half of the values, the verdict is unclear.
func TestSpread(t *testing.T) {
	tests := []struct {
		name    string
		values  []float64
		floor   bool
		verdict string
	}{
		{"all below", []float64{0.5, 0.6, 0.7}, false, "within"},
		{"one outlier above", []float64{0.5, 0.6, 0.6, 0.6, 7}, false, "within"},
		{"the middle half on both sides", []float64{0.9, 0.95, 0.99, 1.1, 1.2}, false, "unclear"},
		{"all above", []float64{1.1, 1.2, 1.3}, false, "over"},
		{"enough", []float64{1.1, 1.2, 1.3}, true, "within"},
		{"maybe enough", []float64{0.8, 0.9, 1.1, 1.2}, true, "unclear"},
		{"not measured", nil, false, "over"},
	}
	for _, tt := range tests {
		row := report.Spread(report.Row{Budget: 1, Floor: tt.floor}, tt.values)
		if got := row.Verdict(); got != tt.verdict {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.verdict)
		}
	}
	row := report.Spread(report.Row{}, []float64{9, 1, 2, 3, 4})
	if row.Value != 3 || row.Note != "2–4; 1 to 9" {
		t.Errorf("row is %v, %q", row.Value, row.Note)
	}
}

func TestNumber(t *testing.T) {
	tests := map[float64]string{
		0: "0", 4: "4", 0.1234: "0.123", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 40306.2: "40306", -0.05: "-0.050",
	}
	for v, want := range tests {
		if got := report.Number(v); got != want {
			t.Errorf("Number(%v) = %q; want %q", v, got, want)
		}
	}
}

func TestBudgets(t *testing.T) {
	got := report.Budgets([]report.Row{
		{What: "CPU", Value: 0.61, Unit: "×", Budget: 1, Note: "0.6 to 0.7"},
		{What: "scan of 1 KiB", Value: 2.5, Unit: "µs", Budget: 2},
		{What: "throughput", Value: 0.9, Unit: "×", Budget: 0.8, Floor: true},
		{What: "binary", Value: 17, Unit: "MiB"},
	})
	want := `what           value    budget     ratio
CPU            0.610 ×  ≤ 1 ×      0.61   within  0.6 to 0.7
scan of 1 KiB  2.50 µs  ≤ 2 µs     1.25   over
throughput     0.900 ×  ≥ 0.800 ×  0.89   within
binary         17 MiB   -          -
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

const goOutput = `goos: linux
pkg: example.com/x
BenchmarkParse/1KiB/string-2         	   25830	      2180 ns/op	 469.71 MB/s	     400 B/op	       3 allocs/op
BenchmarkParse/utf8	     100	        12.5 ns/op
BenchmarkBroken-2 	some words that are no figures
--- BENCH: BenchmarkParse
PASS
`

func TestGoBenches(t *testing.T) {
	got := report.GoBenches(goOutput)
	want := []report.GoBench{
		{Name: "Parse/1KiB/string", Metrics: map[string]float64{"ns/op": 2180, "MB/s": 469.71, "B/op": 400, "allocs/op": 3}},
		{Name: "Parse/utf8", Metrics: map[string]float64{"ns/op": 12.5}},
	}
	for i := range got {
		got[i].Line = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("benchmarks (-want +got):\n%s", diff)
	}
}

func TestFastest(t *testing.T) {
	var got []string
	for _, b := range report.Fastest(report.GoBenches("BenchmarkA-2 1 30 ns/op\nBenchmarkB-2 1 5 ns/op\n" +
		"BenchmarkA-2 1 20 ns/op\nBenchmarkA-2 1 25 ns/op\n")) {
		got = append(got, b.Line)
	}
	if diff := cmp.Diff([]string{"BenchmarkA-2 1 20 ns/op\n", "BenchmarkB-2 1 5 ns/op\n"}, got); diff != "" {
		t.Errorf("fastest (-want +got):\n%s", diff)
	}
}

func TestGoRows(t *testing.T) {
	got := report.GoRows(report.GoBenches(goOutput), []report.GoBudget{
		{Name: "Parse/1KiB", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 2},
		{Name: "Parse/1KiB", Metric: "s/s", Scale: 1, Unit: "s", Budget: 2},
		{Name: "Parse/utf8", Metric: "ns/op", Scale: 1, Unit: "ns", Budget: 5, Floor: true},
		{Name: "Parse/utf", Metric: "ns/op", Scale: 1, Unit: "ns", Budget: 5},
	})
	want := []report.Row{
		{What: "Parse/1KiB/string", Value: 2.18, Unit: "µs", Budget: 2},
		{What: "Parse/utf8", Value: 12.5, Unit: "ns", Budget: 5, Floor: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
