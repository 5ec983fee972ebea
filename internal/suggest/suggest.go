// Package suggest proposes rules from recorded calls, which people may copy into their
// configuration:
//
//	report, err := suggest.From(ctx, cfg, 2, callrecord.Filter{Since: since}, read)
//	fmt.Print(report.Text())
//
// A proposal forwards held calls that people have always approved: those of a tool that only
// reads, or those whose arguments have the same shape, by the same agents. It has at least
// [LeastApprovals] approvals on [LeastDays] days. There is none for a tool with a rejected call,
// with a destructive hint, with a changed definition or with a name that speaks of secrets, nor
// for arguments that have secrets or code. For calls that only Cedar policies could tell from others,
// in a configuration that has such policies, it proposes standing approvals.
//
// Each proposal is tried: the record is judged again with it. It is dropped unless it changes
// exactly the calls that it is about.
package suggest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

// The least evidence of a proposal.
const (
	LeastApprovals = 5
	LeastDays      = 2 // different days, in UTC, on which calls were made that people approved
)

// A Report has the proposals for a configuration.
type Report struct {
	First     time.Time  `json:"first"`
	Last      time.Time  `json:"last"`
	Calls     int        `json:"calls"`
	Proposals []Proposal `json:"proposals"` // the one that saves most first
	Grants    []Grant    `json:"grants"`    // standing approvals for calls without a proposal
	Unused    []Unused   `json:"unused"`

	// Approved calls of tools about which nothing is proposed, and why: policies hold them, or their
	// arguments are not in the record.
	ByPolicies int `json:"byPolicies"`
	Unrecorded int `json:"unrecorded"`
}

// A Proposal is a rule that forwards calls which are held now.
type Proposal struct {
	replay.Named `json:",inline"`

	Kind     Kind     `json:"kind"`
	Before   string   `json:"before"` // which rule it must be inserted, such as rules[3] or default
	Rule     string   `json:"rule"`   // an item of the setting rules, in YAML
	Cedar    string   `json:"cedar,omitzero"`
	Evidence Evidence `json:"evidence"`
	PerWeek  float64  `json:"perWeek"` // approvals that it would have saved
	Risk     string   `json:"risk"`

	decides int           // the rule that holds the calls now, as in [policy.Verdict.Rule]
	agents  []string      // only their calls are forwarded, unless nil
	shape   *shape        // nil if the arguments may be any
	config  policy.Config // with the proposal
}

// A Kind says why calls may be forwarded.
type Kind string

// The kinds.
const (
	ReadOnly  Kind = "read-only" // the tool only reads
	Arguments Kind = "arguments" // the arguments have a shape
)

// Evidence is what is recorded about calls.
type Evidence struct {
	Calls    int       `json:"calls"`    // that would be forwarded
	Held     int       `json:"held"`     // of them, those that were held
	Approved int       `json:"approved"` // of them
	By       []string  `json:"by"`       // the people who approved
	Since    time.Time `json:"since"`    // the first of the approved calls
}

// Unused is a rule that no recorded call reaches.
type Unused struct {
	Rule  string        `json:"rule"` // rules[3], or the name
	Match string        `json:"match"`
	Does  policy.Action `json:"action"`

	index int
}

const rejected = "rejected" // outcome of a call

// ErrNoCalls means that a record is empty.
var ErrNoCalls = errors.New("the record has no calls")

