package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
)

// An outcome is the result of one leg.
type outcome struct {
	leg    leg
	direct suite.Results
	gated  suite.Results
	reruns []string // the scenarios that differed at first, once for each repetition
}

// byDesignOfThree are those checks with an endpoint of three servers.
var byDesignOfThree = map[string]string{
	"server-sse-streams-functional": "the lists of several servers are merged, so they come as JSON, also if a server sends event streams",
}

// byDesign are the other checks that must be worse through the gate, or are known to be, and why.
var byDesign = map[leg]map[string]string{
	clients: {
		"prm-pathbased-requested":        "the gate reads the metadata of the server again only after a challenge, and 10 seconds after it was wrong",
		"resource-parameter-matches-prm": "a client asks for a token for the gate, which is the resource that it uses, and not for the server of the suite",
	},
	connected: {
		"prm-pathbased-requested": "the gate reads wrong metadata once for each attempt of an operator, and the client several times",
		"client-registration":     "the gate uses its registration again",
	},
	{version: "2025-06-18", sessions: true, policy: translated}: lostBeforeModern,
	{version: "2025-11-25", sessions: true, policy: translated}: lostBeforeModern,
	{version: "2026-07-28", policy: translated}: {
		"sep-2243-server-validate-param-match":      noArgumentHeaders,
		"sep-2243-server-reject-param-mismatch":     noArgumentHeaders,
		"sep-2322-elicitation-incomplete":           ownKeys,
		"sep-2322-elicitation-complete":             ownKeys,
		"sep-2322-ignore-unexpected-params":         ownKeys,
		"sep-2322-multi-round-r2":                   oneRound,
		"sep-2322-multi-round-r3":                   oneRound,
		"sep-2322-multiple-inputs-incomplete":       "an older server asks one question after the other",
		"sep-2322-multiple-inputs-complete":         "an older server asks one question after the other",
		"server-sse-streams-functional":             plainAnswers,
		"sep-2575-http-server-method-not-found-404": unknownMethod,
	},
}

// Why checks are lost between the eras.
const (
	noRequests        = "the tool of the server sends a request, which servers of 2026-07-28 cannot"
	plainAnswers      = "the answer is JSON where the server of the suite would open an event stream"
	ownKeys           = "an older server names its questions by ids, not by the key that the suite expects"
	oneRound          = "the older server of the SDK asks for input in one round only"
	noArgumentHeaders = "not done: an older server does not compare headers with arguments, and the gate does not do so for it"
	unknownMethod     = "not done: an older server refuses an unknown method with another status, which the gate passes on"
)

// lostBeforeModern are the checks that older clients lose at a server of 2026-07-28.
var lostBeforeModern = map[string]string{
	"tools-call-elicitation":               noRequests,
	"tools-call-sampling":                  noRequests,
	"elicitation-sep1034-string-default":   noRequests,
	"elicitation-sep1034-integer-default":  noRequests,
	"elicitation-sep1034-number-default":   noRequests,
	"elicitation-sep1034-enum-default":     noRequests,
	"elicitation-sep1034-boolean-default":  noRequests,
	"elicitation-sep1034-general":          noRequests,
	"elicitation-sep1330-untitled-single":  noRequests,
	"elicitation-sep1330-titled-single":    noRequests,
	"elicitation-sep1330-legacy-enumnames": noRequests,
	"elicitation-sep1330-untitled-multi":   noRequests,
	"elicitation-sep1330-titled-multi":     noRequests,
	"elicitation-sep1330-general":          noRequests,
	"server-sse-streams-functional":        plainAnswers,
	"server-sse-retry-field":               "servers of 2026-07-28 do not let clients continue a stream",
}

// byDesign returns the checks that must be worse through the gate, and why.
func (l leg) byDesign() map[string]string {
	if l.endpoint == "three" {
		return byDesignOfThree
	}
	return byDesign[l]
}

