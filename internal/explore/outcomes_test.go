package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// outcomes are the outcomes that approvers and agents know at the end. They are compared with
// the ledger.
type outcomes struct {
	w    *world
	want fate // of the scenario

	mu          sync.Mutex
	fates       map[string]fate               // by argument
	tried       map[task.ID]approval.Decision // decisions that may have been recorded
	recorded    map[task.ID]approval.Decision // decisions that the gate acknowledged
	transitions map[[2]task.State]int
	args        map[task.ID][]string // by which the scenario knows the calls of a task
	changedAt   map[task.ID]time.Time
	order       []task.ID // of all tasks, as they were stored
	broken      []string  // promises that were broken during the run
	agents      []string  // the arguments of the calls that agents make
	denied      time.Time // when the policy began to deny all calls
	excuse      excuse
	withdrawn   int // how many calls had run when the agent got the cancellation; -1 without one
}

// An excuse has the promises that a fault suspends.
type excuse struct {
	unsure   bool // the gate cannot know whether a call ran
	tooLate  bool // a deadline may have passed, or the upstream could not be reached
	unlisted bool // a gate does not know the definitions of the tools
	frozen   bool // a gate stands still where it has checked for the last time whether to go on
}

func (o *outcomes) told(arg string, f fate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fates == nil {
		o.fates = map[string]fate{}
	}
	o.fates[arg] = f
}

func (o *outcomes) decides(id task.ID, d approval.Decision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tried == nil {
		o.tried, o.recorded = map[task.ID]approval.Decision{}, map[task.ID]approval.Decision{}
	}
	o.tried[id] = d
}

func (o *outcomes) decided(id task.ID, d approval.Decision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.tried[id]; !ok {
		o.broken = append(o.broken, "an approver approved something else than was shown")
		return
	}
	o.recorded[id] = d
}

// created records the calls of a new task. A task that ends undecided does not keep them.
func (o *outcomes) created(t task.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.args == nil {
		o.args, o.changedAt = map[task.ID][]string{}, map[task.ID]time.Time{}
	}
	if !slices.Contains(o.order, t.ID) {
		o.order = append(o.order, t.ID)
	}
	o.changedAt[t.ID] = time.Now()
	delete(o.args, t.ID)
	for part := range strings.SplitSeq(t.Call.Message, `"tools/call"`) {
		if arg := argOf(part); arg != "" {
			o.args[t.ID] = append(o.args[t.ID], arg)
		}
	}
}

// meanwhile is the longest time until a gate notices a change.
const meanwhile = 15 * time.Second

// runs checks a call that the upstream is about to run for the n-th time. A task with the same
// arguments must be approved and claimed, and each claim runs once. A call is not claimed long
// after the policy denied it or its tool was changed.
func (o *outcomes) runs(arguments string, n int, redefined time.Time) {
	page, err := o.w.store.List(context.Background(), task.Query{Scope: task.AnyOwner(), Limit: 100})
	claimed := 0
	o.mu.Lock()
	changes := []time.Time{o.denied}
	if !o.excuse.unlisted {
		changes = append(changes, redefined)
	}
	o.mu.Unlock()
	for _, t := range page.Tasks {
		whole, getErr := o.w.store.Get(context.Background(), task.AnyOwner().Ref(t.ID))
		if err = errors.Join(err, getErr); err != nil {
			break
		}
		approved := whole.Approval.Grant() != "" || distinct(whole.Approval.Approvals) >= max(1, o.w.settings.quorum)
		if whole.Execution != nil && approved && strings.Contains(whole.Call.Message, `"arguments":`+arguments) {
			claimed++
			for _, at := range changes {
				if !at.IsZero() && whole.Execution.StartedAt.After(at.Add(meanwhile)) {
					err = errors.New("it should not run any more")
				}
			}
		}
	}
	if err != nil || n > claimed {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.broken = append(o.broken, fmt.Sprintf("run %d of %s, with %d approved tasks that are claimed: %v", n, arguments, claimed, err))
	}
}

// distinct returns the number of people who made decisions.
func distinct(decisions []gatetask.Decision) int {
	people := map[string]bool{}
	for _, d := range decisions {
		people[d.By] = true
	}
	return len(people)
}

