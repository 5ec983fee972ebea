package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

// growthTimeout bounds the benchmarks of one package, which first store a hundred thousand
// tasks.
const growthTimeout = 10 * time.Minute

// A scale is a quantity that may become large, with the Go benchmarks that measure its cost.
type scale struct{ title, pkg, only string }

func scales() []scale {
	return []scale{
		{"pending tasks in memory", "task/memstore", "^BenchmarkGrowth$"},
		{"pending tasks in SQLite", "task/sqlitestore", "^BenchmarkGrowth$"},
		{"rules, to judge a call that the last one decides", "internal/policy", "^BenchmarkGrowthRules$"},
		{"Cedar policies, to judge a call", "internal/policy", "^BenchmarkGrowthPolicies$"},
		{"rules or policies, to read them", "internal/policy", "^BenchmarkGrowthCompile$"},
		{"tools in a list", "internal/mcp", "^BenchmarkGrowth$"},
		{"waiting clients", "internal/approval", "^BenchmarkGrowth$"},
	}
}

// growth prints costs at several sizes, and whether they grow linearly or not at all.
func (b *bench) growth(ctx context.Context) error {
	errs := []error{b.printf("\nHow cost grows. %s\n", report.GrowthKinds)}
	for _, s := range scales() {
		found, err := b.growing(ctx, s, nil)
		table := report.Growth(report.GoSeries(found))
		errs = append(errs, err, b.printf("\n%s\n%s", s.title, table.String()))
	}
	return errors.Join(append(errs, b.cores(ctx))...)
}

// growing runs the benchmarks of a scale, with additional arguments for go test.
func (b *bench) growing(ctx context.Context, s scale, more []string) ([]report.GoBench, error) {
	args := append([]string{
		"test", "-run=^$", "-bench", s.only, "-timeout", growthTimeout.String(),
		"-count", strconv.Itoa(b.benchRuns), "-benchtime", b.benchTime.String(),
	}, more...)
	test := exec.CommandContext(ctx, "go", append(args, module+s.pkg)...)
	test.Cancel = func() error { return test.Process.Signal(os.Interrupt) }
	out, err := test.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", s.pkg, err, excerpt(string(out)))
	}
	return report.Fastest(report.GoBenches(string(out))), err
}

// cores prints the throughput of one and of two processors.
func (b *bench) cores(ctx context.Context) error {
	t := report.Table{Head: []string{"µs", "1 processor", "2 processors", "×"}}
	var errs []error
	for _, s := range []scale{
		{"parse a message of 1 KiB", "jsonrpc", "^BenchmarkCores$"},
		{"judge a call by 1000 rules", "internal/policy", "^BenchmarkCores$"},
		{"read one of 100,000 tasks from memory", "task/memstore", "^BenchmarkGetParallel$"},
		{"create a task with two notes in SQLite", "task/sqlitestore", "^BenchmarkSQLite$/^create_with_2_notes$"},
	} {
		var costs [2]float64
		for i := range costs {
			found, err := b.growing(ctx, s, []string{"-cpu", strconv.Itoa(i + 1)})
			errs = append(errs, err)
			if len(found) > 0 {
				costs[i] = found[0].Metrics["ns/op"] / 1000
			}
		}
		t.Add(s.title, report.Number(costs[0]), report.Number(costs[1]), report.Number(costs[0]/costs[1]))
	}
	return errors.Join(append(errs, b.printf("\nprocessors\n%s", t.String()))...)
}
