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

// crowdTime is how long all connections make calls.
const crowdTime = 2 * time.Second

// connections measures many connections with running calls (REQ-CORE-003,
// bench_concurrent_connections): each call must be answered.
func (b *bench) connections(ctx context.Context) error {
	n, less := b.many()
	title := fmt.Sprintf("bench_concurrent_connections: %d, each with a call under way%s", n, less)
	table := report.Table{Head: []string{"", "calls answered", "failed", "req/s", "CPU ms/1000", "KiB per connection", "RSS MiB", "peak MiB"}}
	for _, name := range b.targets {
		v, err := b.crowd(ctx, name, n)
		if err != nil {
			return err
		}
		table.Add(name, fmt.Sprint(v.calls), "0", report.Number(v.rate), report.Number(v.cpu), report.Number(v.each),
			report.Number(mebibytes(v.after.RSS)), report.Number(mebibytes(v.after.Peak)))
		if name == targetGate {
			b.rows = append(b.rows, report.Row{
				What: fmt.Sprintf("%d connections with calls under way: RSS each", n), Value: v.each, Unit: "KiB",
				Note: fmt.Sprintf("%d calls, all answered", v.calls),
			})
		}
	}
	return b.printf("\n%s\n%s", title, table.String())
}

// A crowding has the measurements of a target with many connections.
type crowding struct {
	stretch

	calls     int
	rate, cpu float64
	each      float64 // KiB
}

// crowd makes calls on n connections at the same time. A wrong answer is an error.
func (b *bench) crowd(ctx context.Context, name string, n int) (v crowding, err error) {
	r, err := b.assemble(ctx, name)
	if err != nil {
		return crowding{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := r.targets[0]
	if v.before, err = t.Memory(); err != nil {
		return crowding{}, err
	}
	fleet, err := load.Open(ctx, b.now, t.Agents, n, workload.JSON)
	if err != nil {
		return crowding{}, t.failed(err)
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	before, err := t.CPU()
	if err != nil {
		return crowding{}, err
	}
	got, err := fleet.Run(load.Plan{Duration: crowdTime})
	if err != nil {
		return crowding{}, t.failed(err)
	}
	after, err := t.CPU()
	if err != nil {
		return crowding{}, err
	}
	v.after, err = t.Memory()
	v.calls, v.rate = n+len(got.Took), got.Rate()
	v.cpu = milliseconds(after-before) / float64(len(got.Took)) * 1000
	v.each = float64(v.after.RSS-v.before.RSS) / float64(n) / (1 << 10)
	return v, err
}
