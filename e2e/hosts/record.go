package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var indent = json.JoinOptions(jsontext.WithIndent("  "), json.Deterministic(true))

// A record is the result of one run of a host in a scenario.
type record struct {
	Host      string   `json:"host"`
	Scenario  string   `json:"scenario"`
	Day       string   `json:"day"`
	Ended     string   `json:"ended"`            // how the host ended
	Seconds   float64  `json:"seconds"`          // the duration of the run
	Traffic   traffic  `json:"traffic"`          // the requests of the host
	Approvals []string `json:"approvals"`        // the final states of the held calls
	Runs      int      `json:"runs"`             // at the upstream
	Saw       []string `json:"saw"`              // the results that the model saw
	Answer    *float64 `json:"answer,omitempty"` // seconds from the decision until the model saw the outcome
	Unknown   []string `json:"unknown,omitempty"`
}

// line describes a record in one line.
func (r record) line() string {
	return fmt.Sprintf("%-22s %-9s %-7s %6.1f s  calls %d  approvals %d %s  runs %d  answer %-8s %s",
		r.Host, r.Scenario, r.Ended, r.Seconds, r.Traffic.Calls, len(r.Approvals), join(r.Approvals), r.Runs, r.answer(), short(r.last(), 140))
}

// answer returns the seconds from the decision until the model saw the outcome.
func (r record) answer() string {
	if r.Answer == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f s", *r.Answer)
}

// last returns the last result that the model saw.
func (r record) last() string {
	if len(r.Saw) == 0 {
		return ""
	}
	return r.Saw[len(r.Saw)-1]
}

// unsafe returns an error if a tool ran more often than approved.
func (r record) unsafe() error {
	if allowed := r.mayRun(); r.Runs > allowed {
		return fmt.Errorf("%s %s: the tool ran %d times; it may run %d times", r.Host, r.Scenario, r.Runs, allowed)
	}
	return nil
}

// mayRun returns how often the tool may run: once for each approval.
func (r record) mayRun() int {
	s, err := scenarioOf(r.Scenario)
	switch {
	case err != nil || s.action == "deny":
		return 0
	case s.action == "forward":
		return r.Traffic.Calls
	case s.verdict == "approve":
		return len(r.Approvals)
	default:
		return 0
	}
}

// measured has the latest record of each cell.
type measured struct{ records []record }

// readMeasured reads a file of records. A missing file has none.
func readMeasured(file string) (*measured, error) {
	m := new(measured)
	err := readJSON(file, &m.records)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	return m, err
}

func (m *measured) write(file string) error {
	order := append(split(allScenarios), "")
	slices.SortFunc(m.records, func(a, b record) int {
		return cmp.Or(
			cmp.Compare(slices.Index(hostNames(), a.Host), slices.Index(hostNames(), b.Host)),
			cmp.Compare(slices.Index(order, a.Scenario), slices.Index(order, b.Scenario)),
			cmp.Compare(a.Scenario, b.Scenario))
	})
	text, err := json.Marshal(m.records, indent)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) // readable like other files of the repository
}

// add adds a record, which replaces an earlier one of the same cell.
func (m *measured) add(r record) {
	for i, text := range r.Saw {
		r.Saw[i] = short(text, 1000)
	}
	m.records = slices.DeleteFunc(m.records, func(old record) bool { return old.Host == r.Host && old.Scenario == r.Scenario })
	m.records = append(m.records, r)
}

// of returns the records of a host.
func (m *measured) of(h host) []record {
	var own []record
	for _, r := range m.records {
		if r.Host == h.name {
			own = append(own, r)
		}
	}
	return own
}

func join(words []string) string { return strings.Join(words, " ") }

// short returns the beginning of a text on one line.
func short(text string, length int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= length {
		return string(runes)
	}
	return string(runes[:length-1]) + "…"
}