// From returns proposals for a configuration from the entries that the filter selects, with the
// given number of workers. The function read reads the record; it is called at most four times, twice
// for all calls that people have rejected.
func From(ctx context.Context, cfg policy.Config, workers int, filter callrecord.Filter, read func(callrecord.Filter) iter.Seq2[callrecord.Entry, error]) (*Report, error) {
	s, err := newSurvey(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.read(ctx, filter, read); err != nil {
		return nil, err
	}
	r := &Report{First: s.first, Last: s.last, Calls: s.calls, Proposals: []Proposal{}, Grants: []Grant{}, Unused: s.unused()}
	proposals, grants := s.proposals()
	r.ByPolicies, r.Unrecorded = s.byPolicies, s.unrecorded
	trials, err := s.trials(ctx, proposals, r.Unused)
	if err != nil {
		return nil, err
	}
	tried, err := try(s.policy, trials, workers, read(filter))
	if err != nil {
		return nil, err
	}
	weeks := max(1, s.last.Sub(s.first).Hours()/(7*24))
	for _, g := range grants {
		g.PerWeek = float64(g.saved) / weeks
		r.Grants = append(r.Grants, g)
	}
	for _, t := range tried[:len(tried)-1] {
		if t.accepted() {
			t.proposal.Evidence.Calls, t.proposal.Evidence.Held = t.calls, t.held
			t.proposal.PerWeek = float64(t.held) / weeks
			r.Proposals = append(r.Proposals, t.proposal)
		}
	}
	if !tried[len(tried)-1].exact {
		r.Unused = []Unused{}
	}
	slices.SortStableFunc(r.Proposals, func(a, b Proposal) int { return b.Evidence.Held - a.Evidence.Held })
	return r, nil
}

// read adds the selected entries, and what people have rejected before.
func (s *survey) read(ctx context.Context, filter callrecord.Filter, read func(callrecord.Filter) iter.Seq2[callrecord.Entry, error]) error {
	for _, f := range []callrecord.Filter{{Event: callrecord.Ended, Outcome: rejected}, filter} {
		for e, err := range read(f) {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			s.add(&e)
		}
	}
	if s.calls == 0 {
		return ErrNoCalls
	}
	return s.excludeRejected(ctx, read)
}

// excludeRejected excludes the tools of rejected calls that are not among the selected entries. The end
// of a batch has the name of only one of them.
func (s *survey) excludeRejected(ctx context.Context, read func(callrecord.Filter) iter.Seq2[callrecord.Entry, error]) error {
	earlier := make(map[string]bool)
	for id, end := range s.ended {
		if end.rejected && s.uses[id] == nil {
			earlier[id] = true
		}
	}
	if len(earlier) == 0 {
		return nil
	}
	isEarlier := func(e *callrecord.Entry) bool { return earlier[e.ID] }
	for e, err := range read(callrecord.Filter{Event: callrecord.Judged, Action: string(policy.Approve), Match: isEarlier}) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if t := s.tools[replay.NameOf(&e)]; t != nil && isEarlier(&e) { // a gate that is asked over HTTP does not know Match
			t.excluded = true
		}
	}
	return nil
}

// A trial judges a record with a proposal.
type trial struct {
	proposal Proposal
	policy   *policy.Snapshot
	ended    map[string]*ending
	exact    bool // it changes exactly the calls that it is about, and people refused none of them
	calls    int
	held     int // of them, when they were recorded, without those with a standing approval
	open     int // of the held ones, those that nobody approved
}

// trials returns a trial of each proposal, and last one of the configuration without the unused
// rules.
func (s *survey) trials(ctx context.Context, proposals []Proposal, unused []Unused) ([]trial, error) {
	trials := make([]trial, 0, len(proposals)+1)
	for _, p := range proposals {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if compiled, _, err := policy.Compile(p.config); err == nil {
			trials = append(trials, trial{proposal: p, policy: compiled, ended: s.ended, exact: true})
		}
	}
	cfg := s.cfg
	cfg.Rules = slices.Clone(cfg.Rules)
	for _, u := range slices.Backward(unused) {
		cfg.Rules = slices.Delete(cfg.Rules, u.index, u.index+1)
	}
	without, _, err := policy.Compile(cfg)
	if err != nil {
		without = s.policy
	}
	return append(trials, trial{policy: without, exact: err == nil, proposal: Proposal{decides: noRule}}), nil
}

