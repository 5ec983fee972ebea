package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

// Budgets of a streamed result.
const (
	budgetThroughput = 0.8 // times the proxy's value
	budgetExtra      = 4.0 // MiB
)

const (
	bigBuffer     = 256 << 10
	bigTimeout    = time.Minute
	warmUpBlocks  = 128
	mostBigRounds = 3
	uploadBlocks  = 15 // of one large request; the gate's limit is one mebibyte
)

// result measures the speed of large answers and requests, and the memory that they need.
func (b *bench) result(ctx context.Context) error {
	for _, k := range []workload.Kind{workload.BigJSON, workload.BigSSE, workload.Upload} {
		if err := b.bigAnswers(ctx, k); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// A flow has the measurements of one target.
type flow struct {
	speed []float64 // MiB per second
	cpu   []float64 // ms
	extra int64     // the peak of resident bytes during a round, minus the bytes before it
}

func (b *bench) bigAnswers(ctx context.Context, k workload.Kind) (err error) {
	r, err := b.assemble(ctx, b.targets...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	flows := map[string]*flow{}
	for _, t := range r.targets {
		flows[t.name] = &flow{}
		if err := b.bigAnswer(ctx, t, k, warmUpBlocks, &flow{}); err != nil {
			return t.failed(err)
		}
	}
	blocks := int(b.gibibytes * (1 << 30) / workload.BlockSize)
	for range min(b.rounds, mostBigRounds) {
		for _, t := range r.shuffled(b.rand) {
			if err := b.bigAnswer(ctx, t, k, blocks, flows[t.name]); err != nil {
				return t.failed(err)
			}
		}
	}
	return b.reportFlows(k, flows)
}

// bigAnswer reads one answer from t on a new connection.
func (b *bench) bigAnswer(ctx context.Context, t target, k workload.Kind, blocks int, to *flow) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := load.Dial(ctx, t.Agents, bigBuffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	before, err := t.Memory()
	if err != nil {
		return err
	}
	cpu, err := t.CPU()
	if err := errors.Join(err, t.ResetPeak()); err != nil {
		return err
	}
	call, times := workload.New(k, t.Agents, blocks), 1
	if k == workload.Upload {
		call, times = workload.New(k, t.Agents, uploadBlocks), blocks/uploadBlocks
	}
	start := b.now()
	err = conn.SetDeadline(start.Add(bigTimeout))
	for i := 0; i < times && err == nil; i++ {
		err = conn.Do(call)
	}
	if err != nil {
		return err
	}
	took := b.now().Sub(start)
	cpuAfter, err := t.CPU()
	if err != nil {
		return err
	}
	after, err := t.Memory()
	passed := max(call.Answer.Len(), int64(len(call.Request))) * int64(times)
	to.speed = append(to.speed, mebibytes(passed)/took.Seconds())
	to.cpu = append(to.cpu, milliseconds(cpuAfter-cpu))
	to.extra = max(to.extra, after.Peak-before.RSS)
	return err
}

// reportFlows prints the measurements of all targets.
func (b *bench) reportFlows(k workload.Kind, flows map[string]*flow) error {
	title, throughput, extra := fmt.Sprintf("%s GiB %s result", report.Number(b.gibibytes), k.Short()), budgetThroughput, budgetExtra
	if k == workload.Upload { // a gate reads the whole request before it forwards the first byte
		title, throughput, extra = fmt.Sprintf("%s GiB of requests with 15/16 MiB each", report.Number(b.gibibytes)), 0, 0
	}
	t := report.Table{Head: []string{"", "MiB/s", "CPU ms", "extra RSS MiB"}}
	for _, name := range b.targets {
		v := flows[name]
		t.Add(name, report.Number(report.Median(v.speed)), report.Number(report.Median(v.cpu)), report.Number(mebibytes(v.extra)))
	}
	gate, proxy := flows[targetGate], flows[targetProxy]
	if gate != nil && proxy != nil {
		ratios := report.Pairwise(gate.speed, proxy.speed, report.Ratio)
		b.rows = append(b.rows, report.Spread(report.Row{
			What: title + ": throughput, gate to proxy", Unit: "×", Budget: throughput, Floor: true,
		}, ratios))
	}
	if gate != nil {
		b.rows = append(b.rows, report.Row{What: title + ": extra RSS", Value: mebibytes(gate.extra), Unit: "MiB", Budget: extra})
	}
	return b.printf("\n%s\n%s", title, t.String())
}
