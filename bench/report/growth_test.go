package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

func TestGrowth(t *testing.T) {
	const output = `BenchmarkGrowth/get/1-2   	 10	 2000 ns/op	 0 B/op
BenchmarkGrowth/get/10-2   	 10	 2100 ns/op
BenchmarkGrowth/get/100-2   	 10	 5900 ns/op
BenchmarkGrowth/sweep/1-2   	 10	 1000 ns/op
BenchmarkGrowth/sweep/10-2   	 10	 9000 ns/op
BenchmarkGrowth/sweep/100-2   	 10	 95000 ns/op
BenchmarkGrowth/sort/1-2   	 10	 1000 ns/op
BenchmarkGrowth/sort/10-2   	 10	 30000 ns/op
BenchmarkGrowth/sort/100-2   	 10	 900000 ns/op
BenchmarkOther-2   	 10	 900000 ns/op
`
	series := report.GoSeries(report.GoBenches(output))
	got := map[string]string{}
	for _, s := range series {
		got[s.What] = s.Kind()
	}
	want := map[string]string{"get": report.Flat, "sweep": report.Linear, "sort": report.Steep}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	table := report.Growth(series)
	if diff := cmp.Diff("µs     1  10    100   grows\n"+
		"get    2  2.10  5.90  flat\n"+
		"sweep  1  9     95    linear\n"+
		"sort   1  30    900   steeper than linear\n", table.String()); diff != "" {
		t.Error(diff)
	}
}