// try judges a record with each trial.
func try(current *policy.Snapshot, trials []trial, count int, record iter.Seq2[callrecord.Entry, error]) ([]trial, error) {
	workers := make([][]trial, count)
	work := make([]func(int, *callrecord.Entry), len(workers))
	for i := range workers {
		workers[i] = slices.Clone(trials)
		work[i] = func(_ int, e *callrecord.Entry) {
			now := judge(e, current)
			for j := range workers[i] {
				workers[i][j].add(e, &now)
			}
		}
	}
	if err := replay.Each(record, work); err != nil {
		return nil, err
	}
	for _, w := range workers {
		for i := range trials {
			trials[i].exact = trials[i].exact && w[i].exact
			trials[i].calls += w[i].calls
			trials[i].held += w[i].held
			trials[i].open += w[i].open
		}
	}
	return trials, nil
}

// noRule is the index of no rule.
const noRule = -3

// add judges a call, on which the verdict is now, with the proposal.
func (t *trial) add(e *callrecord.Entry, now *judgement) {
	v := judge(e, t.policy)
	if !now.known || !v.known {
		// Without arguments, both verdicts are the same only if the proposal is about another tool.
		t.exact = t.exact && now.known == v.known && replay.NameOf(e) != t.proposal.Named
		return
	}
	covered := t.proposal.covers(e, now)
	if covered {
		t.count(e)
	}
	t.exact = t.exact && covered == (v.outcome() != now.outcome())
}

// count counts a call that the proposal forwards.
func (t *trial) count(e *callrecord.Entry) {
	t.calls++
	t.exact = t.exact && e.Action != policy.Deny && e.Observed != policy.Deny // by earlier rules
	end := t.ended[e.ID]
	if !e.Asked() || end != nil && end.granted {
		return
	}
	t.held++
	if end == nil || end.by == nil {
		t.open++
	}
}

// accepted reports whether the proposal has been tried with success. Calls that approvers leave to
// expire may be calls that they do not want.
func (t *trial) accepted() bool { return t.exact && t.calls > 0 && t.open*mostOpen <= t.held }

const mostOpen = 10 // one of so many held calls may have no approval

// covers reports whether p is about the call of an entry, on which the verdict is now.
func (p *Proposal) covers(e *callrecord.Entry, now *judgement) bool {
	return now.Rule == p.decides && replay.NameOf(e) == p.Named && (p.agents == nil || slices.Contains(p.agents, e.Principal)) &&
		(p.shape == nil || p.shape.fits(e.Arguments))
}

// A judgement is the verdict on a recorded call.
type judgement struct {
	policy.Verdict

	known bool // false if the verdict depends on arguments that are not in the record
}

func (j *judgement) outcome() replay.Verdict {
	var e callrecord.Entry
	e.SetVerdict(&j.Verdict)
	return replay.VerdictOf(&e)
}

// judge is [replay.Judge], but never takes the verdict from the record, which does not have the
// index of the rule.
func judge(e *callrecord.Entry, p *policy.Snapshot) judgement {
	other := *e
	other.Snapshot = ""
	v, known := replay.Judge(&other, p)
	return judgement{v, known}
}

// A survey is what is known about recorded calls.
type survey struct {
	cfg         policy.Config
	policy      *policy.Snapshot
	calls       int
	first, last time.Time
	tools       map[replay.Named]*tool
	ended       map[string]*ending // by the id of a held call
	uses        map[string][]*tool // by the id of a held call, which may be a batch
	held        map[subject][]heldCall
	reached     map[int]bool // the rules that decided a call, or may have

	byPolicies, unrecorded int // as in [Report]
}

// An ending is how a held call ended.
type ending struct {
	rejected bool
	granted  bool     // a standing approval let it run
	by       []string // the people who approved it; nil if nobody did
}

// A heldCall is a call that approvers were asked about.
type heldCall struct {
	id        string
	at        time.Time
	agent     string         // empty if anonymous
	arguments jsontext.Value // nil if they are not known
}

// A tool is what is known about a tool.
type tool struct {
	mayWrite   bool // once it did not say that it only reads
	mayDestroy bool // once it did not say that it destroys nothing
	mayTell    bool // once it did not say that it only uses what is known to it
	tells      bool // once it said the opposite
	excluded   bool // a call was rejected, or it may destroy, or it has changed
	hints      policy.Hints
}

