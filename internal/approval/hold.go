package approval

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Call is a request that is to be held.
type Call struct {
	Owner     string // whose task it becomes; never taken from the message
	Peer      string // which of the owner's clients makes it
	Request   []byte // the id of the client's request; nil if it is a batch
	Principal policy.Principal
	Upstream  string
	Message   []byte         // the whole request as it was received
	Verdict   policy.Verdict // approve; or forward, for a call that only has to be a task
	TTL       time.Duration  // what the client asked for, if it did; see [task.ParseTTL]
	Variables task.Variables // what the client wants noted
	Tool      Tool
	Session   policy.Session
	Trace     string // the W3C traceparent of the request, if it is traced

	Correlation string // the correlation id of the request

	// Send makes the call for a client that is given a task to ask for, and
	// counts as one that asked. It is nil for a client that waits in the
	// request itself, which is there only as long as [Desk.Wait] is.
	Send Sender

	// Alone keeps the call apart from identical ones: several clients that
	// cannot be distinguished share this owner.
	Alone bool

	// Assurance says how far the owner is known, and Room where those that are not
	// identified are counted together, such as their address. Prove finds out
	// whether an unknown owner is a proven one; it may be nil.
	Assurance Assurance
	Room      string
	Prove     func(context.Context) bool

	// Define returns what the upstream says of the tool when it is asked again; the
	// zero Tool if it does not say that soon. It may be nil.
	Define func(context.Context) Tool

	// InBatch has, for a batch, what the upstream says of the tool that each of
	// its messages is about.
	InBatch []Tool

	id    task.ID           // of the task, if that is fixed already
	grant *grantstore.Grant // that approves the call
}

// A Tool is what an upstream says of one of its tools.
type Tool struct {
	Description string
	Annotations policy.Annotations
	Digest      string // of the definition
}

// Hold makes a task of a call. When it returns the task is durable, and waits
// for the approvers or, if it needs none, to be run.
//
// If the same owner has an identical call pending, that one's task is returned
// instead, and reported as attached; so is that of one that ended without its
// outcome having been delivered to anybody, unless it would be as well to make
// the call again. If the client asks for a longer life than that task has, it
// gets it; see [Desk.Extend].
//
// The error is [task.ErrRateLimited], [task.ErrCapacityExceeded],
// [task.ErrInvalid], one about variables, or [task.ErrClosed].
func (d *Desk) Hold(ctx context.Context, c Call) (t task.Task, attached bool, err error) {
	t, err = d.holder.prepare(ctx, c)
	if err != nil {
		return task.Task{}, false, err
	}
	held, attached, err := d.holder.keep(ctx, c, t)
	if err == nil && attached {
		held, err = d.extendAttached(ctx, held, c.TTL)
	}
	if err != nil {
		d.observe(ctx, Event{Step: Refused, Task: t, Err: err})
		return task.Task{}, false, err
	}
	step := Held
	if attached {
		step = Attached
		d.cfg.Log.InfoContext(About(ctx, held), "identical call attaches to a held one", "state", held.State)
	}
	d.observe(ctx, Event{Step: step, Task: held})
	return d.begin(ctx, held, c.Send), attached, nil
}

// begin starts a task that has just been made, if it may start already.
func (d *Desk) begin(ctx context.Context, t task.Task, send Sender) task.Task {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	var err error
	after := t
	switch {
	case t.State.Terminal():
	case d.settings().Start == StartOnApproval && t.State == task.Approved:
		after, err = d.runner.launch(ctx, ref, d.cfg.Send(t))
	case send != nil:
		after, err = d.Contact(ctx, ref, send)
	}
	if err != nil {
		// The task is stored, and can be started later.
		d.cfg.Log.WarnContext(About(ctx, t), "held call not started", "error", err)
		after = t
	}
	return d.withInterval(after)
}

// A holder makes tasks of calls.
type holder struct {
	*core

	tasks  *tasks
	cases  *casefile.Viewer
	grants *grants
	pace   *pace
}

// keep stores t, the task of c, or finds the one of an identical call, which it
// reports as attached. If a grant covers the call, the task begins as approved.
func (h *holder) keep(ctx context.Context, c Call, t task.Task) (held task.Task, attached bool, err error) {
	c, t = h.byGrant(ctx, c, t)
	held, attached, err = h.admitCall(ctx, c, t)
	h.grants.settleUse(ctx, c, t, held, err)
	return held, attached, err
}

