package suite

import (
	"maps"
	"slices"
)

// Status is the suite's result of one check.
type Status string

// The statuses about the server. The suite has others, for skipped and informational checks.
const (
	Success Status = "SUCCESS"
	Warning Status = "WARNING"
	Failure Status = "FAILURE"
)

// worth orders statuses. A skipped, informational or missing check is between a warning and a
// success.
func (s Status) worth() int {
	switch s {
	case Failure:
		return 0
	case Warning:
		return 1
	case Success:
		return 3
	default:
		return 2
	}
}

// A Check is one result of the suite about one server.
type Check struct {
	ID      string `json:"id"` // not unique: a scenario repeats it in loops
	Status  Status `json:"status"`
	Message string `json:"errorMessage"`
}

// Results has the checks of each scenario that the suite began, by the name of the scenario. A
// scenario that the suite could not finish has nil.
type Results map[string][]Check

// Count returns how many checks of the scenario have the status.
func (r Results) Count(scenario string, status Status) int {
	n := 0
	for _, c := range r[scenario] {
		if c.Status == status {
			n++
		}
	}
	return n
}

// Total returns how many checks of all scenarios have the status.
func (r Results) Total(status Status) int {
	n := 0
	for scenario := range r {
		n += r.Count(scenario, status)
	}
	return n
}

// A Loss is a check, or a whole scenario if Check is empty, with a worse result than expected.
type Loss struct {
	Scenario string
	Check    string
	Want     Status // empty if the check was not made
	Got      Status // empty if the check was not made
	Message  string // the suite's message about Got
}

// Compare returns how many checks pass in both want and got, and the checks that are worse in
// got than in want, ordered by scenario. Repeated checks are compared in their order. A check
// that is only in got is a loss if it is bad and the scenario passed in want, because a
// failing scenario stops early and omits checks.
func Compare(want, got Results) (passed int, losses []Loss) {
	for _, scenario := range slices.Sorted(maps.Keys(want)) {
		n, l := compareScenario(scenario, want[scenario], got[scenario])
		passed += n
		losses = append(losses, l...)
	}
	return passed, losses
}

func compareScenario(scenario string, want, got []Check) (passed int, losses []Loss) {
	if want == nil {
		return 0, nil
	}
	if got == nil {
		return 0, []Loss{{Scenario: scenario, Message: "the scenario did not finish"}}
	}
	judge := func(w, g Check) {
		switch {
		case g.Status.worth() < w.Status.worth():
			losses = append(losses, Loss{Scenario: scenario, Check: w.ID, Want: w.Status, Got: g.Status, Message: g.Message})
		case w.Status == Success:
			passed++
		}
	}
	rest := make(map[string][]Check) // checks of got that were not compared yet
	for _, g := range got {
		rest[g.ID] = append(rest[g.ID], g)
	}
	failed := false
	for _, w := range want {
		failed = failed || w.Status == Failure
		var g Check
		if same := rest[w.ID]; len(same) > 0 {
			g, rest[w.ID] = same[0], same[1:]
		}
		judge(w, g)
	}
	if failed {
		return passed, losses
	}
	for _, id := range slices.Sorted(maps.Keys(rest)) {
		for _, g := range rest[id] {
			judge(Check{ID: id}, g)
		}
	}
	return passed, losses
}
