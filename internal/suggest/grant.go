package suggest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

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
		free, below, ok := freeArguments(calls)
		saved := savedBy(terms.Longest, terms.Uses, calls)
		if !enough(calls) || !ok || saved == 0 {
			continue
		}
		evidence.Calls, evidence.Held = len(calls), len(calls)
		g := Grant{Named: about.Named, Agent: agent, Workflow: about.workflow, Evidence: evidence, Risk: "identical calls run without being seen", saved: saved}
		g.Command = fmt.Sprintf("thoughtgate approvals approve ID --allow-for %s --allow-uses %d", terms.Longest, terms.Uses)
		for _, name := range slices.Sorted(maps.Keys(below)) {
			g.Command += " --allow-below " + name + "=" + below[name]
			g.Risk = "a link in the directory may lead out of it"
		}
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

// freeArguments returns the arguments with several values: those below a directory, and others. It
// returns false if the calls do not have the same arguments, of the same types, or no value in
// common, or if people must see them.
func freeArguments(calls []heldCall) (free []string, below map[string]string, ok bool) {
	values := valuesOf(calls)
	below = make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all := values[name]
		if strings.Trim(name, letters) != "" || len(all) < len(calls) || !sameType(all) {
			return nil, nil, false
		}
		if sameValue(all) {
			continue
		}
		if dir := directoryOf(all); strings.HasPrefix(dir, "/") && strings.Trim(dir, letters+"/.-=@~") == "" {
			below[name] = strings.TrimSuffix(dir, "/")
		} else {
			free = append(free, name)
		}
	}
	return free, below, values != nil && !slices.ContainsFunc(free, decides) && (len(free) < len(values) || len(values) == 0)
}

func sameType(all []any) bool {
	first := reflect.TypeOf(all[0])
	return !slices.ContainsFunc(all, func(v any) bool { return reflect.TypeOf(v) != first })
}

func sameValue(all []any) bool {
	return !slices.ContainsFunc(all, func(v any) bool { return !reflect.DeepEqual(v, all[0]) })
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
