package approval

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Call is a request to hold.
type Call struct {
	Owner     string // owns the task; never taken from the message
	Peer      string // identifies one of the owner's clients
	Request   []byte // the id of the client's request; nil if it is a batch
	Principal policy.Principal
	Upstream  string
	Message   []byte           // the whole request or batch, as received
	Parsed    *jsonrpc.Message // the parsed message, if available; replaces Message
	Verdict   policy.Verdict   // approve; or forward, for a call that only has to be a task
	TTL       time.Duration    // the lifetime that the client asked for; see [task.ParseTTL]
	Variables task.Variables   // client variables
	Tool      Tool
	Session   policy.Session
	Trace     string // the W3C traceparent of the request

	Correlation string // the correlation id of the request

	// Send makes the call for a client that gets a task and polls. It is nil for a client that
	// waits in the request, which is present only during [Service.Wait].
	Send Sender

	// SharedOwner means that several indistinguishable clients share this owner. The call then
	// does not attach to identical ones.
	SharedOwner bool

	// OwnerByName means that all programs of a user with the same client name share this owner.
	OwnerByName bool

	// Assurance says how well the owner is identified. Owners that are not identified are counted
	// together by Network, such as their address. Prove tries to prove an unknown owner; it may be
	// nil.
	Assurance Assurance
	Network   string
	Prove     func(context.Context) bool

	// Define asks the upstream for the tool's definition again. It returns the zero Tool if the
	// answer takes too long. It may be nil.
	Define func(context.Context) Tool

	// ReadOnlyTools returns the read-only tools of the upstream, whose definitions are the first known
	// ones or accepted by an operator. It may be nil.
	ReadOnlyTools func() []gatetask.GrantTool

	// InBatch has the tools of the messages of a batch.
	InBatch []Tool

	id    task.ID           // of the task, if it is fixed already
	grant *grantstore.Grant // approves the call
}

// A Tool is an upstream's description of a tool.
type Tool struct {
	Description string
	Annotations policy.Annotations
	Digest      string // of the definition

	HasOutputSchema bool

	// Change is the unaccepted change of the tool for which the call is held. Annotations are then
	// those that policy uses, not the upstream's.
	Change *toolhistory.Change

	// Accepted: an operator has accepted this definition, although it is not the one in the lock file.
	Accepted bool

	// Trusted: the definition is the first known one, or one that an operator has accepted. ReadOnly:
	// it says that the tool is read-only.
	Trusted, ReadOnly bool
}

// Hold makes a task of a call. When it returns, the task is stored and waits for approvers or, if
// it needs no approval, for its run.
//
// If the owner has an identical pending call, Hold returns its task and reports attached. It does
// the same for an ended task whose result was never delivered, unless retrying is safe. If the
// client asks for a longer lifetime than the task has, the task is extended; see [Service.Extend].
//
// The error is [task.ErrRateLimited], [task.ErrCapacityExceeded], [task.ErrInvalid],
// [task.ErrClosed], or one about variables.
func (s *Service) Hold(ctx context.Context, c Call) (t task.Task, attached bool, err error) {
	t, err = s.holder.prepare(ctx, c)
	if err != nil {
		return task.Task{}, false, err
	}
	held, attached, err := s.holder.store(ctx, c, t)
	if err == nil && attached {
		held, err = s.extendAttached(ctx, held, c.TTL)
	}
	if err != nil {
		s.env.observe(ctx, Event{Step: Refused, Task: t, Err: err})
		return task.Task{}, false, err
	}
	step := Held
	if attached {
		step = Attached
		s.env.log.InfoContext(LogContext(ctx, held), "identical call attaches to a held one", "state", held.State)
	}
	s.env.observe(ctx, Event{Step: step, Task: held})
	return s.start(ctx, held, c.Send, attached), attached, nil
}

// start starts a new or attached task if it may start already. [holder.store] has remembered the
// owner of a new task.
func (s *Service) start(ctx context.Context, t task.Task, send Sender, attached bool) task.Task {
	start := s.env.settings().Start
	approved := t.State == task.Approved
	var err error
	after := t
	switch {
	case t.State.Terminal():
	case start == StartOnApproval && approved:
		after, err = s.runner.launch(ctx, t, s.env.send(t))
	case send == nil:
	case attached:
		after, err = s.Contact(ctx, task.OwnedBy(t.Owner).Ref(t.ID), send)
	case start == StartOnContact && approved:
		after, err = s.runner.launch(ctx, t, send)
	}
	if err != nil {
		// The task is stored, and can be started later.
		s.env.log.WarnContext(LogContext(ctx, t), "held call not started", "err", err)
		after = t
	}
	return s.env.withInterval(after)
}

