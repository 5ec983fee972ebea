package explore

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
)

var (
	oneName = flag.String("name", "", "the run that TestNamedRun makes, such as held-task/7:lost+12:die")
	pairs   = flag.Int("pairs", 200, "how many pairs of faults TestPairsOfFaultsKeepThePromises tries in each scenario; 0 means all")
)

// A record has the results of a run.
type record struct {
	points []point
	wrong  []string
	story  []string
	fates  map[string]fate
	moved  map[[2]task.State]int
	ends   []string // the final state of each task, and whether its call ran
	runs   int      // how often the upstream ran a tool
	excuse excuse
}

// play executes the run of a plan.
func play(t *testing.T, p plan) (r record) {
	s, ok := scenarios[p.scenario]
	if !ok {
		t.Fatalf("unknown scenario %q", p.scenario)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, p, s.settings)
		s.begin(w)
		w.run()
		r.wrong, r.ends, r.runs = w.outcomes.check(), w.ends(), len(w.server.runs())
		r.wrong = append(r.wrong, w.checkLimits()...)
		if len(p.faults) == 0 && oneOf() == 1 {
			time.Sleep(3 * time.Hour)
			r.wrong = append(r.wrong, w.checkEmpty()...)
		}
		w.end()
		r.points, r.story, r.fates, r.moved = w.points, w.story, w.outcomes.fates, w.outcomes.transitions
		r.excuse = w.outcomes.excuse
	})
	return r
}

// explain fails the test with the results and the story of a run.
func explain(t *testing.T, p plan, r record) {
	t.Helper()
	t.Errorf("%s\n%s\n%s", p.name(), strings.Join(r.wrong, "\n"), strings.Join(r.story, "\n"))
}

func TestNamedRun(t *testing.T) {
	if *oneName == "" {
		t.Skip("needs -name")
	}
	p, err := parsePlan(*oneName)
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, p)
	t.Logf("%s", strings.Join(r.story, "\n"))
	if len(r.wrong) > 0 {
		explain(t, p, r)
	}
}

// Without faults, every scenario has its expected outcome, with the same steps in each run.
func TestScenarios(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			p := plan{scenario: name}
			first := play(t, p)
			if len(first.wrong) > 0 || first.fates["a"] != scenarios[name].want {
				t.Errorf("the agent knows %q; want %q", first.fates["a"], scenarios[name].want)
				explain(t, p, first)
			}
			if again := play(t, p); !slices.Equal(steps(first), steps(again)) {
				t.Errorf("a second run has other steps:\n%s\n\n%s", strings.Join(first.story, "\n"), strings.Join(again.story, "\n"))
			}
			if op := scenarios[name].reaches; op != "" && !slices.ContainsFunc(first.points, func(p point) bool { return p.op == op }) {
				t.Errorf("the call %s is not made", op)
			}
			t.Logf("%d points", len(first.points))
		})
	}
}

// steps returns the calls of a run without housekeeping. The time of housekeeping varies,
// because Go chooses at random between ready channels.
func steps(r record) []string {
	var list []string
	for _, p := range r.points {
		if !strings.Contains(p.about, "housekeeper") && !strings.Contains(p.about, "canceller") {
			list = append(list, p.gate+" "+p.op+" "+p.about)
		}
	}
	return list
}

func names() []string {
	var list []string
	for name := range scenarios {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// applicable returns the faults that are possible for a call with this name.
func applicable(op string) []fault {
	switch {
	case op == "store.Watch":
		return []fault{die, fail, cut, deaf}
	case strings.HasPrefix(op, "client."):
		return []fault{die, dieAfter, lost, fail, late, freeze}
	case reads(op):
		return []fault{die, fail, late, overdue, between, freeze, cut}
	case strings.HasPrefix(op, "store."):
		return []fault{die, dieAfter, lost, fail, late, overdue, between, freeze, cut, cutAfter}
	default:
		return []fault{die, dieAfter, lost, fail, late, overdue, between, freeze}
	}
}

// reads reports whether a call changes nothing that a scenario depends on, so that its effect
// does not matter.
func reads(op string) bool {
	for _, read := range []string{"Get", "List", "Overdue", "ReadChunk", "Entries", "Ends", "GetRecord", "ListRecords", "Sweep", "SweepRecords"} {
		if op == "store."+read {
			return true
		}
	}
	return false
}

// renews reports whether a call only records that a client still waits for its task.
func renews(op, about string) bool {
	return op == "store.Swap" && (about == string(task.InputRequired) || about == string(task.Approved) || about == string(task.Executing))
}

// Every call of every scenario fails in every way, one at a time.
func TestEveryFaultKeepsThePromises(t *testing.T) {
	seen := newCoverage()
	t.Cleanup(func() {
		if oneOf() == 1 && !t.Failed() && seen.scenarios == len(scenarios) {
			seen.check(t)
		}
	})
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := play(t, plan{scenario: name})
			seen.add(base)
			seen.played()
			var plans []plan
			for i, point := range base.points {
				for _, f := range applicable(point.op) {
					plans = append(plans, plan{scenario: name, faults: map[int]fault{i + 1: f}})
				}
			}
			plans = every(plans, oneOf())
			try(t, plans, seen)
			t.Logf("%d points, %d runs", len(base.points), len(plans))
		})
	}
}