// changed checks a change that a process made to a task.
func (o *outcomes) changed(by *process, before, after task.Task) {
	executor := ""
	if before.State == task.Executing {
		executor = before.Execution.Executor
	}
	own := executor == "" || strings.HasPrefix(executor, by.name+"#")
	busy := executor != "" && !before.Execution.Detached() && time.Now().Before(before.Execution.LeaseUntil)
	if after.State == task.Executing && after.Execution.Executor != executor {
		o.w.taken(executor)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changedAt[after.ID] = time.Now()
	if !own && (after.State == task.Completed || after.State == task.Failed && (busy || after.Result != nil)) {
		o.broken = append(o.broken, fmt.Sprintf("%s ended the run of %s", by, executor))
	}
	from, to := before.State, after.State
	if from == to {
		return
	}
	if from.Terminal() {
		o.broken = append(o.broken, fmt.Sprintf("a task went from %s to %s", from, to))
	}
	if o.transitions == nil {
		o.transitions = map[[2]task.State]int{}
	}
	o.transitions[[2]task.State{from, to}]++
}

// slack is how much later than promised something may happen: the calls of housekeeping take
// no time, but the world lets them continue one after the other.
const slack = 100 * time.Millisecond

// step checks what must be true at all times.
func (o *outcomes) step() {
	ctx := context.Background()
	page, err := o.w.store.List(ctx, task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: 100})
	if err != nil {
		o.breaks("%v", err)
	}
	for _, t := range page.Tasks {
		o.mu.Lock()
		changed := o.changedAt[t.ID]
		o.mu.Unlock()
		if by, ok := o.w.soundSince(latest(t.Due(), changed), time.Second); ok {
			o.breaks("a task stays %s after %s, although %s could end it", t.State, t.Due().Sub(o.w.start), by)
		}
		if by, ok := o.w.soundSince(changed, sweep); ok && t.State == task.Approved && o.w.settings.start == approval.StartOnApproval {
			o.breaks("an approved call is not started, although %s could start it", by)
		}
		if id := t.Approval.Grant(); id != "" {
			g, err := grantstore.Store{Records: o.w.store}.Get(ctx, id)
			if err != nil || !slices.ContainsFunc(g.Uses, func(u grantstore.Use) bool { return u.Task == t.ID }) {
				o.breaks("a standing approval lets a call run without counting it: %v", err)
			}
		}
	}
}

// soundSince returns a gate that has worked without faults since a time, if that is more than the
// given duration ago.
func (w *world) soundSince(since time.Time, d time.Duration) (*process, bool) {
	for _, gate := range w.current() {
		p := gate.(*process)
		if at := latest(since, time.Unix(0, p.sound.Load())); p.serves() && time.Since(at) > d+slack {
			return p, true
		}
	}
	return nil, false
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// breaks records that a promise was broken.
func (o *outcomes) breaks(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	o.mu.Lock()
	known := slices.Contains(o.broken, text)
	if !known {
		o.broken = append(o.broken, text)
	}
	o.mu.Unlock()
	if !known {
		o.w.tell("WRONG: %s", text)
	}
}

// stored returns the number of tasks that were stored so far.
func (o *outcomes) stored() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.order)
}

// answered checks that the answer to a request of an agent agrees with the store. When the request
// began, the given number of tasks had been stored.
func (o *outcomes) answered(a *agent, message string, before int, got answer) {
	if got.err != nil {
		return
	}
	text := got.text()
	waited := len(text) < len(strings.TrimSpace(got.body)) // the stream began before
	modern := strings.Contains(message, "2026-07-28")      // it gets a sealed state when its time to wait is over
	o.mu.Lock()
	order, args := slices.Clone(o.order), maps.Clone(o.args)
	o.mu.Unlock()
	for i, id := range order {
		t, err := o.w.store.Get(context.Background(), task.AnyOwner().Ref(id))
		named := strings.Contains(message, string(id))
		if err != nil || !named && !slices.Contains(args[id], a.arg) {
			continue
		}
		switch {
		case !named && i >= before && strings.Contains(text, "did not run") && (!t.State.Terminal() || ranOf(t) != task.RanNo):
			o.breaks("the agent was told that its call did not run, which is %s", t.State)
		case waited && !modern && !t.State.Terminal() && strings.Contains(text, "store_unavailable"):
			o.breaks("an agent that waited was sent away")
		case named && strings.Contains(message, "tasks/cancel") && strings.Contains(text, "-32602") && !t.State.Terminal():
			o.breaks("the agent could not cancel its call, which is %s", t.State)
		case named && strings.Contains(text, `"status":"completed"`) && !t.State.Terminal() && (t.Execution == nil || !t.Execution.Upstream.Ended()),
			named && strings.Contains(text, `"status":"cancelled"`) && t.State != task.Cancelled:
			o.breaks("the agent was told another state than %s: %s", t.State, text)
		}
	}
}

