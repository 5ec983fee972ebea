package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

const (
	budgetStream = 40.0 // KiB

	streamBuffer = 1 << 10
	openers      = 32
	spareFiles   = 2000 // descriptors of a proxy, in addition to two for each stream
)

// idleStreams measures the cost of an open stream without events.
func (b *bench) idleStreams(ctx context.Context) error {
	n, less := b.many()
	title := fmt.Sprintf("%d idle event streams%s", n, less)
	table := report.Table{Head: []string{"", "KiB per stream", "RSS before MiB", "RSS MiB", "peak MiB", "open s"}}
	for _, name := range b.targets {
		if name == targetDirect {
			continue
		}
		v, err := b.openStreams(ctx, name, n)
		if err != nil {
			return err
		}
		each := float64(v.after.RSS-v.before.RSS) / float64(n) / (1 << 10)
		table.Add(name, report.Number(each), report.Number(mebibytes(v.before.RSS)), report.Number(mebibytes(v.after.RSS)),
			report.Number(mebibytes(v.after.Peak)), report.Number(v.seconds))
		if name == targetGate {
			b.rows = append(b.rows, report.Row{What: fmt.Sprintf("%d idle event streams: RSS each", n), Value: each, Unit: "KiB", Budget: budgetStream})
		}
	}
	return b.printf("\n%s\n%s", title, table.String())
}

// many returns how many streams or connections are possible, and the reason if that is less
// than requested.
func (b *bench) many() (n int, less string) {
	limit := raiseFileLimit(2*b.streams + spareFiles)
	if n = (limit - spareFiles) / 2; n < b.streams {
		return n, fmt.Sprintf(" (not %d: a process may have %d files)", b.streams, limit)
	}
	return b.streams, ""
}

// A stretch is the memory of a target before and after its streams were opened.
type stretch struct {
	before, after proc.Memory
	seconds       float64
}

func (b *bench) openStreams(ctx context.Context, name string, n int) (s stretch, err error) {
	r, err := b.assemble(ctx, name)
	if err != nil {
		return stretch{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := r.targets[0]
	warm := newStreams(b, t, 1)
	if err := errors.Join(warm.open(ctx), warm.Close()); err != nil {
		return stretch{}, t.failed(err)
	}
	if s.before, err = t.Memory(); err != nil {
		return stretch{}, err
	}
	start := b.now()
	all := newStreams(b, t, n)
	defer func() { err = errors.Join(err, all.Close()) }()
	if err := all.open(ctx); err != nil {
		return stretch{}, t.failed(err)
	}
	s.seconds = b.now().Sub(start).Seconds()
	s.after, err = t.Memory()
	return s, err
}

// streams are connections with one open event stream each.
type streams struct {
	bench *bench
	addr  string
	conns []*load.Conn
}

func newStreams(b *bench, t target, n int) *streams {
	return &streams{bench: b, addr: t.Agents, conns: make([]*load.Conn, n)}
}

// open opens all streams and waits for the first event on each.
func (s *streams) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bigTimeout)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, openers)
	for first := range openers {
		wg.Go(func() {
			for i := first; i < len(s.conns) && errs[first] == nil; i += openers {
				errs[first] = s.openOne(ctx, i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *streams) openOne(ctx context.Context, i int) error {
	conn, err := load.Dial(ctx, s.addr, streamBuffer)
	if err != nil {
		return fmt.Errorf("stream %d: %w", i, err)
	}
	s.conns[i] = conn
	if err := conn.SetDeadline(s.bench.now().Add(bigTimeout)); err != nil {
		return err
	}
	if err := conn.Open(workload.StreamRequest(s.addr, i), []byte(workload.FirstEvent)); err != nil {
		return fmt.Errorf("stream %d: %w", i, err)
	}
	return nil
}

// Close closes the streams that are open.
func (s *streams) Close() error {
	var errs []error
	for _, c := range s.conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