// A holder makes tasks of calls.
type holder struct {
	env        *env
	workflows  *workflows
	background *background
	contacts   *contacts
	tasks      *tasks
	viewer     *review.Viewer
	grants     *grants
	rates      *ownerRates
	turns      turns
}

// store stores t, the task of c, or returns the task of an identical call as attached. If a grant
// covers the call, the task is created as approved.
func (h *holder) store(ctx context.Context, c Call, t task.Task) (held task.Task, attached bool, err error) {
	w, covering := h.grants.covering(ctx, c, t)
	same := t.Owner + " " + t.Digest.String()
	if len(covering) > 0 {
		defer h.turns.take(same)()
		c, t = h.byGrant(ctx, c, t, w, covering)
	} else {
		//mutate:drop TestIdenticalCallsShareTheLastUse people are asked about a call although an identical one has just used the grant
		h.turns.await(same) // it may have the last use of a grant, and no task yet
	}
	if c.Send != nil && h.env.settings().Start == StartOnContact {
		h.contacts.remember(t, c.Send) // before the task can be decided, so that the decision finds the sender
	}
	held, attached, err = h.admitCall(ctx, c, t)
	if err != nil || attached {
		h.contacts.forget(t.ID)
	}
	h.grants.settleUse(ctx, c, t, held, err)
	return held, attached, err
}

// Turns let one of several callers with the same key continue at a time. The zero value is ready
// to use.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the turn ends
}

// take waits for a turn and begins it. The caller must call end.
func (ts *turns) take(key string) (end func()) {
	ts.mu.Lock()
	for ts.taken[key] != nil {
		ts.mu.Unlock()
		ts.await(key)
		ts.mu.Lock()
	}
	defer ts.mu.Unlock()
	if ts.taken == nil {
		ts.taken = make(map[string]chan struct{})
	}
	ended := make(chan struct{})
	ts.taken[key] = ended
	return func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		delete(ts.taken, key)
		close(ended)
	}
}

// await waits for the end of the turn that another caller has, if any.
func (ts *turns) await(key string) {
	ts.mu.Lock()
	ended := ts.taken[key]
	ts.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// prepare returns the task for c after its first events, so that no incomplete task is ever
// stored.
func (h *holder) prepare(ctx context.Context, c Call) (task.Task, error) {
	if h.background.isClosed() {
		return task.Task{}, closedError("", action.Create)
	}
	packet, text, err := c.read()
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.ErrInvalid, Action: action.Create, Err: err}
	}
	call, err := callIn(c.Upstream, packet, text)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.ErrInvalid, Action: action.Create, Err: err}
	}
	submit, w, err := h.firstEvent(c)
	if err != nil {
		return task.Task{}, err
	}
	facts, err := h.factsOf(c, packet, call, w)
	if err != nil {
		return task.Task{}, err
	}
	same, err := identity(call)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.ErrInvalid, Action: action.Create, Err: err}
	}
	now := h.env.now()
	ttl := h.ttl(ctx, c, w, call.Name)
	t, err := task.New(task.Draft{
		ID: cmp.Or(c.id, task.NewID(now)), Owner: c.Owner, Group: c.Network, Call: call, SharedDigest: same, Workflow: c.Verdict.Workflow,
		Verdict: gatetask.Verdict{
			Reason: c.Verdict.Reason, Snapshot: c.Verdict.Snapshot, ToolDigest: c.Tool.Digest, Facts: facts,
		},
		TTL: ttl, PollInterval: h.env.settings().Polling.Interval(ttl), OwnerWaits: c.Send == nil,
	}, now)
	if err != nil {
		return task.Task{}, err
	}
	if len(c.Variables) > 0 {
		t, err = lifecycle.Apply(t, lifecycle.SetVariables{Side: task.ClientSide, Values: c.Variables, Limits: h.env.settings().Variables}, now)
		if err != nil {
			return task.Task{}, err
		}
	}
	if ask, ok := submit.(lifecycle.Submit); ok {
		ask.Deadline = now.Add(timeout(w))
		submit = ask
	}
	return lifecycle.Apply(t, submit, now)
}

