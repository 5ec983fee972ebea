// Package replay judges recorded calls again, under another policy, and reports what changes:
//
//	report, err := replay.Run(callrecord.Read(file), candidate)
//	fmt.Print(report.Text())
//
// A recorded call is judged at the time of the record, with the hints that its tool had then.
// Arguments may be missing from the record. A call without them is judged only if its verdict
// does not depend on them, or if the record was made under the same policy.
package replay

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Report says how a policy judges the calls of a record.
type Report struct {
	Snapshot  string    `json:"snapshot"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Calls     int       `json:"calls"`     // in the record
	Different int       `json:"different"` // calls that are judged differently
	Groups    []Group   `json:"groups"`    // of different calls, the largest first
	Unknown   int       `json:"unknown"`   // calls that cannot be judged again
	Subjects  []Subject `json:"subjects"`  // of unknown calls, the one with most calls first
	Approvals Approvals `json:"approvals"`
}

// A Verdict is what an agent and its approvers notice of a verdict.
type Verdict struct {
	Action   policy.Action `json:"action"`
	Observed policy.Action `json:"observed,omitzero"`
	Workflow string        `json:"workflow,omitzero"`
}

// A Named is a tool, resource or prompt.
type Named struct {
	Upstream string `json:"upstream"`
	Method   string `json:"method"`
	Name     string `json:"name"`
}

// NameOf returns what the call of an entry uses.
func NameOf(e *callrecord.Entry) Named { return Named{e.Upstream, e.Method, e.Name} }

// A Change is a kind of difference.
type Change struct {
	Named `json:",inline"`

	From Verdict `json:"from"`
	To   Verdict `json:"to"`
	Rule string  `json:"rule"` // that decides now
}

// A Group has the calls with the same change.
type Group struct {
	Change `json:",inline"`

	Calls   int     `json:"calls"`
	Example Example `json:"example"` // the first of them
}

// An Example is a call of a group.
type Example struct {
	Time      time.Time `json:"time"`
	ID        string    `json:"id,omitzero"` // of a held call
	Principal string    `json:"principal"`   // empty if anonymous
	Rule      string    `json:"rule"`        // that decided then
	Reason    string    `json:"reason"`      // of the verdict now

	index int // in the record
}

// A Subject has calls that cannot be judged again.
type Subject struct {
	Named `json:",inline"`

	Calls int `json:"calls"`
}

// Approvals compares how often approvers were asked with how often they are asked now. Calls that
// cannot be judged again are not counted, nor those that were attached to a held call.
type Approvals struct {
	Days      float64 `json:"days"` // from the first to the last call, at least one
	Total     Count   `json:"total"`
	Agents    []Count `json:"agents"`    // those with a difference
	Workflows []Count `json:"workflows"` // those with a difference
}

// A Count is how often approvers were asked, and how often they are asked now.
type Count struct {
	Name   string  `json:"name,omitzero"`
	Then   int     `json:"then"`
	Now    int     `json:"now"`
	PerDay float64 `json:"perDay"` // the difference
}

// Run judges the calls of a record under p, on all processors.
func Run(record iter.Seq2[callrecord.Entry, error], p *policy.Snapshot) (*Report, error) {
	workers := make([]*worker, runtime.GOMAXPROCS(0))
	work := make([]func(int, *callrecord.Entry), len(workers))
	for i := range workers {
		workers[i] = newWorker(p)
		work[i] = workers[i].add
	}
	if err := Each(record, work); err != nil {
		return nil, err
	}
	for _, w := range workers[1:] {
		workers[0].merge(w)
	}
	return workers[0].report(), nil
}

// A block is a part of a record.
type block struct {
	first   int // the index of the first entry in the record
	entries []callrecord.Entry
}

// blockSize balances the cost of handing over a block with the memory that it takes.
const blockSize = 256

// Each gives each entry of a record with a verdict, and its index, to one of the workers, which
// run at the same time. It ends after an error.
func Each(record iter.Seq2[callrecord.Entry, error], workers []func(index int, e *callrecord.Entry)) error {
	blocks := make(chan block, len(workers))
	var running sync.WaitGroup
	for _, work := range workers {
		running.Go(func() {
			for b := range blocks {
				for i := range b.entries {
					work(b.first+i, &b.entries[i])
				}
			}
		})
	}
	err := feed(record, blocks)
	close(blocks)
	running.Wait()
	return err
}

func feed(record iter.Seq2[callrecord.Entry, error], blocks chan<- block) error {
	var b block
	for e, err := range record {
		if err != nil {
			return err
		}
		if e.Event != callrecord.Judged {
			continue
		}
		if e.Action != policy.Forward && e.Action != policy.Approve && e.Action != policy.Deny {
			return fmt.Errorf("the entry of %s at %s has no verdict", e.Name, e.Time.Format(time.RFC3339Nano))
		}
		if b.entries = append(b.entries, e); len(b.entries) == blockSize {
			blocks <- b
			b = block{b.first + blockSize, make([]callrecord.Entry, 0, blockSize)}
		}
	}
	blocks <- b
	return nil
}

// A worker judges a part of the calls, and counts them.
type worker struct {
	policy      *policy.Snapshot
	calls       int
	first, last time.Time
	groups      map[Change]*Group
	unknown     map[Named]int
	agents      map[string]*Count
	workflows   map[string]*Count
}

func newWorker(p *policy.Snapshot) *worker {
	return &worker{
		policy: p, groups: make(map[Change]*Group), unknown: make(map[Named]int),
		agents: make(map[string]*Count), workflows: make(map[string]*Count),
	}
}

// add judges the call of an entry.
func (w *worker) add(index int, then *callrecord.Entry) {
	w.calls++
	w.extend(then.Time, then.Time)
	about := NameOf(then)
	v, known := Judge(then, w.policy)
	if !known {
		w.unknown[about]++
		return
	}
	var now callrecord.Entry
	now.SetVerdict(&v)
	w.countHeld(then, &now)
	from, to := VerdictOf(then), VerdictOf(&now)
	if from == to {
		return
	}
	c := Change{about, from, to, now.Rule}
	w.addGroup(&Group{c, 1, Example{then.Time, then.ID, then.Principal, then.Rule, v.Reason, index}})
}

// Judge returns the verdict of p on the call of an entry. It returns false if the verdict may
// depend on something that is not in the record.
func Judge(e *callrecord.Entry, p *policy.Snapshot) (v policy.Verdict, known bool) {
	c := e.Call()
	if _, governed := policy.Governed(c.Method); !governed {
		return v, false
	}
	if !e.HasArguments() {
		c.Arguments = nil
		if p.DependsOnArguments(c) {
			return recorded(e), e.Snapshot == p.ID()
		}
	}
	return p.Judge(c), true
}

// recorded returns the verdict in an entry, without the index of the rule.
func recorded(e *callrecord.Entry) policy.Verdict {
	v := policy.Verdict{Action: e.Action, Workflow: e.Workflow, Label: e.Rule, Policies: e.Policies, Snapshot: e.Snapshot}
	if e.Observed != "" {
		would := v
		would.Action = e.Observed
		v.Workflow, v.Would = "", &would
	}
	return v
}

// VerdictOf returns the verdict in an entry.
func VerdictOf(e *callrecord.Entry) Verdict { return Verdict{e.Action, e.Observed, e.Workflow} }

func (w *worker) extend(first, last time.Time) {
	if w.first.IsZero() || first.Before(w.first) {
		w.first = first
	}
	if last.After(w.last) {
		w.last = last
	}
}

func (w *worker) countHeld(then, now *callrecord.Entry) {
	asked := then.Asked()
	if asked {
		named(w.agents, then.Principal).Then++
		named(w.workflows, then.Workflow).Then++
	}
	if now.Action == policy.Approve && (asked || then.Action != policy.Approve) {
		named(w.agents, then.Principal).Now++
		named(w.workflows, now.Workflow).Now++
	}
}

func named(counts map[string]*Count, name string) *Count {
	c := counts[name]
	if c == nil {
		c = &Count{Name: name}
		counts[name] = c
	}
	return c
}

func (w *worker) addGroup(g *Group) {
	have := w.groups[g.Change]
	if have == nil {
		w.groups[g.Change] = g
		return
	}
	have.Calls += g.Calls
	if g.Example.index < have.Example.index {
		have.Example = g.Example
	}
}

// merge adds the counts of o to w.
func (w *worker) merge(o *worker) {
	w.calls += o.calls
	if o.calls > 0 {
		w.extend(o.first, o.last)
	}
	for _, g := range o.groups {
		w.addGroup(g)
	}
	for about, n := range o.unknown {
		w.unknown[about] += n
	}
	mergeCounts(w.agents, o.agents)
	mergeCounts(w.workflows, o.workflows)
}

func mergeCounts(all, more map[string]*Count) {
	for name, c := range more {
		sum := named(all, name)
		sum.Then += c.Then
		sum.Now += c.Now
	}
}

func (w *worker) report() *Report {
	const day = 24 * time.Hour
	r := &Report{Snapshot: w.policy.ID(), First: w.first, Last: w.last, Calls: w.calls, Groups: []Group{}, Subjects: []Subject{}}
	for _, g := range w.groups {
		r.Groups = append(r.Groups, *g)
		r.Different += g.Calls
	}
	slices.SortFunc(r.Groups, func(a, b Group) int { return cmp.Or(b.Calls-a.Calls, a.Example.index-b.Example.index) })
	for about, n := range w.unknown {
		r.Subjects = append(r.Subjects, Subject{about, n})
		r.Unknown += n
	}
	slices.SortFunc(r.Subjects, func(a, b Subject) int { return cmp.Or(b.Calls-a.Calls, a.Compare(&b.Named)) })
	days := max(1, w.last.Sub(w.first).Seconds()/day.Seconds())
	r.Approvals = Approvals{Days: days, Agents: changed(w.agents, days), Workflows: changed(w.workflows, days)}
	for _, c := range w.agents {
		r.Approvals.Total.Then += c.Then
		r.Approvals.Total.Now += c.Now
	}
	r.Approvals.Total.divide(days)
	return r
}

// Compare compares two names for sorting.
func (n *Named) Compare(o *Named) int {
	return cmp.Or(cmp.Compare(n.Upstream, o.Upstream), cmp.Compare(n.Method, o.Method), cmp.Compare(n.Name, o.Name))
}

// changed returns the counts with a difference, the largest first.
func changed(counts map[string]*Count, days float64) []Count {
	found := []Count{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if c := *counts[name]; c.Then != c.Now {
			c.divide(days)
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b Count) int { return max(b.Now-b.Then, b.Then-b.Now) - max(a.Now-a.Then, a.Then-a.Now) })
	return found
}

func (c *Count) divide(days float64) { c.PerDay = float64(c.Now-c.Then) / days }
