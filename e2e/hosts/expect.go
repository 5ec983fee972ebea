package main

import (
	"fmt"
	"slices"
	"strings"
)

// A fault is a deviation of a record from the expected behaviour.
type fault struct {
	kind string
	text string
}

// Kinds of faults. The first four must never occur.
const (
	faultAsked  = "asked"  // approvers were not asked exactly once for a call that needs approval
	faultRan    = "ran"    // the tool ran more often than allowed
	faultEnded  = "ended"  // the host did not end by itself
	faultSaw    = "saw"    // the model saw no result
	faultLost   = "lost"   // the call was approved and did not run
	faultReason = "reason" // the model saw a result without the expected text
	faultSlow   = "slow"   // the model saw the outcome late
	faultLoop   = "loop"   // the host repeats requests
	faultLeft   = "left"   // the tool ran although the user had left
)

const (
	maxAnswer  = 5.0 // seconds from a decision to the model
	maxStreams = 20  // GET requests of one run
)

// faults returns the deviations of a record from the gate's promises.
func (r record) faults() []fault {
	s, err := scenarioOf(r.Scenario)
	if err != nil {
		return nil // a record of an older version of the rig
	}
	var all []fault
	check := func(ok bool, kind, format string, args ...any) {
		if !ok {
			all = append(all, fault{kind, fmt.Sprintf(format, args...)})
		}
	}
	check(len(r.Approvals) == s.asks(), faultAsked, "approvals asked: %d", len(r.Approvals))
	check(r.unsafe() == nil, faultRan, "runs: %d", r.Runs)
	check(r.Traffic.Streams <= maxStreams, faultLoop, "GET requests: %d", r.Traffic.Streams)
	check(s.leave == 0 || s.back > 0 || r.Runs == 0, faultLeft, "it ran after the user had gone")
	if !s.tells() {
		return all
	}
	told := plainText(r.last())
	check(r.Ended != overTime, faultEnded, "the host does not end")
	check(told != "", faultSaw, "the model saw no result")
	if lost := r.lost(s); lost != "" {
		check(false, faultLost, "%s", lost)
		return all
	}
	check(told == "" || strings.Contains(told, s.text()), faultReason, "the model was not told: %s", s.text())
	check(r.Answer == nil || *r.Answer <= maxAnswer || s.back > 0 || s.later > 0, faultSlow, "told %s after the decision", r.answer())
	return all
}

// lost returns why a call that would have been approved did not run, or nothing.
func (r record) lost(s scenario) string {
	switch {
	case slices.Contains(r.Approvals, "input_required"):
		return "the host gave up before the decision"
	case s.verdict != "approve" || r.Runs > 0:
		return ""
	case slices.Contains(r.Approvals, "cancelled"):
		return "the call was withdrawn before the decision"
	default:
		return "approved, but it did not run"
	}
}

// asks returns the expected number of approvals.
func (s scenario) asks() int {
	if s.action == "approve" {
		return 1
	}
	return 0
}

// tells reports whether the host's user is present when the call ends.
func (s scenario) tells() bool {
	stays := s.leave == 0 || s.back > 0
	ends := s.action != "approve" || s.verdict != "" || s.expiry < s.limit
	return stays && ends
}

// plainText removes the quoting of hosts that show their model JSON.
func plainText(text string) string { return strings.ReplaceAll(text, `\"`, `"`) }

// text returns the text that the model should read at the end.
func (s scenario) text() string {
	switch {
	case s.action == "deny":
		return reason
	case s.verdict == "reject":
		return rejected
	case s.action == "forward", s.verdict == "approve":
		return "deleted /payroll/bonuses.csv"
	default:
		return "did not run"
	}
}

// known lists the known faults by host, scenario and kind, where * matches any. Remove a line
// when its fault is repaired.
var known = []struct{ host, scenario, kind, why string }{
	{"ai-sdk-modern", "back", faultAsked, dropped},
	{"openai-agents-modern", "back", faultAsked, dropped},
	{"mastra-modern", "back", faultAsked, dropped},
	{"claude-code-modern", "back", faultAsked, dropped},
	{"copilot-cli-modern", "back", faultAsked, dropped},
	{"*", "killgate", faultLost, "within a turn no host starts a killed server again, and its model is told so; the call runs when the user asks again (back)"},
	{"inspector", "*", faultLost, "it makes one call, and waits 60 s for the answer"},
	{"*", "a150", faultLost, turnEnded},
	{"*", "a400", faultLost, turnEnded},
	{"*", "a660", faultLost, turnEnded},
	{"inspector-modern", "*", faultSlow, "it polls as seldom as the gate tells it to"},
	{"inspector-modern", "kill", faultLeft, "a client that has polled within two intervals counts as present"},
	{"claude-code-person", "*", faultSlow, "it polls as seldom as the gate tells it to"},
	{"claude-code-person", "kill", faultLeft, "a client that has polled within two intervals counts as present"},
	{"claude-code-person", "esc", faultLeft, "the call is a background task, which Esc does not stop"},
	{"claude-code-modern", "esc", faultLeft, "the call is a background task, which Esc does not stop"},
	{"gemini-cli", "esc", faultLeft, "the host does not tell the server"},
	{"continue", "esc", faultLeft, "the host does not tell the server"},
}

// The reasons of several faults.
const (
	dropped   = "a modern host that is killed drops its stream, and that withdraws the call"
	turnEnded = "after three answers the model ends its turn, as the gate asks; the call runs when the user asks again (later)"
)

// explanation returns the reason of a known fault, or nothing for an unknown one.
func (r record) explanation(f fault) string {
	matches := func(pattern, value string) bool { return pattern == "*" || pattern == value }
	for _, k := range known {
		if matches(k.host, r.Host) && matches(k.scenario, r.Scenario) && k.kind == f.kind {
			return k.why
		}
	}
	return ""
}
