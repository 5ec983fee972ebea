package mcphttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// recognise finds out who sends the request, and takes off what only the gate
// was to see.
func (x *exchange) recognise() *wire.Problem {
	x.agent.Principal.Anonymous = true
	x.since = x.h.current.Load()
	recogniser := x.since.Identity
	if recogniser == nil {
		return nil
	}
	agent, err := recogniser.Recognise(x.ctx, x.r)
	if err != nil {
		return x.unrecognised(recogniser, err)
	}
	x.agent = agent
	x.authorization = x.r.Header["Authorization"]
	if !agent.Principal.Anonymous {
		x.ctx.principal = agent.Principal.ID
	}
	if agent.Spent && !x.upstream.ForwardsCredential() {
		x.r.Header.Del("Authorization")
	}
	return nil
}

func (x *exchange) unrecognised(recogniser *identity.Recogniser, err error) *wire.Problem {
	why, ok := errors.AsType[*identity.Error](err)
	if !ok || why.Unavailable {
		x.w.Header().Set("Retry-After", "10")
		return &wire.Problem{Type: wire.IdentityDown, RetryAfter: 10, Cause: err}
	}
	x.w.Header().Set("WWW-Authenticate", recogniser.Challenge(x.r.URL.Path, why))
	return &wire.Problem{Type: wire.Unauthenticated, Detail: why.Reason}
}

// client returns who sent the request, as far as that is known. A session tells
// legacy clients apart; others are told apart by their credentials.
func (x *exchange) client(session string) gate.Client {
	credentials := ""
	if x.era != wire.Legacy || session == "" {
		session, credentials = "", x.credentials()
	}
	return gate.Client{
		Upstream: x.upstream.Name(), Key: gate.ClientKey(x.agent.Principal, session, credentials), Principal: x.agent.Principal,
	}
}

