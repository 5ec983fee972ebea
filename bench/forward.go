package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

// latencyConns is the number of connections for the latency budget of the design.
const latencyConns = 32

// Budgets of a forwarded call.
const (
	budgetCPU = 0.95 // times the proxy's value
	budgetP50 = 0.15 // ms more than the proxy
	budgetP99 = 1.0  // ms more than the proxy
)

// forward measures forwarded calls of every kind, at every number of connections.
func (b *bench) forward(ctx context.Context) (err error) {
	r, err := b.assemble(ctx, b.targets...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f := forwarding{bench: b, rig: r}
	if err := f.calibrate(ctx); err != nil {
		return err
	}
	for _, k := range []workload.Kind{workload.JSON, workload.SSE, workload.Modern} {
		for _, n := range b.conns {
			if err := f.kind(ctx, k, n); err != nil {
				return fmt.Errorf("%s, %d at a time: %w", k, n, err)
			}
		}
	}
	return nil
}

// A forwarding is the state of that part.
type forwarding struct {
	*bench

	rig    *rig
	scrape map[string]float64 // the allocations of one request for a target's metrics
}

// figures are the values of one target, one for each round.
type figures struct {
	rate     []float64 // requests per second
	p50, p99 []float64 // ms
	cpu      []float64 // ms per 1000 requests
	mallocs  []float64 // per request
	memory   proc.Memory
}

func (f *forwarding) calibrate(ctx context.Context) error {
	f.scrape = map[string]float64{}
	for _, t := range f.rig.targets {
		var counts []float64
		for range 3 { // the first one opens a connection and does not count
			n, err := t.Mallocs(ctx)
			if err != nil {
				return err
			}
			counts = append(counts, n)
		}
		f.scrape[t.name] = counts[2] - counts[1]
	}
	return nil
}

// kind measures one kind of call at full speed. Where the design has a latency budget, it also
// measures at half of the proxy's rate, because latencies at full load depend mostly on the
// speed of the machine.
func (f *forwarding) kind(ctx context.Context, k workload.Kind, conns int) error {
	title := fmt.Sprintf("tools/call %s, %d at a time", k.Short(), conns)
	full, err := f.compare(ctx, k, conns, 0)
	if err != nil {
		return err
	}
	if err := f.print(title+", as fast as possible", full); err != nil {
		return err
	}
	gate, proxy := full[targetGate], full[targetProxy]
	if gate != nil && proxy != nil {
		f.ratio(title+": CPU, gate to proxy", gate.cpu, proxy.cpu)
	}
	if k != workload.JSON || conns != latencyConns || proxy == nil {
		return nil
	}
	half := report.Median(proxy.rate) / 2
	paced, err := f.compare(ctx, k, conns, half)
	if err != nil {
		return err
	}
	if err := f.print(fmt.Sprintf("%s, at %s requests/s", title, report.Number(half)), paced); err != nil {
		return err
	}
	if gate != nil {
		f.added(title+", half load", paced[targetGate], paced[targetProxy])
		f.added(title+", full load", gate, proxy)
	}
	return nil
}

func (f *forwarding) ratio(what string, gate, proxy []float64) {
	ratios := report.Pairwise(gate, proxy, report.Ratio)
	f.rows = append(f.rows, report.Spread(report.Row{What: what, Unit: "×", Budget: budgetCPU}, ratios))
}

func (f *forwarding) added(title string, gate, proxy *figures) {
	p50 := report.Pairwise(gate.p50, proxy.p50, report.Difference)
	p99 := report.Pairwise(gate.p99, proxy.p99, report.Difference)
	f.rows = append(f.rows,
		report.Spread(report.Row{What: title + ": p50 over proxy", Unit: "ms", Budget: budgetP50}, p50),
		report.Spread(report.Row{What: title + ": p99 over proxy", Unit: "ms", Budget: budgetP99}, p99),
	)
}

// compare loads the targets in turn, at the given rate, or as fast as they answer if the rate
// is 0.
func (f *forwarding) compare(ctx context.Context, k workload.Kind, conns int, rate float64) (all map[string]*figures, err error) {
	all = map[string]*figures{}
	fleets := map[string]*load.Fleet{}
	defer func() {
		for _, fleet := range fleets {
			err = errors.Join(err, fleet.Close())
		}
	}()
	for _, t := range f.rig.targets {
		fleet, err := load.Open(ctx, f.now, t.Agents, conns, k)
		if err != nil {
			return nil, t.failed(err)
		}
		fleets[t.name], all[t.name] = fleet, &figures{}
		if _, err := fleet.Run(load.Plan{Duration: f.round / 4, Rate: rate}); err != nil { // warm up
			return nil, t.failed(err)
		}
		if err := t.ResetPeak(); err != nil {
			return nil, err
		}
	}
	for range f.rounds {
		for _, t := range f.rig.shuffled(f.rand) {
			if err := f.measure(ctx, t, all[t.name], fleets[t.name], rate); err != nil {
				return nil, t.failed(err)
			}
		}
	}
	return all, ctx.Err()
}

// measure measures one round of one target.
func (f *forwarding) measure(ctx context.Context, t target, to *figures, fleet *load.Fleet, rate float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mallocs, err := t.Mallocs(ctx)
	if err != nil {
		return err
	}
	cpu, err := t.CPU()
	if err != nil {
		return err
	}
	got, err := fleet.Run(load.Plan{Duration: f.round, Rate: rate})
	if err != nil {
		return err
	}
	cpuAfter, err := t.CPU()
	if err != nil {
		return err
	}
	mallocsAfter, err := t.Mallocs(ctx)
	if err != nil {
		return err
	}
	requests := float64(len(got.Took))
	to.rate = append(to.rate, got.Rate())
	to.p50 = append(to.p50, milliseconds(report.Quantile(got.Took, 0.50)))
	to.p99 = append(to.p99, milliseconds(report.Quantile(got.Took, 0.99)))
	to.cpu = append(to.cpu, milliseconds(cpuAfter-cpu)/requests*1000)
	to.mallocs = append(to.mallocs, (mallocsAfter-mallocs-f.scrape[t.name])/requests)
	to.memory, err = t.Memory()
	return err
}

func (f *forwarding) print(title string, all map[string]*figures) error {
	t := report.Table{Head: []string{"", "req/s", "p50 ms", "p99 ms", "CPU ms/1000", "middle half", "allocs/req", "RSS MiB", "peak MiB"}}
	for _, name := range f.targets {
		v := all[name]
		t.Add(name,
			report.Number(report.Median(v.rate)), report.Number(report.Median(v.p50)), report.Number(report.Median(v.p99)),
			report.Number(report.Median(v.cpu)), report.Middle(v.cpu), report.Number(report.Median(v.mallocs)),
			report.Number(mebibytes(v.memory.RSS)), report.Number(mebibytes(v.memory.Peak)))
	}
	return f.printf("\n%s\n%s", title, t.String())
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