// factsOf returns the facts of c that are stored with its task.
func (h *holder) factsOf(c Call, p jsonrpc.Packet, call task.Call, w Workflow) (string, error) {
	known := c.facts()
	known.ToolsInBatch = toolsInBatch(c, p)
	known.Preview = h.viewer.Preview(call, c.Verdict.Workflow)
	if c.Verdict.Action == policy.Approve {
		known.HoldingGate = h.workflows.holdingGate(w)
		known.ReadOnlyTools = c.offeredTools(w)
	}
	facts, err := known.Text()
	if err != nil {
		return "", &task.Error{Kind: task.ErrInvalid, Action: action.Create, Err: err}
	}
	return facts, nil
}

// maxOffered is the most bytes of names and digests of read-only tools that are stored with a call.
const maxOffered = 16 << 10

// offeredTools returns the read-only tools that a standing approval given with c can cover, or nil.
func (c Call) offeredTools(w Workflow) []gatetask.GrantTool {
	if c.grant != nil || c.ReadOnlyTools == nil || !c.Tool.ReadOnly || !gatetask.ReachReadOnly.Within(gatetask.GrantReach(w.Grants.Reach)) {
		return nil
	}
	tools, size := c.ReadOnlyTools(), 0
	for _, t := range tools {
		size += len(t.Name) + len(t.Digest)
	}
	if size > maxOffered {
		return nil
	}
	return tools
}

// firstEvent returns the first event of the task of c, and its workflow.
func (h *holder) firstEvent(c Call) (lifecycle.Event, Workflow, error) {
	switch c.Verdict.Action {
	case policy.Forward:
		return lifecycle.Admit{By: h.env.name, Reason: "needs no approval"}, Workflow{}, nil
	case policy.Approve:
		w, ok := h.workflows.named(c.Verdict.Workflow)
		if !ok {
			return nil, Workflow{}, &task.Error{Kind: task.ErrInvalid, Action: action.Create, Detail: "unknown workflow"}
		}
		if c.grant != nil {
			admit, err := c.grant.Admission(h.env.name, "standing approval "+string(c.grant.ID))
			return admit, w, err
		}
		return lifecycle.Submit{By: h.env.name, Quorum: w.Quorum, SelfApproval: w.SelfApproval, Passkey: w.Passkey}, w, nil
	default:
		return nil, Workflow{}, &task.Error{Kind: task.ErrInvalid, Action: action.Create, Detail: "the policy does not allow it"}
	}
}

func (h *holder) ttl(ctx context.Context, c Call, w Workflow, tool string) time.Duration {
	rules := h.env.ttlRules()
	if c.Verdict.Action == policy.Approve {
		rules.Approval = timeout(w)
	}
	ttl := rules.Resolve(c.TTL)
	if ttl.Clamped {
		h.env.ttlLimited(logging.AboutCall(ctx, func() logging.Call { return logging.Call{Tool: tool} }), c.TTL, ttl.Value)
	}
	return ttl.Value
}

// admit stores t, or returns the task of an identical call if limits allow only one.
func (h *holder) admit(ctx context.Context, t task.Task, limits task.Limits) (task.Task, bool, error) {
	if limits.Unique {
		same, err := h.identical(ctx, t)
		if err != nil || same.ID != "" {
			return same, true, err
		}
	}
	if err := h.checkRate(t, limits); err != nil {
		return t, false, err
	}
	for {
		err := storekit.Create(ctx, h.env.store, t, limits, creationNotes(t)...)
		refused, ok := errors.AsType[*task.Error](err)
		if !ok || refused.Kind != task.ErrDuplicate {
			return t, false, err
		}
		// Read the task that the store found. The newest identical task may be another one, because
		// clocks differ and can be set back.
		pending, err := h.attachTarget(ctx, task.OwnedBy(t.Owner).Ref(refused.ID))
		if err != nil || pending.ID != "" {
			return pending, true, err
		}
		// The task has ended in the meantime: try again.
	}
}

// checkRate returns an error if tasks like t arrive too fast. The network is checked before the
// owner, because a client may invent its owner.
func (h *holder) checkRate(t task.Task, limits task.Limits) error {
	now := h.env.now()
	if t.Group != "" {
		if err := h.rates.take("group of "+strconv.Itoa(limits.PerGroup)+" "+t.Group, limits.PerGroup, now); err != nil {
			return err
		}
	}
	return h.rates.take("owner "+t.Owner, limits.PerOwner, now)
}

// identicalLook is how many of the newest identical calls are read. Clocks differ and can be set
// back, so the newest may not be the last one created.
const identicalLook = 5

