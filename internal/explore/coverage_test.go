package explore

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A coverage records which calls ended with which faults, and which state changes occurred.
type coverage struct {
	mu        sync.Mutex
	scenarios int // that were played
	faults    map[string]map[fault]int
	moved     map[[2]task.State]int
}

func newCoverage() *coverage {
	return &coverage{faults: map[string]map[fault]int{}, moved: map[[2]task.State]int{}}
}

func (c *coverage) add(r record) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range r.points {
		if c.faults[p.op] == nil {
			c.faults[p.op] = map[fault]int{}
		}
		c.faults[p.op][p.fault]++
	}
	for change, n := range r.moved {
		c.moved[change] += n
	}
}

// played records that one more scenario was played.
func (c *coverage) played() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scenarios++
}

// uncovered are the parts of the store's contract and the state changes that no scenario
// reaches, with the reasons.
var uncovered = map[string]string{
	"store.Close":        "the store outlives its gates",
	"store.DeleteRecord": "only sessions of operators and of programs are deleted; no held call needs them",
	"store.SizeRecords":  "only the record of calls is limited in size; no held call needs it",
	"store.Append":       "notes about something that changes no task: sign-ins and configuration",
	"store.Reclaim":      "only a store that is full reclaims, and this one is not",
	"store.Trim":         "the journal is kept for good here",

	"working input_required": "a held call is created as input_required",
	"working approved":       "a call that needs no approval is created as approved",
	"working failed":         "see above",
	"working cancelled":      "see above",
	"working expired":        "see above",
	"input_required failed":  "only a gate with a store in memory fails what is pending when it stops",
}

// check fails if a call or a state change did not occur, and prints the table.
func (c *coverage) check(t *testing.T) {
	for op := range methods(reflect.TypeFor[gatestore.Store]()) {
		if c.faults[op] == nil && uncovered[op] == "" {
			t.Errorf("no scenario reaches %s", op)
		}
	}
	for from, to := range lifecycle.Transitions() {
		if change := fmt.Sprint(from, " ", to); c.moved[[2]task.State{from, to}] == 0 && uncovered[change] == "" {
			t.Errorf("no scenario has a task go from %s", strings.Replace(change, " ", " to ", 1))
		}
	}
	for op, faults := range c.faults {
		for _, f := range applicable(op) {
			if faults[f] == 0 {
				t.Errorf("%s never ended with %s", op, f)
			}
		}
	}
	t.Log(c.report())
}

func methods(contract reflect.Type) map[string]bool {
	names := map[string]bool{}
	for m := range contract.Methods() {
		names["store."+m.Name] = true
	}
	return names
}

// report returns a table of calls and faults.
func (c *coverage) report() string {
	columns := []fault{none, die, dieAfter, lost, fail, late, overdue, deaf, between, freeze, cut, cutAfter}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-28s", "call")
	for _, f := range columns {
		fmt.Fprintf(&b, "%10s", cmp.Or(f, "no fault"))
	}
	for _, op := range slices.Sorted(maps.Keys(c.faults)) {
		fmt.Fprintf(&b, "\n%-28s", op)
		for _, f := range columns {
			fmt.Fprintf(&b, "%10d", c.faults[op][f])
		}
	}
	return b.String()
}