// losses returns how many checks pass in both ways, and which are worse through the gate: those that should not be,
// and those that are by design.
func (o outcome) losses() (passed int, losses, expected []suite.Loss) {
	passed, all := suite.Compare(o.direct, o.gated)
	for _, l := range all {
		if o.leg.byDesign()[l.Check] != "" {
			expected = append(expected, l)
		} else {
			losses = append(losses, l)
		}
	}
	return passed, losses, expected
}

// differing returns the scenarios that are worse through the gate.
func (o outcome) differing() []string {
	_, losses, _ := o.losses()
	var names []string
	for _, l := range losses {
		names = append(names, l.Scenario)
	}
	return slices.Compact(names)
}

// String returns a summary of the leg in one line.
func (o outcome) String() string {
	return fmt.Sprintf("%-29s %2d scenarios: %3d checks pass directly, %3d through the gate",
		o.leg, len(o.direct), o.direct.Total(suite.Success), o.gated.Total(suite.Success))
}

// A report has the results of all legs.
type report []outcome

// count returns how many checks pass in both ways, and how many are worse through the gate.
func (r report) count() (passed, lost int) {
	for _, o := range r {
		n, losses, _ := o.losses()
		passed, lost = passed+n, lost+len(losses)
	}
	return passed, lost
}

// String returns the report; its last line is the verdict.
func (r report) String() string {
	var b strings.Builder
	r.table(&b)
	for _, o := range r {
		for _, scenario := range o.reruns {
			fmt.Fprintf(&b, "run again: %s %s\n", o.leg, scenario)
		}
	}
	for _, o := range r {
		_, losses, expected := o.losses()
		for _, l := range expected {
			fmt.Fprintf(&b, "by design: %s %s %s: %s\n", o.leg, l.Scenario, l.Check, o.leg.byDesign()[l.Check])
		}
		for _, l := range losses {
			fmt.Fprintf(&b, "LOST: %s %s\n", o.leg, describe(l))
		}
	}
	passed, lost := r.count()
	fmt.Fprintf(&b, "%d passed, %d failed\n", passed, lost)
	return b.String()
}

func describe(l suite.Loss) string {
	if l.Check == "" {
		return l.Scenario + ": " + l.Message
	}
	return fmt.Sprintf("%s %s: %s directly, %s through the gate: %s",
		l.Scenario, l.Check, cmp.Or(l.Want, "absent"), cmp.Or(l.Got, "absent"), l.Message)
}

// table writes for each scenario the number of checks that pass in all legs.
func (r report) table(b *strings.Builder) {
	type row struct{ legs, made, direct, gated int }
	rows := make(map[string]row)
	for _, o := range r {
		for scenario, checks := range o.direct {
			t := rows[scenario]
			t.legs++
			t.made += len(checks)
			t.direct += o.direct.Count(scenario, suite.Success)
			t.gated += o.gated.Count(scenario, suite.Success)
			rows[scenario] = t
		}
	}
	lines := []string{"SCENARIO\tRUNS\tCHECKS\tPASS DIRECTLY\tPASS THROUGH THE GATE"}
	for _, scenario := range slices.Sorted(maps.Keys(rows)) {
		t := rows[scenario]
		lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%d\t%d", scenario, t.legs, t.made, t.direct, t.gated))
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\n"+strings.Join(lines, "\n")+"\n") // writing to a strings.Builder cannot fail
	_ = w.Flush()
}

// directFailures returns the checks that fail without the gate, one per line.
func (r report) directFailures() string {
	var b strings.Builder
	for _, o := range r {
		for _, scenario := range slices.Sorted(maps.Keys(o.direct)) {
			if o.direct[scenario] == nil {
				fmt.Fprintf(&b, "fails directly: %s %s does not finish\n", o.leg, scenario)
			}
			for _, c := range o.direct[scenario] {
				if c.Status == suite.Failure {
					fmt.Fprintf(&b, "fails directly: %s %s %s: %s\n", o.leg, scenario, c.ID, c.Message)
				}
			}
		}
	}
	return b.String()
}