// ruled checks that an approver was told whether their decision was recorded. The decision was
// sent at the given time.
func (o *outcomes) ruled(id task.ID, by string, at time.Time, err error) {
	var given *approval.GrantFailedError
	t, failed := o.w.store.Get(context.Background(), task.AnyOwner().Ref(id))
	if failed != nil || errors.Is(err, approval.ErrUnsure) || errors.Is(err, errDead) || errors.Is(err, errFrozen) {
		return
	}
	counts := false
	if t.Approval != nil {
		all := slices.Clone(t.Approval.Approvals)
		if t.Approval.Rejection != nil {
			all = append(all, *t.Approval.Rejection)
		}
		counts = slices.ContainsFunc(all, func(d gatetask.Decision) bool { return d.By == by && !d.At.Before(at.Truncate(time.Microsecond)) })
	}
	if told := err == nil || errors.As(err, &given); told != counts {
		o.breaks("an approver was told %v, and the store has the decision: %v", err, counts)
	}
}

// cancelled records that the agent got the cancellation of its call.
func (o *outcomes) cancelled() {
	n := len(o.w.server.runs())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withdrawn = n
}

// deny makes the policy deny all calls.
func (o *outcomes) deny() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.denied = time.Now()
}

func (o *outcomes) denies() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.denied.IsZero()
}

// check returns the promises that were broken at the end of a run.
func (o *outcomes) check() []string {
	ctx := context.Background()
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	page, err := o.w.store.List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 100})
	if err != nil {
		return []string{err.Error()}
	}
	runs := o.w.server.runs()
	o.mu.Lock()
	defer o.mu.Unlock()
	wrong = append(wrong, o.broken...)
	o.checkTasks(page.Tasks, runs, say)
	o.checkFates(page.Tasks, runs, say)
	o.checkJournal(ctx, page.Tasks, say)
	if uses := slices.IndexFunc(page.Tasks, func(t task.Task) bool { return t.Approval.Grant() != "" }); uses >= 0 {
		n := 0
		for _, t := range page.Tasks {
			if t.Approval.Grant() != "" && ranOf(t) != task.RanNo {
				n++
			}
		}
		if n > grantUses*len(o.tried) {
			say("%d calls ran by a standing approval for %d", n, grantUses)
		}
	}
	return wrong
}

// ends returns the state of each task, and whether its call ran.
func (w *world) ends() []string {
	page, err := w.store.List(context.Background(), task.Query{Scope: task.AnyOwner(), Limit: 100})
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	for _, t := range page.Tasks {
		list = append(list, fmt.Sprintf("%s, ran: %s", t.State, ranOf(t)))
	}
	slices.Sort(list)
	return list
}

