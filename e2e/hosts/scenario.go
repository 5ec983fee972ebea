package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A scenario defines the verdict on the one call of a host, and the actions of people. Times
// count from the moment when the approver first sees the call.
type scenario struct {
	name    string
	action  string        // of the rule for the tool
	expiry  time.Duration // the workflow's timeout
	verdict string        // approve, reject or empty
	after   time.Duration // when the approver decides
	leave   time.Duration // when the user ends the host or presses Esc, if not 0
	escape  bool          // the user presses Esc instead of ending the host
	back    time.Duration // when the user starts the host again, if not 0
	later   time.Duration // when the user repeats the request in the same conversation, if not 0
	retry   bool          // the model repeats a call that its host timed out
	three   bool          // the server is one of three of an endpoint
	strikes string        // the file with the id of the process that is killed, if any
	limit   time.Duration // how long the host may run
	about   string        // for docs/hosts.md
}

// The names of all scenarios, in the order of the table.
const allScenarios = "forward deny a5 a40 a90 a150 a400 a660 reject r70 expire expire70 never t400 t660 esc kill back later"

// wrapScenarios are the scenarios for hosts with a local server.
const wrapScenarios = "forward deny a40 a150 reject kill back killserver killgate"

const (
	strikeAfter = 20 * time.Second // after the approver saw the call
	startup     = 4 * time.Minute  // for a host to start, use its model and end
	rejected    = "not during the release freeze, ask Ops"
	reason      = "deleting is final"
)

// scenarioOf returns the named scenario. In names of the form aN and tN, N is the number of
// seconds until the call is approved, and in rN until it is rejected. With -three at its end, each has an endpoint of
// three servers.
func scenarioOf(name string) (scenario, error) {
	if base, three := strings.CutSuffix(name, "-three"); three {
		s, err := scenarioOf(base)
		s.name, s.three, s.about = name, true, s.about+"; the server is one of three of an endpoint"
		return s, err
	}
	s := scenario{name: name, action: "approve", expiry: 30 * time.Minute, limit: startup}
	switch name {
	case "forward", "deny":
		s.action = name
		s.about = "policy answers: " + name
		return s, nil
	case "reject":
		return s.decided("reject", 5*time.Second), nil
	case "expire":
		return s.expiring(30 * time.Second), nil
	case "never":
		s.limit = 400 * time.Second
		s.about = "nobody decides; the host is ended after 400 s"
		return s, nil
	case "later":
		s = s.decided("approve", 80*time.Second)
		s.later = 90 * time.Second
		s.about = "the model does not call again; the call is approved after 1m20s, and a user who has no result yet asks again in the same conversation after 1m30s"
		return s, nil
	case "killserver", "killgate":
		return s.struck(strings.TrimPrefix(name, "kill")), nil
	case "esc", "kill", "back":
		return s.left(name), nil
	}
	return s.timed(name)
}

// timed returns the scenario whose name ends with a number of seconds.
func (s scenario) timed(name string) (scenario, error) {
	if seconds, ok := numbered(name, "expire"); ok {
		return s.expiring(seconds), nil
	}
	if seconds, ok := numbered(name, "a"); ok {
		return s.decided("approve", seconds), nil
	}
	if seconds, ok := numbered(name, "t"); ok {
		s = s.decided("approve", seconds)
		s.retry = true
		s.about += "; the model calls again when a call took too long for its host"
		return s, nil
	}
	if seconds, ok := numbered(name, "r"); ok {
		return s.decided("reject", seconds), nil
	}
	return scenario{}, fmt.Errorf("no scenario %q; there are: %s", name, allScenarios)
}

func numbered(name, prefix string) (time.Duration, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseUint(digits, 10, 16)
	return time.Duration(n) * time.Second, ok && err == nil
}

func (s scenario) decided(verdict string, after time.Duration) scenario {
	s.verdict, s.after, s.limit = verdict, after, after+startup
	s.about = fmt.Sprintf("%s after %s", strings.TrimSuffix(verdict, "e")+"ed", after)
	return s
}

func (s scenario) expiring(after time.Duration) scenario {
	s.expiry, s.limit = after, after+startup
	s.about = fmt.Sprintf("nobody decides, and the approval expires after %s", after)
	return s
}

// struck returns a scenario in which the server or the gate is killed.
func (s scenario) struck(victim string) scenario {
	s = s.decided("approve", 2*strikeAfter)
	s.strikes = victim + ".pid"
	s.about = fmt.Sprintf("the %s is killed after 20 s; the call is approved after 40 s", victim)
	return s
}

// left returns a scenario in which the user does not wait for the decision.
func (s scenario) left(name string) scenario {
	s.leave, s.verdict, s.after = 20*time.Second, "approve", 40*time.Second
	s.limit = s.after + startup
	switch name {
	case "esc":
		s.escape = true
		s.about = "the user presses Esc after 20 s; a call that is still pending after 40 s is approved"
	case "back":
		s.back = 60 * time.Second
		s.about = "the user ends the host after 20 s, the call is approved after 40 s, the user asks again after 60 s"
	default:
		s.about = "the host is killed after 20 s; a call that is still pending after 40 s is approved"
	}
	return s
}

// tool returns the name of the tool for clients.
func (s scenario) tool() string {
	if s.three {
		return "files__" + toolName
	}
	return toolName
}

// suits reports whether a scenario makes sense for a host.
func (s scenario) suits(h host) bool {
	switch {
	case h.wrap:
		return slices.Contains(split(wrapScenarios), s.name)
	case s.strikes != "":
		return false
	case s.after < h.least:
		return false
	case s.escape:
		return h.screen != nil
	case s.later > 0:
		return h.talks
	case s.retry:
		return h.limit > 0 && h.limit < s.after
	default:
		return true
	}
}

// laterText returns the text that tells a script to wait for a later message of the user.
func (s scenario) laterText() string {
	if s.later > 0 {
		return "yes"
	}
	return ""
}

// maxCalls returns how often the model calls the tool before it gives up.
func (s scenario) maxCalls() int {
	if s.later > 0 {
		return 1
	}
	return 20
}

// scenariosNamed returns the scenarios with the given names, separated by spaces or commas, or
// all without names.
func scenariosNamed(names string) ([]scenario, error) {
	wanted := split(names)
	if len(wanted) == 0 {
		wanted = append(split(allScenarios), "killserver", "killgate")
	}
	var found []scenario
	for _, name := range wanted {
		s, err := scenarioOf(name)
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, nil
}
