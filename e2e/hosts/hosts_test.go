package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// atOnce is how many hosts run at the same time. They mostly wait, but starting them is
// expensive.
const atOnce = 4

// connects is how often a host may try to connect. Some hosts give up after a few seconds,
// which can be too short on a busy machine.
const connects = 3

// TestSmallHosts runs the hosts that are installed quickly, in the scenarios that take
// seconds. They are not isolated, so that the test runs on every system.
//
// The gate holds a call of a real host: it asks approvers once, the tool runs at most once and
// never without approval, and the model gets the outcome.
func TestSmallHosts(t *testing.T) {
	testenv.NeedNode(t)
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	gate, err := buildGate(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var cells []*cell
	for _, h := range allHosts() {
		if !h.small {
			continue
		}
		modules, err := install(t.Context(), cache, h)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range smallScenarios(h) {
			s, err := scenarioOf(name)
			if err != nil {
				t.Fatal(err)
			}
			cells = append(cells, &cell{host: h, scenario: s, gate: gate, modules: modules, dir: t.TempDir(), now: time.Now})
		}
	}
	results := runCells(t, cells)
	for i, c := range cells {
		t.Run(c.host.name+"/"+c.scenario.name, func(t *testing.T) { assess(t, c, results[i]) })
	}
}

// smallScenarios returns the scenarios for a host in make test. Calls that are not held are
// tested only with legacy servers, because a modern host handles them in the same way.
func smallScenarios(h host) []string {
	if h.modern {
		return []string{"a5", "reject"}
	}
	return []string{"forward", "deny", "a5", "reject"}
}

// A result is the record of a cell, or the error.
type result struct {
	record record
	err    error
}

// runCells runs cells, several at a time, and returns when all have ended.
func runCells(t *testing.T, cells []*cell) []result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	results := make([]result, len(cells))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, c := range cells {
		group.Go(func() error {
			results[i] = runCell(ctx, c)
			return nil
		})
	}
	_ = group.Wait() // the errors are in the results
	return results
}

// runCell runs a cell, and runs it again if the host called no tool.
func runCell(ctx context.Context, c *cell) (r result) {
	base := c.dir
	for i := range connects {
		c.dir = filepath.Join(base, strconv.Itoa(i))
		if r.err = os.Mkdir(c.dir, 0o700); r.err != nil {
			return r
		}
		r.record, r.err = c.run(ctx)
		if r.err != nil || r.record.Traffic.Calls > 0 {
			return r
		}
	}
	return r
}

// assess checks a record for faults that are not known.
func assess(t *testing.T, c *cell, r result) {
	t.Helper()
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, tail(filepath.Join(c.dir, "host.err")))
	}
	t.Log(r.record.line())
	for _, f := range r.record.faults() {
		switch why := r.record.explanation(f); {
		case f.kind == faultSlow: // machines are busy
			t.Log(f.text)
		case why != "":
			t.Logf("%s; known: %s", f.text, why)
		default:
			t.Errorf("%s\noutput of the host:\n%s\nmessages:\n%s", f.text, tail(filepath.Join(c.dir, "host.err")), tail(filepath.Join(c.dir, "wire.log")))
		}
	}
}

// tail returns the end of a file.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// Records with faults are recognized.
func TestFaults(t *testing.T) {
	slow := 7.5
	const deleted, denied = "deleted /payroll/bonuses.csv", "denied: deleting is final"
	for _, c := range []struct {
		name string
		r    record
		want []string
	}{
		{"a good run", record{Scenario: "a5", Approvals: []string{"completed"}, Runs: 1, Saw: []string{deleted}}, nil},
		{"a good denial", record{Scenario: "deny", Saw: []string{denied}}, nil},
		{"a denied call that ran", record{Scenario: "deny", Runs: 1, Saw: []string{denied}}, []string{faultRan}},
		{"a rejected call that ran", record{Scenario: "reject", Approvals: []string{"rejected"}, Runs: 1, Saw: []string{rejected}}, []string{faultRan}},
		{"two runs", record{Scenario: "a5", Approvals: []string{"completed"}, Runs: 2, Saw: []string{deleted}}, []string{faultRan}},
		{"two approvals", record{Scenario: "a5", Approvals: []string{"completed", "rejected"}, Runs: 1, Saw: []string{deleted}}, []string{faultAsked}},
		{"no approval", record{Scenario: "a5", Runs: 1, Saw: []string{deleted}}, []string{faultAsked, faultRan}},
		{"no result", record{Scenario: "a5", Approvals: []string{"completed"}, Runs: 1}, []string{faultSaw}},
		{"no end", record{Scenario: "a5", Ended: overTime, Approvals: []string{"completed"}, Runs: 1, Saw: []string{deleted}}, []string{faultEnded}},
		{"no reason", record{Scenario: "reject", Approvals: []string{"rejected"}, Saw: []string{"try again"}}, []string{faultReason}},
		{"no run", record{Scenario: "a5", Approvals: []string{"approved"}, Saw: []string{deleted}}, []string{faultLost}},
		{"an impatient host", record{Scenario: "a660", Approvals: []string{"input_required"}, Saw: []string{"it waits"}}, []string{faultLost}},
		{"a late answer", record{Scenario: "a5", Approvals: []string{"completed"}, Runs: 1, Saw: []string{deleted}, Answer: &slow}, []string{faultSlow}},
		{"a loop", record{Scenario: "deny", Traffic: traffic{Streams: 100}, Saw: []string{denied}}, []string{faultLoop}},
		{"a run after Esc", record{Scenario: "esc", Approvals: []string{"completed"}, Runs: 1}, []string{faultLeft}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, f := range c.r.faults() {
				got = append(got, f.kind)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// docs/hosts.md and docs/hosts.csv match the measurements.
func TestDocs(t *testing.T) {
	m, err := readMeasured("measured.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := docs()
	if err != nil {
		t.Fatal(err)
	}
	table, err := m.table()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{docsFile: page, tableFile: string(table)} {
		got, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is out of date; run go run ./e2e/hosts -docs (-want +got):\n%s", file, diff)
		}
	}
}

// The package-lock.json files name no registry, so that npm uses the configured one and
// verifies the digests.
func TestLocks(t *testing.T) {
	for _, h := range allHosts() {
		lock, err := pins.ReadFile("npm/" + h.pins + "/package-lock.json")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(lock), `"resolved"`) {
			t.Errorf("%s: package-lock.json names a registry", h.pins)
		}
		if !strings.Contains(string(lock), `"integrity"`) {
			t.Errorf("%s: package-lock.json has no digests", h.pins)
		}
	}
}
