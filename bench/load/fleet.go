// Package load generates load: many keep-alive connections repeatedly send the same prepared
// call, check every byte of every answer, and measure the time.
package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

const (
	bufferSize = 8 << 10

	// idsPerConn keeps the ids of different connections apart.
	idsPerConn = 1_000_000

	// grace is how long a request may last beyond the end of a run.
	grace = time.Minute
)

// A Fleet is a set of open connections to one server.
type Fleet struct {
	now     func() time.Time
	members []*member
}

// A member is one connection with its own copy of the call.
type member struct {
	conn  *Conn
	call  *workload.Exchange
	place int // the index in the fleet
	sent  int
	took  []time.Duration
}

// Open opens n connections to addr and makes one call on each, so that later measurements
// contain no handshakes. now is the clock.
func Open(ctx context.Context, now func() time.Time, addr string, n int, k workload.Kind) (*Fleet, error) {
	f := &Fleet{now: now}
	for i := range n {
		conn, err := Dial(ctx, addr, bufferSize)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connection %d: %w", i, err), f.Close())
		}
		f.members = append(f.members, &member{conn: conn, call: workload.New(k, addr, 0), place: i})
	}
	err := f.each(func(m *member) error {
		if err := m.conn.SetDeadline(now().Add(grace)); err != nil {
			return err
		}
		return m.once()
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close closes all connections.
func (f *Fleet) Close() error {
	var errs []error
	for _, m := range f.members {
		errs = append(errs, m.conn.Close())
	}
	return errors.Join(errs...)
}

// A Plan describes a load.
type Plan struct {
	Duration time.Duration
	Rate     float64 // requests per second of the whole fleet; 0 means as fast as possible
}

// A Result has the measurements of a run.
type Result struct {
	Took    []time.Duration // of every request, shortest first
	Elapsed time.Duration
}

// Rate returns the requests per second.
func (r Result) Rate() float64 { return float64(len(r.Took)) / r.Elapsed.Seconds() }

// Run makes calls until the plan's time is over. The time of a request is from its writing
// until its answer has been read. A connection has one running request. Any wrong answer fails
// the run.
func (f *Fleet) Run(p Plan) (Result, error) {
	start := f.now()
	end := start.Add(p.Duration)
	var pace pace
	if p.Rate > 0 {
		pace.every = time.Duration(float64(len(f.members)) / p.Rate * float64(time.Second))
	}
	err := f.each(func(m *member) error {
		if err := m.conn.SetDeadline(end.Add(grace)); err != nil {
			return err
		}
		mine := pace
		mine.next = start.Add(pace.every * time.Duration(m.place) / time.Duration(len(f.members)))
		return m.run(f.now, end, mine)
	})
	if err != nil {
		return Result{}, err
	}
	r := Result{Elapsed: f.now().Sub(start)}
	for _, m := range f.members {
		r.Took = append(r.Took, m.took...)
	}
	slices.Sort(r.Took)
	return r, nil
}

// each calls do for all members at the same time, and returns the first error.
func (f *Fleet) each(do func(*member) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(f.members))
	for i, m := range f.members {
		wg.Go(func() { errs[i] = do(m) })
	}
	wg.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d connections failed, the first: %w", len(failed), len(f.members), failed[0])
}

func (m *member) once() error {
	m.call.Renumber(m.place*idsPerConn + m.sent%idsPerConn)
	m.sent++
	return m.conn.Do(m.call)
}

func (m *member) run(now func() time.Time, end time.Time, p pace) error {
	m.took = m.took[:0]
	for {
		start := p.wait(now)
		if !start.Before(end) {
			return nil
		}
		if err := m.once(); err != nil {
			return err
		}
		m.took = append(m.took, now().Sub(start))
	}
}

// A pace spreads the requests of one connection over time. Its zero value
// does not wait.
type pace struct {
	every time.Duration
	next  time.Time
}

// wait returns the time of the next request. A late sender does not catch up, because bursts
// would measure their own queue.
func (p *pace) wait(now func() time.Time) time.Time {
	t := now()
	if p.every == 0 {
		return t
	}
	if early := p.next.Sub(t); early > 0 {
		<-time.NewTimer(early).C
		t = now()
	}
	p.next = p.next.Add(p.every)
	if p.next.Before(t) {
		p.next = t
	}
	return t
}