// identical returns the task to which t can attach, or a zero task.
func (h *holder) identical(ctx context.Context, t task.Task) (task.Task, error) {
	page, err := h.env.store.List(ctx, task.Query{Scope: task.OwnedBy(t.Owner), Digest: t.Digest, Limit: identicalLook, Outlines: true})
	if err != nil {
		return task.Task{}, err
	}
	for _, one := range page.Tasks {
		if !canAttach(one) {
			continue
		}
		whole, err := h.attachTarget(ctx, task.OwnedBy(t.Owner).Ref(one.ID))
		if err != nil || whole.ID != "" {
			return whole, err
		}
	}
	return task.Task{}, nil
}

// attachTarget returns the current task if an identical call can attach to it, or a zero task.
func (h *holder) attachTarget(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := h.tasks.get(ctx, ref)
	if errors.Is(err, task.ErrNotFound) {
		return task.Task{}, nil
	}
	if err != nil || !canAttach(t) {
		return task.Task{}, err
	}
	return t, nil
}

// canAttach reports whether an identical call attaches to t. It does while t is pending, and
// afterwards if the result was not delivered, above all if the call may have run. A call whose
// failure is retriable is made again.
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

// read returns the parsed request or batch and its bytes.
func (c Call) read() (p jsonrpc.Packet, text []byte, err error) {
	if c.Parsed != nil {
		return jsonrpc.Packet{Messages: []jsonrpc.Message{*c.Parsed}}, c.Parsed.Raw, nil
	}
	p, err = jsonrpc.Parse(c.Message, jsonrpc.Limits{})
	return p, c.Message, err
}

// callIn returns the call in the parsed message p. The arguments are a substring of the message,
// so the same bytes are judged, shown and sent.
func callIn(upstream string, p jsonrpc.Packet, message []byte) (task.Call, error) {
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
	start := len(text) - len(strings.TrimLeft(text, " \t\r\n")) + args.Offset
	return task.Call{
		Upstream: upstream, Method: m.Method, Name: subject, Message: text,
		Arguments: text[start:][:len(args.Bytes)], Also: also,
	}, nil
}

var errNotHeld = errors.New("not a request about something that can be held")

// maxDescription is how many characters of a tool's description are stored.
const maxDescription = 2000

// maxDiffs is how many bytes of changes of tools are stored with a batch.
const maxDiffs = 16 << 10

// maxRequestID is the maximum length of a stored request id.
const maxRequestID = 256

// facts returns the facts of c.
func (c Call) facts() review.Facts {
	f := review.Facts{
		Principal: c.Principal, Annotations: c.Tool.Annotations, Session: c.Session,
		//mutate:swap "c.Correlation" `""` internal/app.TestLogLinesNameTheirCall log lines about a call lack its correlation id
		Description: safetext.Text(c.Tool.Description, maxDescription), Trace: c.Trace, Correlation: c.Correlation, Peer: c.Peer, SharedOwner: c.SharedOwner, OwnerByName: c.OwnerByName,
		HeldBy: heldByOf(c.Verdict), Change: c.Tool.Change, NoOutputSchema: c.Tool.Digest != "" && !c.Tool.HasOutputSchema,
		Trusted: c.Tool.Trusted, ReadOnly: c.Tool.ReadOnly, Secret: c.Verdict.Secret,
	}
	if len(c.Request) <= maxRequestID {
		f.Request = string(c.Request)
	}
	diffs := 0
	for _, tool := range slices.Concat(c.InBatch, []Tool{c.Tool}) {
		if tool.Accepted && !slices.Contains(f.Accepted, tool.Digest) {
			f.Accepted = append(f.Accepted, tool.Digest)
		}
	}
	for _, tool := range c.InBatch {
		f.InBatch = append(f.InBatch, tool.Annotations)
		f.DigestsInBatch = append(f.DigestsInBatch, tool.Digest)
		if tool.Change != nil {
			if diffs += len(tool.Change.Diff); diffs > maxDiffs {
				tool.Change = new(*tool.Change)
				tool.Change.Diff = ""
			}
		}
		f.ChangesInBatch = append(f.ChangesInBatch, tool.Change)
	}
	if !slices.ContainsFunc(f.ChangesInBatch, func(c *toolhistory.Change) bool { return c != nil }) {
		f.ChangesInBatch = nil
	}
	return f
}

// heldByOf returns the rule or policies that held a call, or nil.
func heldByOf(v policy.Verdict) *review.HeldBy {
	if v.Action != policy.Approve {
		return nil
	}
	w := &review.HeldBy{Label: v.Label, Match: v.Match, Policies: v.Policies}
	for _, text := range v.Says {
		w.Reasons = append(w.Reasons, safetext.Text(text, review.MaxReason))
	}
	return w
}

