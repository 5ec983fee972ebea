package crash_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

var soakTime = flag.Duration("soak", 5*time.Second, "how long TestSoak lasts")

// TestSoak generates mixed traffic for a while: forwarded and held calls of clients of both
// eras, some of them slow, while the configuration is reloaded and the upstream fails. At the
// same time, replicas and their database are killed. No promise is broken, and a gate that ran
// all the time has no more goroutines, open files, memory and rows than before.
func TestSoak(t *testing.T) {
	t.Parallel()
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat: go test ./e2e/crash -run TestSoak -seed %d -soak %v", seed, *soakTime)
	s := newSteady(t)
	s.drive(*soakTime/6, seed) // creates everything that is created only once
	before := s.idle(usage{})

	var replicas sync.WaitGroup
	if w := postgres(t); w != nil {
		replicas.Go(func() {
			story := &story{world: w, store: "PostgreSQL", seed: seed, calls: make(map[string]*call), troubles: make(map[string]int)}
			story.rampage(*soakTime)
			story.settle()
			story.audit(story.told())
		})
	}
	s.drive(*soakTime, seed+1)
	after := s.idle(before)
	replicas.Wait()

	t.Logf("before: %+v; after: %+v", before, after)
	s.kept()
	s.empty()
}

// drive runs clients of all kinds against a steady gate for some time.
func (s *steady) drive(long time.Duration, seed uint64) {
	over := make(chan struct{})
	rest := pause(func(dice *rand.Rand, least, most int) {
		select {
		case <-over:
		case <-time.After(time.Duration(least+dice.IntN(most-least)) * time.Millisecond):
		}
	})
	var busy sync.WaitGroup
	worker := 0
	live := func(step func(n int, dice *rand.Rand)) {
		worker++
		n, dice := worker+int(1+seed%1000)*1_000_000, rand.New(rand.NewPCG(seed, uint64(worker)))
		busy.Go(func() {
			for ; ; n += 100 { // there are fewer than 100 clients
				select {
				case <-over:
					return
				default:
					step(n, dice)
				}
			}
		})
	}
	for i := range 4 {
		p := newParty(s.t, fmt.Sprint("s-task-", i)).within(briefly)
		live(func(n int, dice *rand.Rand) { s.asTask(p, n, dice) })
		q := newParty(s.t, fmt.Sprint("s-waits-", i)).within(briefly)
		q.modern = i%2 == 1
		live(func(n int, _ *rand.Rand) { s.waits(q, n) })
		r := newParty(s.t, fmt.Sprint("s-slow-", i))
		live(func(n int, dice *rand.Rand) { s.dawdle(r, rest, n, dice) })
	}
	approver := newParty(s.t, "").within(briefly)
	live(func(_ int, dice *rand.Rand) { s.approves(approver, rest, dice) })
	live(func(_ int, dice *rand.Rand) { s.reload(rest, dice) })
	live(func(_ int, dice *rand.Rand) { s.trouble(rest, dice) })
	for _, kind := range []workload.Kind{workload.JSON, workload.SSE, workload.Modern} {
		busy.Go(func() { s.forward(kind, long) })
	}
	<-time.After(long)
	close(over)
	busy.Wait()
	s.up.mood.Store(wellBehaved)
	if err := writeFile(s.file, s.settings(0)); err != nil {
		s.t.Error(err)
	}
}

// forward makes forwarded calls, and checks every byte of the answers.
func (s *steady) forward(kind workload.Kind, long time.Duration) {
	fleet, err := load.Open(s.t.Context(), time.Now, s.agents, 2, kind)
	if err != nil {
		s.t.Error(err)
		return
	}
	result, err := fleet.Run(load.Plan{Duration: long, Rate: 40})
	if err != nil {
		s.t.Errorf("forwarded %s calls: %v", kind, err)
	}
	if err := fleet.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts["forwarded "+string(kind)] += len(result.Took)
}

// A usage is the resource usage of a gate.
type usage struct{ Goroutines, Files, Heap float64 }

// The allowed differences: idle connections and garbage vary.
const (
	spareGoroutines = 40
	spareFiles      = 40
	spareHeap       = 12 << 20
)

// idle waits until an idle gate uses no more than before, and returns its usage. Without
// before, it waits until the calls of the gate have ended.
func (s *steady) idle(before usage) usage {
	s.t.Helper()
	p := newParty(s.t, "s-idle").within(briefly)
	eventually(s.t, func() bool {
		<-time.After(100 * time.Millisecond) // the gate limits operators' requests
		all := p.send(http.MethodGet, "http://"+s.operators+"/api/approvals?state=all", "")
		return all.status == http.StatusOK && !all.has(`"id":"tg_`)
	})
	var now usage
	deadline := time.Now().Add(patience)
	for {
		now = s.usage(p)
		p.client.CloseIdleConnections()
		if before == (usage{}) || now.Goroutines <= before.Goroutines+spareGoroutines && now.Files <= before.Files+spareFiles && now.Heap <= before.Heap+spareHeap {
			return now
		}
		if time.Now().After(deadline) {
			s.t.Errorf("the gate leaks: usage %+v before, %+v after", before, now)
			return now
		}
		// Calls make garbage, so that old garbage is collected.
		for n := range 50 {
			p.ask(s.gate, "tools/call", fmt.Sprintf(`{"name":"free_x","arguments":{"n":%d,"as":"large"}}`, n))
		}
	}
}

func (s *steady) usage(p *party) (u usage) {
	s.t.Helper()
	text := []byte(p.send(http.MethodGet, "http://"+s.operators+"/metrics", "").body)
	for name, value := range map[string]*float64{"go_goroutines": &u.Goroutines, "process_open_fds": &u.Files, "go_memstats_heap_alloc_bytes": &u.Heap} {
		var err error
		if *value, err = proc.Metric(text, name); err != nil {
			s.t.Error(err)
		}
	}
	return u
}

// empty stops the gate, and checks that its store has no rows and files of calls left.
func (s *steady) empty() {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the gate ended with %v", err)
	}
	db, err := driver.Open("file:" + s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	rows := make(map[string]int)
	for _, table := range []string{"tasks", "chunks", "outlines", "journal"} {
		var n int
		if err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			s.t.Error(err)
		}
		if rows[table] = n; n > 0 && table != "journal" {
			s.t.Errorf("%d rows of %s are left", n, table)
		}
	}
	files := 0
	err = filepath.WalkDir(s.store+".results", func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files++
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) && *soakTime < time.Minute {
		err = nil // no call had a large result in this time
	}
	if files > 0 || err != nil {
		s.t.Errorf("%d files of results are left: %v", files, err)
	}
	s.t.Logf("rows left: %v", rows)
}