// Two calls of every scenario fail. The flag -pairs limits the number of pairs, to calls that change
// something.
func TestPairsOfFaultsKeepThePromises(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := play(t, plan{scenario: name})
			var firsts []plan
			for i, point := range base.points {
				if *pairs > 0 && reads(point.op) {
					continue
				}
				for _, f := range applicable(point.op) {
					firsts = append(firsts, plan{scenario: name, faults: map[int]fault{i + 1: f}})
				}
			}
			runs := 0
			for i, first := range firsts {
				if *pairs > 0 && runs >= *pairs/oneOf() {
					break
				}
				if *pairs > 0 {
					first = firsts[i*prime%len(firsts)]
				}
				plans := seconds(first, play(t, first))
				if *pairs > 0 && len(plans) > 4 {
					plans = []plan{plans[i*prime%len(plans)], plans[(i*prime+len(plans)/2)%len(plans)]}
				}
				runs += len(plans)
				try(t, plans, nil)
			}
			t.Logf("%d runs", runs)
		})
	}
}

// prime spreads the tried pairs over all pairs.
const prime = 7919

// seconds returns the plans with one more fault than a run with one fault.
func seconds(first plan, r record) []plan {
	at := sortedKeys(first.faults)[0]
	var plans []plan
	for i := at; i < len(r.points); i++ {
		if *pairs > 0 && reads(r.points[i].op) {
			continue
		}
		for _, f := range applicable(r.points[i].op) {
			faults := maps.Clone(first.faults)
			faults[i+1] = f
			plans = append(plans, plan{scenario: first.scenario, faults: faults})
		}
	}
	return plans
}

// Whenever several calls wait, each of them is the first to continue once. With -pairs 0, all
// pairs of these choices are tried.
func TestEverySchedule(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := plan{scenario: name}
			plans := switches(base, play(t, base), 0)
			if *pairs == 0 {
				for _, p := range plans {
					plans = append(plans, switches(p, play(t, p), sortedKeys(p.switches)[0])...)
				}
			}
			plans = every(plans, oneOf())
			try(t, plans, nil)
			t.Logf("%d schedules", len(plans))
		})
	}
}

// switches returns the plans with one more choice than p, after the given call.
func switches(p plan, r record, after int) []plan {
	var plans []plan
	for i := after; i < len(r.points); i++ {
		for choice := 1; choice <= r.points[i].others; choice++ {
			next := maps.Clone(p.switches)
			if next == nil {
				next = map[int]int{}
			}
			next[i+1] = choice
			plans = append(plans, plan{scenario: p.scenario, switches: next})
		}
	}
	return plans
}

// try executes runs, and reports those that break a promise, in the shortest form.
func try(t *testing.T, plans []plan, seen *coverage) {
	failed := 0
	for _, p := range plans {
		r := play(t, p)
		seen.add(r)
		if len(r.wrong) == 0 {
			continue
		}
		p, r = shrink(t, p, r)
		if failed++; failed <= 3 {
			explain(t, p, r)
		} else {
			t.Errorf("%s %s", p.name(), r.wrong)
		}
	}
}

// shrink returns the shortest part of a plan that still breaks a promise.
func shrink(t *testing.T, p plan, r record) (plan, record) {
	for _, n := range append(sortedKeys(p.faults), sortedKeys(p.switches)...) {
		less := plan{scenario: p.scenario, faults: maps.Clone(p.faults), switches: maps.Clone(p.switches)}
		delete(less.faults, n)
		delete(less.switches, n)
		if got := play(t, less); len(got.wrong) > 0 {
			return shrink(t, less, got)
		}
	}
	return p, r
}

// oneOf returns n if only each n-th run is made: the race detector makes runs slow, and make test
// makes few. make explore makes all.
func oneOf() int {
	if !testenv.Complete() {
		return max(raceFactor, 25)
	}
	return raceFactor
}

// every returns every n-th plan.
func every(plans []plan, n int) []plan {
	var some []plan
	for i := 0; i < len(plans); i += n {
		some = append(some, plans[i])
	}
	return some
}