// checkTasks compares the tasks with the ledger of the upstream.
func (o *outcomes) checkTasks(tasks []task.Task, runs []string, say func(string, ...any)) {
	byArg := map[string][]task.Task{}
	for _, t := range tasks {
		if !t.State.Terminal() {
			say("a task stays %s for ever", t.State)
		}
		for _, arg := range o.args[t.ID] {
			byArg[arg] = append(byArg[arg], t)
		}
	}
	times := map[string]int{}
	for _, r := range runs {
		times[argOf(r)]++
	}
	for arg, n := range times {
		yes, maybe, approved := 0, 0, 0
		for _, t := range byArg[arg] {
			switch ranOf(t) {
			case task.RanYes:
				yes++
			case task.RanNo:
			default:
				maybe++
			}
			if o.tried[t.ID] == approval.Approve || t.Approval.Grant() != "" {
				approved++
			}
		}
		if n > approved {
			say("%s ran %d times with %d approvals", arg, n, approved)
		}
		if n > yes+maybe {
			say("%s ran %d times, and %d tasks say that it ran, %d that it may have", arg, n, yes, maybe)
		}
	}
	for arg, list := range byArg {
		slices.SortFunc(list, func(a, b task.Task) int { return slices.Index(o.order, a.ID) - slices.Index(o.order, b.ID) })
		for i, t := range list {
			if i+1 < len(list) && ranOf(t) != task.RanNo && t.DeliveredAt.IsZero() && t.State != task.Cancelled && !o.excuse.frozen {
				say("people were asked about %s again, and its agent was never sent the first outcome", arg)
			}
		}
		yes := 0
		for _, t := range list {
			if ranOf(t) == task.RanYes {
				yes++
			}
		}
		if yes > times[arg] {
			say("%d tasks say that %s ran, which it did %d times", yes, arg, times[arg])
		}
	}
}

// ranOf returns whether the call of an ended task reached the tool.
func ranOf(t task.Task) task.Ran {
	switch {
	case t.State == task.Completed:
		return task.RanYes
	case t.Failure != nil && t.Failure.Ran != "":
		return t.Failure.Ran
	case t.Execution == nil:
		return task.RanNo
	default:
		return task.RanUnknown
	}
}

// argOf returns the argument that identifies a call in the scenario.
func argOf(text string) string {
	arg, _ := cutOut(text, `"x":"`)
	return arg
}

// checkFates compares the fates with the ledger.
func (o *outcomes) checkFates(tasks []task.Task, runs []string, say func(string, ...any)) {
	for arg, f := range o.fates {
		n := 0
		for _, r := range runs {
			if argOf(r) == arg {
				n++
			}
		}
		switch {
		case o.want == open && f != open:
			say("%s %s", arg, f)
		case f == ran && n == 0:
			say("the agent got a result of %s, which never ran", arg)
		case f == uncollected && n == 0:
			say("the agent was told that %s ran, and it never did", arg)
		case f == notRun && n > 0 && !o.deliveredBefore(tasks, arg):
			say("the agent was told that %s did not run, and it ran", arg)
		case f == unsure && !o.excuse.unsure:
			say("the agent was told that %s may have run although that can be known", arg)
		case f == unsure && !slices.ContainsFunc(tasks, func(t task.Task) bool { return slices.Contains(o.args[t.ID], arg) && t.State != task.Completed }):
			say("the agent was told that %s may have run although the store has its result", arg)
		}
	}
	if o.withdrawn >= 0 && len(runs) > o.withdrawn && !o.excuse.frozen {
		say("a call ran after its agent was told that it is cancelled")
	}
	for _, arg := range o.agents {
		if o.want == ran && o.fates[arg] == notRun && !o.excuse.tooLate && len(o.w.plan.faults) < 2 {
			say("%s was not run although it was approved and nothing stood in its way", arg)
		}
		if o.fates[arg] == open {
			say("the agent never learned what became of %s", arg)
		}
	}
}

// deliveredBefore reports whether an earlier task of the same call ended with a result, which
// the agent may not have received because of a broken connection.
func (o *outcomes) deliveredBefore(tasks []task.Task, arg string) bool {
	return slices.ContainsFunc(tasks, func(t task.Task) bool {
		return slices.Contains(o.args[t.ID], arg) && t.State == task.Completed
	})
}

// wanted records that an agent waits for the outcome of a call.
func (o *outcomes) wanted(arg string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.agents, arg) {
		o.agents = append(o.agents, arg)
	}
}