// prepare returns the task that c becomes, as it is to be stored: all that
// happens to it at first happens before, so that nobody ever finds it halfway.
func (h *holder) prepare(ctx context.Context, c Call) (task.Task, error) {
	if h.work.isClosed() {
		return task.Task{}, closedError("", task.ActionCreate)
	}
	call, err := readCall(c.Upstream, c.Message)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.KindInvalid, Action: task.ActionCreate, Err: err}
	}
	submit, w, err := h.firstEvent(c)
	if err != nil {
		return task.Task{}, err
	}
	facts, err := h.factsOf(c, call, w)
	if err != nil {
		return task.Task{}, err
	}
	same, err := h.identity(call)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.KindInvalid, Action: task.ActionCreate, Err: err}
	}
	now := h.cfg.Now()
	ttl := h.ttl(ctx, c, w, call.Name)
	t, err := task.New(task.Draft{
		ID: cmp.Or(c.id, task.NewID(now)), Owner: c.Owner, Room: c.Room, Call: call, Same: same, Workflow: c.Verdict.Workflow,
		Verdict: task.Verdict{
			Reason: c.Verdict.Reason, Snapshot: c.Verdict.Snapshot, ToolDigest: c.Tool.Digest, Facts: facts,
		},
		TTL: ttl, PollInterval: h.settings().Polling.Interval(ttl), Waits: c.Send == nil,
	}, now)
	if err != nil {
		return task.Task{}, err
	}
	if len(c.Variables) > 0 {
		t, err = t.Apply(task.SetVariables{Side: task.ClientSide, Values: c.Variables, Limits: h.settings().Variables}, now)
		if err != nil {
			return task.Task{}, err
		}
	}
	if ask, ok := submit.(task.Submit); ok {
		ask.Deadline = now.Add(w.timeout())
		submit = ask
	}
	return t.Apply(submit, now)
}

// factsOf returns what is known of c, as it is kept with its task.
func (h *holder) factsOf(c Call, call task.Call, w Workflow) (string, error) {
	known := c.facts()
	known.ToolsInBatch = toolsInBatch(c)
	known.Preview = h.cases.Preview(call, c.Verdict.Workflow)
	if c.Verdict.Action == policy.Approve {
		known.Home = h.home(w)
	}
	facts, err := known.Text()
	if err != nil {
		return "", &task.Error{Kind: task.KindInvalid, Action: task.ActionCreate, Err: err}
	}
	return facts, nil
}

// firstEvent returns the event that the task of c begins with, and its workflow.
func (h *holder) firstEvent(c Call) (task.Event, Workflow, error) {
	switch c.Verdict.Action {
	case policy.Forward:
		return task.Admit{By: h.cfg.Name, Reason: "needs no approval"}, Workflow{}, nil
	case policy.Approve:
		w, ok := h.cfg.Workflow(c.Verdict.Workflow)
		if !ok {
			return nil, Workflow{}, &task.Error{Kind: task.KindInvalid, Action: task.ActionCreate, Detail: "unknown workflow"}
		}
		if c.grant != nil {
			admit, err := c.grant.Admission(h.cfg.Name, "standing approval "+string(c.grant.ID))
			return admit, w, err
		}
		return task.Submit{By: h.cfg.Name, Quorum: w.Quorum, SelfApproval: w.SelfApproval}, w, nil
	default:
		return nil, Workflow{}, &task.Error{Kind: task.KindInvalid, Action: task.ActionCreate, Detail: "the policy does not allow it"}
	}
}

func (h *holder) ttl(ctx context.Context, c Call, w Workflow, tool string) time.Duration {
	rules := h.ttlRules()
	if c.Verdict.Action == policy.Approve {
		rules.Approval = w.timeout()
	}
	ttl := rules.Resolve(c.TTL)
	if ttl.Clamped {
		h.ttlLimited(logging.AboutCall(ctx, func() logging.Call { return logging.Call{Tool: tool} }), c.TTL, ttl.Value)
	}
	return ttl.Value
}

// ttlRules returns how long tasks live that need no approval.
func (c *core) ttlRules() task.TTLRules {
	s := c.settings()
	return task.TTLRules{Execution: s.Execution, Retrieval: s.Retrieval, Max: s.MaxTTL}
}

// admit stores t, or finds the task of an identical call unless limits allow
// several.
func (h *holder) admit(ctx context.Context, t task.Task, limits task.Limits) (task.Task, bool, error) {
	if limits.Unique {
		same, err := h.identical(ctx, t)
		if err != nil || same.ID != "" {
			return same, true, err
		}
	}
	if err := h.paced(t, limits); err != nil {
		return t, false, err
	}
	for {
		err := task.Create(ctx, h.cfg.Store, t, limits, creationNotes(t)...)
		refused, ok := errors.AsType[*task.Error](err)
		if !ok || refused.Kind != task.KindDuplicate {
			return t, false, err
		}
		// Not the newest one again: clocks differ, and can be set back.
		pending, err := h.cfg.Store.Get(ctx, task.OwnedBy(t.Owner).Ref(refused.ID))
		if err == nil {
			pending, err = h.attachTarget(ctx, pending)
		}
		if err != nil && !errors.Is(err, task.ErrNotFound) || pending.ID != "" {
			return pending, true, err
		}
		// It has ended since.
	}
}