// PeerOf identifies the client that made the call of t. It may be empty.
func PeerOf(t task.Task) string { return review.ReadFacts(t).Peer }

// TraceOf returns the W3C traceparent of the request of t, or "".
func TraceOf(t task.Task) string { return review.ReadFacts(t).Trace }

// judged returns the questions to policy before t runs: one for a call, one per message for a
// batch.
func judged(t task.Task, messages []jsonrpc.Message, now time.Time) []policy.Call {
	f := review.ReadFacts(t)
	if t.Call.Method == MethodBatch {
		return inBatch(t, messages, f, now)
	}
	return []policy.Call{{
		Upstream: t.Call.Upstream, Method: t.Call.Method, Name: t.Call.Name,
		Arguments: jsontext.Value(t.Call.Arguments),
		Principal: f.Principal, Annotations: f.Annotations, Listed: t.Verdict.ToolDigest != "", Changed: f.Change != nil,
		Digest: t.Verdict.ToolDigest, Accepted: slices.Contains(f.Accepted, t.Verdict.ToolDigest), Session: f.Session, Time: now,
	}}
}

// An Assurance says how well the owner of a call is identified.
type Assurance int

// The assurances, the best one first.
const (
	Identified Assurance = iota // the gate authenticated the client
	Proven                      // the client has a session that the upstream confirmed
	Claimed                     // the client has credentials that only the upstream can check
	Unknown                     // the client has no credentials, or an unconfirmed session
)

// Shares limit the pending tasks of owners that are not identified, so that space remains for
// identified ones. Zero fields set no limit.
type Shares struct {
	PerNetwork        int // all of one network
	UnknownPerNetwork int // those of unknown owners in one network; tasks of better known owners count too
	Total             int // all, in all networks
	UnprovenTotal     int // all, for an owner that is not proven
}

// limits returns the limits for a call. A shared owner is limited by its network instead.
func (h *holder) limits(c Call) task.Limits {
	l, shares := h.env.settings().Limits, h.env.settings().Shares
	l.Unique = !c.SharedOwner
	if c.Network == "" || c.Assurance == Identified {
		return l
	}
	if c.SharedOwner {
		l.PerOwner = 0
	}
	l.PerGroup, l.Grouped = shares.PerNetwork, shares.Total
	if c.Assurance != Proven {
		l.Grouped = shares.UnprovenTotal
	}
	if c.Assurance == Unknown {
		l.PerGroup = shares.UnknownPerNetwork
	}
	return l
}

// admitCall stores the task of c. An unknown owner has to prove itself only when the space for
// unknown owners is full.
func (h *holder) admitCall(ctx context.Context, c Call, t task.Task) (task.Task, bool, error) {
	held, attached, err := h.admit(ctx, t, h.limits(c))
	full := errors.Is(err, task.ErrRateLimited) || errors.Is(err, task.ErrCapacityExceeded)
	if full && c.Assurance == Unknown && c.Prove != nil && c.Prove(ctx) {
		c.Assurance = Proven
		return h.admit(ctx, t, h.limits(c))
	}
	return held, attached, err
}

// refillsPerMinute is how often per minute an owner may fill its share of pending tasks. Ended
// tasks are kept for a while, so without this limit an owner could fill the store by creating and
// canceling calls.
const refillsPerMinute = 60

// ownerRates limit how fast owners create tasks. The zero value is ready to use.
type ownerRates struct {
	mu     sync.Mutex
	owners map[string]*rate.Limiter
}

// take returns nil if an owner with the given share of pending tasks may create one now. A share
// of zero sets no limit.
func (p *ownerRates) take(owner string, share int, now time.Time) error {
	if share <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, known := p.owners[owner]
	if !known {
		if p.owners == nil {
			p.owners = make(map[string]*rate.Limiter)
		}
		l = rate.NewLimiter(rate.Limit(share)*refillsPerMinute/60, share*refillsPerMinute)
		p.owners[owner] = l
	}
	if l.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration(float64(time.Second) / float64(l.Limit())).Round(time.Second)
	return &task.Error{
		Kind: task.ErrRateLimited, Action: action.Create, RetryAfter: max(wait, time.Second),
		Limit: int64(l.Burst()), Size: int64(l.Burst()),
	}
}

// prune removes owners that have created no task for a while.
func (p *ownerRates) prune(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for owner, l := range p.owners {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(p.owners, owner)
		}
	}
}
