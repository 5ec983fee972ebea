package suggest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

// A Grant is a standing approval that people could give together with their next approval.
type Grant struct {
	replay.Named `json:",inline"`

	Agent    string   `json:"agent"`
	Workflow string   `json:"workflow"`
	Command  string   `json:"command"` // that gives it
	Evidence Evidence `json:"evidence"`
	PerWeek  float64  `json:"perWeek"` // approvals that such standing approvals would have saved
	Risk     string   `json:"risk"`

	saved int
}

// grants returns the standing approvals, one for each agent, that cover approved calls.
func (s *survey) grants(about subject, calls []heldCall) []Grant {
	terms := s.cfg.Workflows[about.workflow].Grants
	if terms.Longest <= 0 || terms.Uses <= 0 {
		return nil
	}
	byAgent := make(map[string][]heldCall)
	for _, c := range calls {
		if plain(c.agent) { // anonymous agents get none
			byAgent[c.agent] = append(byAgent[c.agent], c)
		}
	}
	var all []Grant
	for _, agent := range slices.Sorted(maps.Keys(byAgent)) {
		calls, evidence := s.evidence(byAgent[agent])
		free, ok := freeArguments(calls)
		saved := savedBy(terms.Longest, terms.Uses, calls)
		if !enough(calls) || !ok || saved == 0 {
			continue
		}
		evidence.Calls, evidence.Held = len(calls), len(calls)
		g := Grant{Named: about.Named, Agent: agent, Workflow: about.workflow, Evidence: evidence, Risk: "identical calls run without being seen", saved: saved}
		g.Command = fmt.Sprintf("thoughtgate approvals approve ID --allow-for %s --allow-uses %d", terms.Longest, terms.Uses)
		for _, name := range free {
			g.Command += " --allow-any " + name
		}
		if len(free) > 0 {
			g.Risk = "the agent chooses " + strings.Join(free, ", ")
		}
		all = append(all, g)
	}
	return all
}

// freeArguments returns the arguments with several values. It returns false if the calls do not
// have the same arguments, of the same types, or no value in common.
func freeArguments(calls []heldCall) (free []string, ok bool) {
	var first map[string]jsontext.Value
	different := make(map[string]bool)
	for i := range calls {
		var args map[string]jsontext.Value
		if json.Unmarshal(calls[i].arguments, &args) != nil || args == nil {
			return nil, false
		}
		if i == 0 {
			first = args
		}
		if len(args) != len(first) {
			return nil, false
		}
		for name, v := range args {
			if v.Kind() != first[name].Kind() || strings.Trim(name, letters) != "" {
				return nil, false
			}
			if string(v) != string(first[name]) {
				different[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(different)), len(different) < len(first) || len(first) == 0
}

// letters are the characters of names that need no quotes in a shell.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// savedBy returns how many of the calls a standing approval would have covered, if people had
// given one at each call that none covered.
func savedBy(longest time.Duration, uses int, calls []heldCall) int {
	sorted := slices.SortedFunc(slices.Values(calls), func(a, b heldCall) int { return a.at.Compare(b.at) })
	saved, left := 0, 0
	var until time.Time
	for _, c := range sorted {
		if left > 0 && c.at.Before(until) {
			saved, left = saved+1, left-1
		} else {
			until, left = c.at.Add(longest), uses
		}
	}
	return saved
}
