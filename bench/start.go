package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

// Budgets of a gate without work.
const (
	budgetStart = 150.0 // ms
	budgetIdle  = 25.0  // MiB
)

const (
	readyTimeout = 10 * time.Second
	readyPoll    = time.Millisecond
	settleTime   = 300 * time.Millisecond
)

// start measures the time until the gate is ready, and the memory of an idle gate.
func (b *bench) start(ctx context.Context) (err error) {
	if !slices.Contains(b.targets, targetGate) {
		return nil
	}
	file, err := os.Stat(b.gate)
	if err != nil {
		return err
	}
	r, err := b.assemble(ctx, targetDirect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var took, idle []float64
	for range b.starts {
		t, m, err := b.startOnce(ctx, r.targets[0].Process)
		if err != nil {
			return err
		}
		took, idle = append(took, milliseconds(t)), append(idle, mebibytes(m.RSS))
	}
	b.rows = append(b.rows,
		report.Row{What: "start to ready", Value: report.Median(took), Unit: "ms", Budget: budgetStart, Note: report.Range(took)},
		report.Row{What: "idle RSS", Value: report.Median(idle), Unit: "MiB", Budget: budgetIdle, Note: report.Range(idle)},
		report.Row{What: "binary", Value: mebibytes(file.Size()), Unit: "MiB"},
	)
	return nil
}

func (b *bench) startOnce(ctx context.Context, upstream *proc.Process) (took time.Duration, m proc.Memory, err error) {
	start := b.now()
	p, err := proc.Start(ctx, b.command(targetGate, upstream))
	if err != nil {
		return 0, proc.Memory{}, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := waitReady(ctx, p); err != nil {
		return 0, proc.Memory{}, err
	}
	took = b.now().Sub(start)
	if err := pause(ctx, settleTime); err != nil {
		return 0, proc.Memory{}, err
	}
	m, err = p.Memory()
	return took, m, err
}

func waitReady(ctx context.Context, p *proc.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := p.Ready(ctx)
		if err == nil {
			return nil
		}
		if ended := pause(ctx, readyPoll); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