// paced returns an error if tasks like t arrive faster than limits allow. The
// room counts before the owner, because a client may make up its owner.
func (h *holder) paced(t task.Task, limits task.Limits) error {
	now := h.cfg.Now()
	if t.Room != "" {
		if err := h.pace.take("room of "+strconv.Itoa(limits.PerRoom)+" "+t.Room, limits.PerRoom, now); err != nil {
			return err
		}
	}
	return h.pace.take("owner "+t.Owner, limits.PerOwner, now)
}

// identical returns the task to which t can attach, or none.
func (h *holder) identical(ctx context.Context, t task.Task) (task.Task, error) {
	page, err := h.cfg.Store.List(ctx, task.Query{Scope: task.OwnedBy(t.Owner), Digest: t.Digest, Limit: 1})
	if err != nil || len(page.Tasks) == 0 {
		return task.Task{}, err
	}
	return h.attachTarget(ctx, page.Tasks[0])
}

// attachTarget returns t as it is now if an identical call can attach to it, or none.
func (h *holder) attachTarget(ctx context.Context, t task.Task) (task.Task, error) {
	t, err := h.tasks.settled(ctx, t)
	if errors.Is(err, task.ErrNotFound) {
		return task.Task{}, nil
	}
	if err != nil || !canAttach(t) {
		return task.Task{}, err
	}
	return t, nil
}

// canAttach reports whether an identical call attaches to t. It does
// while t is pending, and once more afterwards if nobody has heard what became
// of t; above all if it may have run. A call that failed before it ran, for a
// reason that may be gone by now, is made again.
func canAttach(t task.Task) bool {
	switch {
	case !t.State.Terminal():
		return true
	case !t.DeliveredAt.IsZero() || t.State == task.Cancelled:
		return false
	case t.State == task.Expired:
		return true
	default:
		return t.Failure == nil || !t.Failure.Retriable
	}
}

// readCall returns what the message of a request is about. The arguments are a
// part of the message, so that what is judged, shown and sent is one thing.
func readCall(upstream string, message []byte) (task.Call, error) {
	p, err := jsonrpc.Parse(message, jsonrpc.Limits{})
	if err != nil {
		return task.Call{}, err
	}
	text := string(message)
	if p.Batch {
		return readBatch(upstream, p, text)
	}
	m := &p.Messages[0]
	subject, governed := subjectOf(m)
	if !governed || m.Kind != jsonrpc.Request {
		return task.Call{}, errNotHeld
	}
	also, err := alsoSent(m)
	if err != nil {
		return task.Call{}, err
	}
	args := m.Params.Arguments
	return task.Call{
		Upstream: upstream, Method: m.Method, Name: subject, Message: text,
		Arguments: text[args.Offset:][:len(args.Bytes)], Also: also,
	}, nil
}

var errNotHeld = errors.New("not a request about something that can be held")

// maxDescription is how many characters of a tool's description are kept.
const maxDescription = 2000

// maxRequestID is the length of the longest id of a request that is kept.
const maxRequestID = 256

// facts returns what is known of c beyond the call itself.
func (c Call) facts() casefile.Facts {
	f := casefile.Facts{
		Principal: c.Principal, Annotations: c.Tool.Annotations, Session: c.Session,
		Description: plain.Text(c.Tool.Description, maxDescription), Trace: c.Trace, Correlation: c.Correlation, Peer: c.Peer, Shared: c.Alone,
		Why: whyOf(c.Verdict),
	}
	if len(c.Request) <= maxRequestID {
		f.Request = string(c.Request)
	}
	for _, tool := range c.InBatch {
		f.InBatch = append(f.InBatch, tool.Annotations)
		f.DigestsInBatch = append(f.DigestsInBatch, tool.Digest)
	}
	return f
}

// whyOf returns what made the policy hold a call, if it did.
func whyOf(v policy.Verdict) *casefile.Why {
	if v.Action != policy.Approve {
		return nil
	}
	w := &casefile.Why{Label: v.Label, Match: v.Match, Policies: v.Policies}
	for _, text := range v.Says {
		w.Says = append(w.Says, plain.Text(text, casefile.MaxReason))
	}
	return w
}

// PeerOf returns which of its owner's clients made the call of t, or "".
func PeerOf(t task.Task) string { return casefile.ReadFacts(t).Peer }

// TraceOf returns the W3C traceparent of the request that became t, or "".
func TraceOf(t task.Task) string { return casefile.ReadFacts(t).Trace }

// judged returns what the policy is asked when t is about to run: one call, or
// all those of a batch.
func judged(t task.Task, now time.Time) []policy.Call {
	f := casefile.ReadFacts(t)
	if t.Call.Method == MethodBatch {
		return inBatch(t, f, now)
	}
	return []policy.Call{{
		Upstream: t.Call.Upstream, Method: t.Call.Method, Name: t.Call.Name,
		Arguments: jsontext.Value(t.Call.Arguments),
		Principal: f.Principal, Annotations: f.Annotations, Session: f.Session, Time: now,
	}}
}
