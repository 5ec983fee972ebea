package main

import (
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

// TestSuite runs benchmarks of the standard library, which are always available.
func TestSuite(t *testing.T) {
	const pkg = "container/heap"
	if !exists(t.Context(), pkg) || exists(t.Context(), module+"no/such/package") {
		t.Error("exists is wrong")
	}
	var out strings.Builder
	b := &bench{options: options{benchTime: time.Millisecond, benchRuns: 3}, out: &out}
	err := b.suite(t.Context(), suite{pkg, all, []report.GoBudget{{Name: "Dup", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.rows) != 1 || b.rows[0].What != "heap Dup" || b.rows[0].Value <= 0 {
		t.Errorf("rows %+v", b.rows)
	}
	if n := strings.Count(out.String(), "BenchmarkDup"); n != 1 {
		t.Errorf("%d lines of BenchmarkDup; want only the fastest:\n%s", n, out.String())
	}
	err = b.suite(t.Context(), suite{pkg: module + "no/such/package"})
	if err == nil || !strings.Contains(err.Error(), "no required module provides package") {
		t.Errorf("for a package that does not exist: %v", err)
	}
}