// faulted records that a call ends with a fault. A fault while a call runs may make its
// outcome unknown. The gate must find out whether a write took effect whose answer was lost,
// and must wait for a late answer of the upstream.
func (o *outcomes) faulted(c *call, f fault) {
	upstream := strings.HasPrefix(c.op, "upstream.")
	if c.op == "upstream.tools/list" && f != none {
		o.mu.Lock()
		o.excuse.unlisted = true
		o.mu.Unlock()
	}
	switch f {
	case none, deaf:
		return
	case fail, lost:
		if !upstream {
			return
		}
	case late:
		if upstream {
			return
		}
	default:
	}
	runs := upstream || f == overdue || f == between || strings.HasPrefix(c.about, string(task.Executing))
	page, err := o.w.store.List(context.Background(), task.Query{Scope: task.AnyOwner(), States: []task.State{task.Executing}, Limit: 1})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.excuse.unsure = o.excuse.unsure || runs || err != nil || len(page.Tasks) > 0
	o.excuse.frozen = o.excuse.frozen || f == freeze && (runs || len(page.Tasks) > 0 || c.op == "store.Create")
	o.excuse.tooLate = o.excuse.tooLate || f == overdue || f == between || f == fail // the upstream could not be reached
}

// single are the steps that a task takes at most once.
var single = []string{"held", "started", "finished", "cancelled", "overdue", "not_run", "expired", "failed"}

// checkJournal checks the chain of the journal, and that each step is in it once.
func (o *outcomes) checkJournal(ctx context.Context, tasks []task.Task, say func(string, ...any)) {
	report, err := audit.Verify(ctx, o.w.store, auditlog.Link{})
	if err != nil || !report.OK() {
		say("the journal is broken: %v %+v", err, report)
	}
	entries, err := o.w.store.Entries(ctx, auditlog.Query{Limit: 1000})
	if err != nil {
		say("the journal cannot be read: %v", err)
	}
	steps := map[string]int{}
	for _, e := range entries {
		if e.Task != "" && slices.Contains(single, e.Step) {
			steps[string(e.Task)+" "+e.Step]++
		}
	}
	for step, n := range steps {
		if n > 1 {
			say("the journal has %d entries %s", n, step[strings.Index(step, " ")+1:])
		}
	}
	for _, t := range tasks {
		for _, step := range stepsOf(t) {
			if steps[string(t.ID)+" "+step] == 0 {
				say("the journal does not say that a task that is %s was %s", t.State, step)
			}
		}
		if o.recorded[t.ID] == approval.Approve && !slices.ContainsFunc(entries, func(e auditlog.Entry) bool { return e.Task == t.ID && e.Approver != "" }) {
			say("the journal does not have the acknowledged decision")
		}
	}
}

// stepsOf returns the steps of an ended task that the journal must have.
func stepsOf(t task.Task) []string {
	steps := []string{"held"}
	if t.Execution != nil {
		steps = append(steps, "started")
	}
	if t.State == task.Completed {
		steps = append(steps, "finished")
	}
	return steps
}

// checkLimits returns the gates that count requests that have ended. At such a gate a call is not
// waited for if only one may wait.
func (w *world) checkLimits() (wrong []string) {
	for _, g := range slices.Compact(w.current()) {
		p := g.(*process)
		one := *p.hub.Waiting()
		one.PerOwner = 1
		p.hub.Configure(one)
		a := &agent{w: w, tool: "hold_x", arg: "another"}
		ctx, leave := context.WithTimeout(w.ctx, time.Second)
		header := a.header("2025-11-25")
		header.Set("Mcp-Session-Id", "s-1")
		message := `{"jsonrpc":"2.0","id":1,"method":"tools/call",` + a.params("") + `}`
		if got := p.send(ctx, header, message); strings.Contains(got.text(), "It waits for approval") {
			wrong = append(wrong, fmt.Sprintf("%s counts requests that have ended", p))
		}
		leave()
		time.Sleep(time.Second)
	}
	return wrong
}

// checkEmpty returns the content that is left in the store after all retention times.
func (w *world) checkEmpty() []string {
	ctx := context.Background()
	page, err := w.store.List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 10})
	if err != nil || len(page.Tasks) > 0 {
		return []string{fmt.Sprintf("%d tasks are kept for ever: %v", len(page.Tasks), err)}
	}
	records, err := w.store.ListRecords(ctx, gatestore.RecordQuery{Limit: 100})
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, r := range records {
		if r.Expires.IsZero() && !slices.Contains([]string{"key", "approvedtool", "approvedtools"}, kindOf(r.Name)) {
			left = append(left, "the record "+kindOf(r.Name)+" is kept for ever")
		}
	}
	return left
}