// credentials returns a digest of the credentials that the upstream sees. It is
// empty if there are none.
func (x *exchange) credentials() string {
	hash, given := sha256.New(), false
	for _, name := range x.identifying() {
		if name == "Authorization" && x.agent.Spent {
			continue // it changes while its owner stays the same
		}
		for _, value := range x.r.Header[name] {
			given = true
			_, _ = fmt.Fprintf(hash, "%s %d %s\n", name, len(value), value)
		}
	}
	if !given {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// identifying returns the headers by which clients are told apart: those in which
// credentials usually are, and those that are said to be credentials.
func (x *exchange) identifying() []string {
	names := httpclient.DefaultCredentials()
	for _, name := range x.upstream.Credentials() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// from is client for a request that belongs to a session already.
func (x *exchange) from() gate.Client {
	if x.sender.Upstream == "" {
		x.sender = x.client(x.r.Header.Get("Mcp-Session-Id"))
	}
	return x.sender
}

// owner returns whose tasks those of this client are; see [gate.Client.Owner].
func (x *exchange) owner() (owner string, shared bool) { return x.from().Owner() }

// peer names the client itself; see [gate.Client.Peer].
func (x *exchange) peer() string { return x.from().Peer() }

// send returns what makes a held call in the name of this request: with its
// session and its credentials, which are those of a client that is there now.
func (x *exchange) send() approval.Sender { return x.sendBy(x.caller()) }

func (x *exchange) caller() *upstream.Caller {
	return x.upstream.Upstream().Caller(x.h.cfg.Gate, x.from(), x.upstream.CredentialsOf(x.r.Header))
}

// judge puts a message to policy and returns the problem if it may not pass,
// neither now nor later.
func (x *exchange) judge(ctx context.Context, m *jsonrpc.Message) (gate.Judged, *wire.Problem) {
	if problem := x.checkTask(m); problem != nil {
		return gate.Judged{}, problem
	}
	if x.lacksMethod(m) {
		return gate.Judged{Handling: policy.PassOn}, nil
	}
	ctx, span := x.h.cfg.Tracing.StartPolicy(ctx)
	judged, err := x.h.cfg.Gate.Judge(ctx, x.from(), m, x.wish(m))
	if err == nil && x.undescribed(judged) && x.tools().Find(ctx, m).DigestText() != "" {
		// Approvers, and policies that look at hints, are to know the tool.
		judged, err = x.h.cfg.Gate.Judge(ctx, x.from(), m, x.wish(m))
	}
	span.SetVerdict(string(judged.Verdict.Action), judged.Verdict.Snapshot)
	span.End()
	switch {
	case errors.Is(err, gate.ErrMisspelled):
		return gate.Judged{}, &wire.Problem{Type: wire.AmbiguousMethod}
	case err != nil:
		return gate.Judged{}, &wire.Problem{Type: wire.InvalidParams, Detail: err.Error()}
	}
	return judged, x.refusal(ctx, m, judged)
}

// refusal returns the problem of a message that may not pass, neither now nor
// later, given what policy said of it.
func (x *exchange) refusal(ctx context.Context, m *jsonrpc.Message, judged gate.Judged) *wire.Problem {
	if problem := x.checkMirrors(ctx, m, judged); problem != nil {
		return problem
	}
	switch judged.Handling {
	case policy.PassOn:
		return nil
	case policy.OwnTask, policy.ReadyTask, policy.HoldRequest:
		return x.holdable(m, judged)
	case policy.RefuseNoTask:
		x.h.cfg.Metrics.InvalidTask(metrics.TaskRequired)
		return wire.TaskMissing(x.era, judged.Name)
	default:
		return x.denial(judged)
	}
}

// undescribed reports whether a call is to be held of a tool that the upstream
// has not described to this client yet.
func (x *exchange) undescribed(j gate.Judged) bool {
	switch j.Handling {
	case policy.OwnTask, policy.HoldRequest:
		return x.h.cfg.Desk != nil && j.Kind == policy.Tool && j.Tool.DigestText() == ""
	default:
		return false
	}
}

// tools returns what asks the upstream for tools in the name of this request.
func (x *exchange) tools() *upstream.Lookup {
	if x.lookup == nil {
		x.lookup = upstream.NewLookup(x.caller())
	}
	return x.lookup
}

// checkMirrors refuses a modern call one of whose headers contradicts the
// arguments: the upstream might act by either. If such headers are given and the
// upstream has not described the tool yet, it is asked to; a call of a tool whose
// definition cannot be read is refused. An upstream that has no definition of the
// tool cannot give the headers a meaning.
func (x *exchange) checkMirrors(ctx context.Context, m *jsonrpc.Message, judged gate.Judged) *wire.Problem {
	if x.era != wire.Modern || judged.Kind != policy.Tool {
		return nil
	}
	tool := judged.Tool
	if tool.DigestText() == "" && judged.Handling != policy.RefuseDenied && wire.HasMirrors(x.r.Header) {
		var err error
		if tool, err = x.caller().Described(ctx, m); err != nil {
			return &wire.Problem{Type: wire.HeaderMismatch, Tool: judged.Name, Cause: err, Detail: "the upstream does not describe the tool properly, " +
				"so nobody can tell whether the Mcp-Param headers agree with the arguments; it did not run"}
		}
	}
	if tool.Mirrored == nil {
		return nil
	}
	return wire.CheckMirrors(x.r.Header, jsonrpc.Value{Bytes: tool.Mirrored}, m.Params.Arguments)
}

// lacksMethod reports whether m is a modern request to subscribe to a resource,
// which that era does not have, and names none. There is nothing to judge, and
// the upstream tells the client that it does not know the method. A request that
// names a resource is judged like any other.
func (x *exchange) lacksMethod(m *jsonrpc.Message) bool {
	return x.era == wire.Modern && m.Method == "resources/subscribe" && !m.Params.URI.Present()
}

// holdable returns the problem of a call that cannot be held: because nobody
// would be there for the answer, or because it carries what its approver would
// not be shown.
func (x *exchange) holdable(m *jsonrpc.Message, j gate.Judged) *wire.Problem {
	if x.h.cfg.Desk == nil || m.Kind != jsonrpc.Request {
		return x.denial(j)
	}
	detail := ""
	for name := range m.Params.Members() {
		for _, unseen := range []string{"inputResponses", "requestState"} {
			if strings.EqualFold(name, unseen) { // some servers read names so
				detail = "a call that needs approval cannot carry " + unseen + ", which its approver would not see"
			}
		}
	}
	if err := approval.CheckCarried(m); err != nil {
		detail = err.Error()
	}
	if detail == "" {
		return nil
	}
	return &wire.Problem{Type: wire.InvalidParams, Tool: j.Name, Detail: detail + "; it did not run"}
}

// denial tells the agent which rule or policy said no, and nothing more.
func (x *exchange) denial(j gate.Judged) *wire.Problem {
	problem := &wire.Problem{
		Type: wire.PolicyDenied, Hint: j.Verdict.Reason,
		Meta: x.dialect().Denied(string(wire.PolicyDenied), mcptask.RemediationUnavailable, ""),
	}
	if j.Kind == policy.Tool {
		problem.Tool = j.Name
	}
	if j.Verdict.Ambiguous {
		problem.Type, problem.Meta = wire.AmbiguousName, nil
	}
	return problem
}

// checkTask refuses a call that asks for a task with something that is no wish
// for one. Modern requests have no such member, so there it is ignored.
func (x *exchange) checkTask(m *jsonrpc.Message) *wire.Problem {
	asked := m.Params.Task
	if m.Method != "tools/call" || x.era == wire.Modern || !asked.Present() {
		return nil
	}
	detail := ""
	if !asked.IsObject() {
		detail = "task must be an object"
	} else if ttl := asked.Member("ttl"); ttl.Present() {
		if _, err := task.ParseTTL(ttl.Bytes); err != nil {
			detail = "task.ttl must be a positive whole number of milliseconds"
		}
	}
	if detail == "" {
		return nil
	}
	x.h.cfg.Metrics.InvalidTask(metrics.TaskMalformed)
	return &wire.Problem{Type: wire.InvalidParams, Detail: detail}
}

// wish tells how the client can wait, from what this request shows.
func (x *exchange) wish(m *jsonrpc.Message) policy.TaskWish {
	switch {
	case m.Method != "tools/call" || m.Kind != jsonrpc.Request:
		return policy.NoTask
	case x.era == wire.Legacy && m.Params.Task.Present():
		return policy.WantsTask
	case x.era == wire.Modern && declaresTasks(m):
		return policy.AcceptsTask
	default:
		return policy.NoTask
	}
}

// clientInfo returns what the client says of itself: in the params of
// initialize, and in the metadata of modern requests.
func clientInfo(m *jsonrpc.Message) (name, version string) {
	info := m.Params.Member("clientInfo")
	if !info.Present() {
		info = m.Params.Meta.Member(wire.MetaClientInfo)
	}
	name, _ = info.Member("name").Text()
	version, _ = info.Member("version").Text()
	return name, version
}

func (x *exchange) protocol(m *jsonrpc.Message) string {
	if version, ok := m.Params.Member("protocolVersion").Text(); ok {
		return version
	}
	return strings.Join(x.r.Header["Mcp-Protocol-Version"], " ")
}

// meet takes note of what the upstream can do for the client.
func (x *exchange) meet(session policy.Session, answer *jsonrpc.Message) []byte {
	if !answer.Result.Present() {
		return answer.Raw
	}
	client := x.client(x.w.Header().Get("Mcp-Session-Id"))
	if _, given := gate.SessionIn(client.Key); given {
		x.h.sessions.add(client.Peer())
	}
	support := mcptask.DetectServer(answer.Result.Member("capabilities").Bytes)
	x.h.cfg.Gate.Meet(x.ctx, client, gate.Facts{
		Tasks: support.Call || support.Extension, ListTasks: support.List, Notifies: support.Notify, Session: session,
	})
	return wire.Declare(answer, x.era, wire.Abilities{
		Tasks: x.h.cfg.Desk != nil, ListTasks: client.Key != "", ListChanged: true,
	})
}

// showList returns a list as the client gets to see it.
func (x *exchange) showList(method, cursor string, answer *jsonrpc.Message) []byte {
	if !answer.Result.Present() {
		return answer.Raw
	}
	page := gate.Page{Method: method, Cursor: cursor, Result: answer.Result.Bytes}
	x.h.cfg.Gate.Learn(x.ctx, x.from(), page, wire.Entries(answer, method))
	return x.viewed(method, answer)
}

func (x *exchange) viewed(method string, answer *jsonrpc.Message) []byte {
	view := x.h.cfg.Gate.View(x.from(), method)
	defer func() {
		view.Done(x.ctx, !answer.Result.Member("nextCursor").Present())
	}()
	return wire.RewriteList(answer, method, func(l wire.Listed) wire.View {
		hidden, support := view.See(l.Name, l.URI, l.Entry)
		if x.era == wire.Modern {
			hidden = hidden || x.uncallable(l)
			support = "" // modern tools have no such member
		}
		return wire.View{Hidden: hidden, TaskSupport: support}
	})
}

// maxReason is how much of a name tells lines of the log apart.
const maxReason = 128

// uncallable reports whether no modern client can call a tool, because its
// definition demands headers that cannot be sent. Such a tool is not listed.
func (x *exchange) uncallable(l wire.Listed) bool {
	_, err := wire.Mirrors(l.Entry)
	if err != nil {
		x.h.cfg.Log.WarnContext(x.repeatable(x.ctx, x.upstream.Name()+" "+l.Name[:min(len(l.Name), maxReason)]), "tool left out of the list",
			"upstream", x.upstream.Name(), "tool", l.Name, "cause", err)
	}
	return err != nil
}

// remembered answers a list that the upstream fails to give with what it gave
// before.
func (x *exchange) remembered(method, cursor string) []byte {
	result, ok := x.h.cfg.Gate.Remembered(x.from(), method, cursor)
	if !ok {
		return nil
	}
	answer, err := x.readMessage(jsonrpc.AppendResult(nil, x.id, result))
	if err != nil {
		return nil
	}
	return x.viewed(method, answer)
}