// A subject has the held calls of a tool that a rule decides.
type subject struct {
	replay.Named

	rule     int
	workflow string
}

func newSurvey(cfg policy.Config) (*survey, error) {
	p, _, err := policy.Compile(cfg)
	return &survey{
		cfg: cfg, policy: p, tools: make(map[replay.Named]*tool), ended: make(map[string]*ending),
		uses: make(map[string][]*tool), held: make(map[subject][]heldCall), reached: make(map[int]bool),
	}, err
}

func (s *survey) add(e *callrecord.Entry) {
	name := replay.NameOf(e)
	t := s.tools[name]
	if t == nil {
		t = new(tool)
		s.tools[name] = t
	}
	switch e.Event {
	case callrecord.Judged:
		t.note(e)
		s.calls++
		if s.first.IsZero() || e.Time.Before(s.first) {
			s.first = e.Time
		}
		if e.Time.After(s.last) {
			s.last = e.Time
		}
		s.judge(e, name)
		if e.ID != "" {
			s.uses[e.ID] = append(s.uses[e.ID], t)
		}
	case callrecord.Ended:
		end := &ending{rejected: e.Outcome == rejected, granted: e.Grant != ""}
		t.excluded = t.excluded || end.rejected
		if approved(e) {
			end.by = e.By
		}
		s.ended[e.ID] = end
	}
}

// note notes the hints about the tool of a call.
func (t *tool) note(e *callrecord.Entry) {
	h, hints := &e.Hints, e.Hints.Hints()
	if e.Listed {
		t.hints = cmp.Or(t.hints, hints)
	}
	t.mayWrite = t.mayWrite || !e.Listed || !is(h.ReadOnly, true)
	t.mayDestroy = t.mayDestroy || h.Destructive == nil
	t.mayTell = t.mayTell || !is(h.OpenWorld, false)
	t.tells = t.tells || is(h.OpenWorld, true)
	t.excluded = t.excluded || e.Changed || e.Listed && t.hints != hints || is(h.Destructive, true)
}

// is reports whether a hint was given with that value.
func is(hint *bool, value bool) bool { return hint != nil && *hint == value }

// approved reports whether people approved a held call that has ended. Nobody saw one that a
// standing approval let run.
func approved(e *callrecord.Entry) bool {
	return len(e.By) > 0 && e.Grant == "" && !e.Decided.IsZero() && !slices.Contains([]string{rejected, "expired", "cancelled"}, e.Outcome)
}

// judge judges a call, and keeps it if a rule holds it, as then.
func (s *survey) judge(e *callrecord.Entry, name replay.Named) {
	v := judge(e, s.policy)
	if !v.known {
		for _, rule := range s.policy.MayDecide(e.Call()) {
			s.reached[rule] = true
		}
		return
	}
	s.reached[v.Rule] = true
	kind, _ := policy.Governed(e.Method)
	if kind == policy.Tool && v.Action == policy.Approve && e.Asked() {
		call := heldCall{id: e.ID, at: e.Time, agent: e.Principal}
		if e.HasArguments() {
			call.arguments = e.Arguments
		}
		about := subject{name, v.Rule, v.Workflow}
		s.held[about] = append(s.held[about], call)
	}
}

// rule returns the rule with an index of [policy.Verdict.Rule].
func (s *survey) rule(index int) *policy.Rule {
	if index == policy.ByDefault {
		return &s.cfg.Default
	}
	return &s.cfg.Rules[index]
}

func (s *survey) unused() []Unused {
	found := []Unused{}
	for i, r := range s.cfg.Rules {
		if !s.reached[i] {
			found = append(found, Unused{labelOf(s.cfg.Rules, i), r.Match, r.Action, i})
		}
	}
	return found
}

