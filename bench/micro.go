package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

const (
	all          = "."         // benchmarks
	suiteTimeout = time.Minute // for the benchmarks of one package
	excerptLines = 8
)

// A suite is a package whose Go benchmarks are included, with their budgets.
type suite struct {
	pkg     string
	only    string // the benchmarks to run, as for go test -bench
	budgets []report.GoBudget
}

// suites lists all suites. A new budget is one line.
func suites() []suite {
	return []suite{
		{module + "jsonrpc", all, []report.GoBudget{
			{Name: "Parse/1KiB", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 2},
			{Name: "Parse/1KiB", Metric: "allocs/op", Scale: 1, Unit: "allocs", Budget: 4},
		}},
		{module + "internal/mcphttp", "^Benchmark(Forward|Notification)$", []report.GoBudget{
			{Name: "Forward/json", Metric: "allocs/op", Scale: 1, Unit: "allocs", Budget: 60},
			{Name: "Forward/json", Metric: "B/op", Scale: 1, Unit: "B", Budget: 7500},
			{Name: "Forward/modern", Metric: "allocs/op", Scale: 1, Unit: "allocs", Budget: 68},
			{Name: "Forward/modern", Metric: "B/op", Scale: 1.0 / (1 << 10), Unit: "KiB", Budget: 64},
			{Name: "Forward/sse", Metric: "allocs/op", Scale: 1, Unit: "allocs", Budget: 84},
			{Name: "Forward/sse", Metric: "B/op", Scale: 1.0 / (1 << 10), Unit: "KiB", Budget: 64},
			{Name: "Notification", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 50},
		}},
		{module + "internal/conversation", "^Benchmark(CheckTask|FinalReport)$", []report.GoBudget{
			{Name: "CheckTask", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 1},
			{Name: "FinalReport", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 50},
		}},
		{module + "internal/upstream/several", all, []report.GoBudget{
			{Name: "Lists/rank", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 5},
		}},
		{module + "task/memstore", all, []report.GoBudget{
			{Name: "Create", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 20},
			{Name: "Create", Metric: "creates/s", Scale: 1, Unit: "/s", Budget: 50_000, Floor: true},
			{Name: "Get", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 2},
			{Name: "Transition", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 5},
			{Name: "Memory", Metric: "B/task", Scale: 1, Unit: "B", Budget: 1024},
		}},
		{module + "internal/policy", "^Benchmark(Compile1000Rules|Judge1000Rules|JudgeCedar)$", []report.GoBudget{
			{Name: "Compile1000Rules", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 100},
			{Name: "Judge1000Rules", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 20},
			{Name: "JudgeCedar/own/100", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 50},
			{Name: "JudgeCedar/any/100", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 50},
		}},
		{module + "internal/mcp", "^Benchmark(ScanAndRoute|Declare|RewriteList)$", []report.GoBudget{
			{Name: "ScanAndRoute", Metric: "ns/op", Scale: 1e-3, Unit: "µs", Budget: 2},
			{Name: "ScanAndRoute", Metric: "allocs/op", Scale: 1, Unit: "allocs", Budget: 4},
			{Name: "Declare", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 1},
			{Name: "RewriteList", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 1},
		}},
		{module + "internal/approval", "^BenchmarkLazyPoll$", []report.GoBudget{
			{Name: "LazyPoll", Metric: "ns/op", Scale: 1e-6, Unit: "ms", Budget: 10},
		}},
		{module + "task/sqlitestore", "^BenchmarkSQLite$/^(create_with_[02]_notes|wake|at_once)$", []report.GoBudget{
			{Name: "SQLite/create_with_0_notes", Metric: "creates/s", Scale: 1, Unit: "/s", Budget: 10_000, Floor: true},
			{Name: "SQLite/create_with_2_notes", Metric: "creates/s", Scale: 1, Unit: "/s", Budget: 10_000, Floor: true},
		}},
		{module + "task/pgstore", "^BenchmarkPostgres$/^(create_with_[02]_notes|wake|at_once)$", []report.GoBudget{
			{Name: "Postgres/wake", Metric: "µs-after-swap", Scale: 1e-3, Unit: "ms", Budget: 100},
		}},
		{module + "task/redisstore", "^BenchmarkRedis$/^always$/^(create.*|wake|at_once)$", []report.GoBudget{
			{Name: "Redis/always/wake", Metric: "µs-after-swap", Scale: 1e-3, Unit: "ms", Budget: 100},
		}},
	}
}

// micro runs the Go benchmarks of the packages that exist.
func (b *bench) micro(ctx context.Context) error {
	var errs []error
	for _, s := range suites() {
		if exists(ctx, s.pkg) {
			errs = append(errs, b.suite(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// suite runs the benchmarks of one package. Measurements before a failure count.
func (b *bench) suite(ctx context.Context, s suite) error {
	test := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench", s.only, "-benchmem", "-timeout", suiteTimeout.String(),
		"-count", strconv.Itoa(b.benchRuns), "-benchtime", b.benchTime.String(), s.pkg)
	test.Cancel = func() error { return test.Process.Signal(os.Interrupt) } // on this signal, go ends its children
	out, err := test.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", s.pkg, err, excerpt(string(out)))
	}
	found := report.Fastest(report.GoBenches(string(out)))
	for _, row := range report.GoRows(found, s.budgets) {
		row.What = path.Base(s.pkg) + " " + row.What
		b.rows = append(b.rows, row)
	}
	return errors.Join(err, b.printf("\n%s, fastest of %d\n%s", s.pkg, b.benchRuns, report.GoLines(found)))
}

// excerpt returns the first lines without figures.
func excerpt(output string) string {
	var b strings.Builder
	left := excerptLines
	for line := range strings.Lines(output) {
		if left > 0 && len(report.GoBenches(line)) == 0 {
			b.WriteString(line)
			left--
		}
	}
	return b.String()
}

// exists reports whether a package exists and has tests.
func exists(ctx context.Context, pkg string) bool {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.XTestGoFiles}}{{.TestGoFiles}}", pkg)
	out, err := list.Output()
	return err == nil && strings.Contains(string(out), "_test.go")
}
