package callrecord_test

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func each(entries []callrecord.Entry) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestSummarize(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(hours float64) time.Time { return start.Add(time.Duration(hours * float64(time.Hour))) }
	judged := func(hours float64, tool, agent string, action policy.Action) callrecord.Entry {
		return callrecord.Entry{Time: at(hours), Event: callrecord.Judged, Upstream: "crm", Name: tool, Principal: agent, Action: action}
	}
	held := func(hours float64, id, workflow string) callrecord.Entry {
		e := judged(hours, "delete", "ann", policy.Approve)
		e.ID, e.Workflow = id, workflow
		return e
	}
	ended := func(e callrecord.Entry, hours float64, outcome string, by ...string) callrecord.Entry {
		e.Event, e.Outcome, e.By = callrecord.Ended, outcome, by
		if len(by) > 0 {
			e.Decided = at(hours)
		}
		e.Time = at(hours)
		return e
	}
	observed := judged(5, "wipe", "", policy.Forward)
	observed.Observed, observed.Workflow, observed.Rule = policy.Approve, "ops", "rule wipes"
	a, b, c, d := held(1, "a", "ops"), held(2, "b", "ops"), held(3, "c", "finance"), held(4, "d", "ops")
	repeated := a
	repeated.Outcome = callrecord.Attached
	entries := []callrecord.Entry{
		repeated, // counted with a
		judged(-1, "read", "ann", policy.Forward), // too early
		judged(0, "read", "ann", policy.Forward), judged(0, "read", "bob", policy.Forward), judged(9, "drop", "bob", policy.Deny),
		a, b, c, d, ended(a, 1.5, "completed", "eve"), ended(b, 4, "rejected", "eve"), ended(c, 6, "expired"), ended(d, 7, "cancelled"),
		observed, observed,
		judged(10, "read", "ann", policy.Forward), // too late
	}
	got, err := callrecord.Summarize(each(entries), start, at(10), 2)
	if err != nil {
		t.Fatal(err)
	}
	all := callrecord.Counts{Forwarded: 4, Denied: 1, Held: 4, Observed: 2, Approved: 1, Rejected: 1, Expired: 1, Other: 1}
	heldOnes := callrecord.Counts{Held: 4, Approved: 1, Rejected: 1, Expired: 1, Other: 1}
	want := callrecord.Summary{
		Since: start, Until: at(10), Total: all,
		Periods: []callrecord.Period{
			{From: start, Counts: callrecord.Counts{Forwarded: 2, Held: 4, Approved: 1, Rejected: 1}},
			{From: at(5), Counts: callrecord.Counts{Forwarded: 2, Denied: 1, Observed: 2, Expired: 1, Other: 1}},
		},
		Workflows: []callrecord.Group{
			{Name: "ops", Counts: callrecord.Counts{Held: 3, Approved: 1, Rejected: 1, Other: 1}},
			{Name: "finance", Counts: callrecord.Counts{Held: 1, Expired: 1}},
		},
		Tools: []callrecord.Group{
			{Name: "delete", Upstream: "crm", Counts: heldOnes},
			{Name: "read", Upstream: "crm", Counts: callrecord.Counts{Forwarded: 2}},
			{Name: "wipe", Upstream: "crm", Counts: callrecord.Counts{Forwarded: 2, Observed: 2}},
			{Name: "drop", Upstream: "crm", Counts: callrecord.Counts{Denied: 1}},
		},
		Agents: []callrecord.Group{
			{Name: "ann", Counts: callrecord.Counts{Forwarded: 1, Held: 4, Approved: 1, Rejected: 1, Expired: 1, Other: 1}},
			{Name: "", Counts: callrecord.Counts{Forwarded: 2, Observed: 2}},
			{Name: "bob", Counts: callrecord.Counts{Forwarded: 1, Denied: 1}},
		},
		Observed:  []callrecord.Notice{{Action: policy.Approve, Rule: "rule wipes", Upstream: "crm", Name: "wipe", Calls: 2}},
		Decisions: callrecord.Durations{Count: 2, Median: 2 * time.Hour, Ninety: 2 * time.Hour},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An agent that makes up names does not use up the memory of the gate.
func TestSummaryOfManyNames(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var entries []callrecord.Entry
	for i := range 10_000 {
		entries = append(entries, callrecord.Entry{Time: start, Event: callrecord.Judged, Name: fmt.Sprint(i), Principal: fmt.Sprint(i), Action: policy.Forward, Observed: policy.Deny})
	}
	got, err := callrecord.Summarize(each(entries), start, start.Add(time.Hour), 1)
	if err != nil || got.Total.Forwarded != 10_000 || len(got.Tools) != 10 || len(got.Agents) != 10 || len(got.Observed) != 100 || got.Left == 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