// proposals returns the proposals for which there is enough evidence, and the standing approvals
// for calls of other subjects, sorted by their tools.
func (s *survey) proposals() (all []Proposal, grants []Grant) {
	for id, end := range s.ended {
		for _, t := range s.uses[id] {
			t.excluded = t.excluded || end.rejected
		}
	}
	for _, about := range slices.SortedFunc(maps.Keys(s.held), subject.compare) {
		if s.forPeople(about) {
			continue
		}
		calls, evidence := s.evidence(s.held[about])
		p := Proposal{Named: about.Named, Evidence: evidence, decides: about.rule, agents: agentsOf(calls)}
		if enough(calls) && s.complete(&p, calls) && !named(all, &p) {
			all = append(all, p)
			continue
		}
		some := s.grants(about, calls)
		grants = append(grants, some...)
		if len(some) == 0 && enough(calls) {
			s.explain(about, calls)
		}
	}
	return all, grants
}

// forPeople reports whether there is no proposal about the tool of a subject.
func (s *survey) forPeople(about subject) bool {
	return s.tools[about.Named].excluded || sensitive(about.Name) || !plain(about.Name) || !plain(about.Upstream)
}

// explain counts approved calls for which there is no proposal.
func (s *survey) explain(about subject, calls []heldCall) {
	if s.rule(about.rule).Action != policy.Approve {
		s.byPolicies += len(calls)
	} else if slices.ContainsFunc(calls, func(c heldCall) bool { return c.arguments == nil }) {
		s.unrecorded += len(calls)
	}
}

func (a subject) compare(b subject) int {
	return cmp.Or(a.Compare(&b.Named), a.rule-b.rule, strings.Compare(a.workflow, b.workflow))
}

// complete completes a proposal for approved calls. It returns false if no rule is possible.
func (s *survey) complete(p *Proposal, calls []heldCall) bool {
	rule := s.rule(p.decides)
	switch {
	case rule.Action != policy.Approve: // but policies
		return false
	case len(rule.Secrets) > 0: // people must see each of them
		return false
	case !s.tools[p.Named].mayWrite && !s.tools[p.Named].tells:
		s.forward(p)
		return true
	case len(s.cfg.Cedar) > 0: // which would judge the calls too
		return false
	default:
		p.shape = shapeOf(calls)
		if p.shape == nil || s.tools[p.Named].tells && len(p.shape.free) > 0 { // others may be told anything
			return false
		}
		s.narrow(p)
		return true
	}
}

// named reports whether the last proposal has policies about the same tool, which have the same
// ids.
func named(all []Proposal, p *Proposal) bool {
	return len(all) > 0 && all[len(all)-1].Named == p.Named && p.Kind == Arguments
}

// enough reports whether approved calls are enough evidence.
func enough(calls []heldCall) bool { return len(calls) >= LeastApprovals && daysOf(calls) >= LeastDays }

// evidence returns the calls that people approved.
func (s *survey) evidence(held []heldCall) (calls []heldCall, e Evidence) {
	for _, c := range held {
		end := s.ended[c.id]
		if c.id == "" || end == nil || end.by == nil {
			continue
		}
		calls = append(calls, c)
		e.By = append(e.By, end.by...)
		if e.Since.IsZero() || c.at.Before(e.Since) {
			e.Since = c.at
		}
	}
	slices.Sort(e.By)
	e.By, e.Approved = slices.Compact(e.By), len(calls)
	return calls, e
}

// mostAgents is how many agents a rule names.
const mostAgents = 10

// agentsOf returns the agents whose calls these are, as principals of a rule. It returns nil if
// a rule cannot name them.
func agentsOf(calls []heldCall) []string {
	agents := make(map[string]bool)
	for i := range calls {
		if isGroup(calls[i].agent) || !plain(calls[i].agent) {
			return nil
		}
		agents[calls[i].agent] = true
	}
	if len(agents) > mostAgents {
		return nil
	}
	return slices.Sorted(maps.Keys(agents))
}

func daysOf(calls []heldCall) int {
	days := make(map[string]bool)
	for i := range calls {
		days[calls[i].at.UTC().Format(time.DateOnly)] = true
	}
	return len(days)
}
