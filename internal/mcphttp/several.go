package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A combined serves a request to an endpoint with several servers. A message about one of them becomes
// an exchange with that server, by the server's own names, so policy, approvals and records know
// nothing of the endpoint. A message to all of them becomes an exchange with each, whose answers are
// merged.
type combined struct {
	x        *exchange
	endpoint *several.Endpoint

	m       jsonrpc.Message
	session *several.Session // of a legacy client; nil before initialize

	divert func(s *several.Server, body []byte, name string) // gets what is for one server instead; may be nil
}

// serve answers the request.
func (c *combined) serve(events string) error {
	x := c.x
	switch {
	case events != "":
		return c.taskEvents(events)
	case x.r.Method == http.MethodPost:
		return c.post()
	case x.r.Method == http.MethodGet:
		return c.get()
	case x.r.Method == http.MethodDelete:
		return c.delete()
	default:
		x.reply.out.header().Set("Allow", "POST, GET, DELETE")
		return x.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed})
	}
}

// post reads and answers one message.
func (c *combined) post() error {
	defer func() { c.x.body.giveBack(0) }()
	body, refused, err := c.read()
	if refused || err != nil {
		return err
	}
	packet, err := jsonrpc.Parse(body, c.x.h.cfg.Limits.Parse)
	if err != nil {
		return c.x.reply.refuseUnread(err)
	}
	header := c.x.r.Header
	c.x.client.era, err = mcp.Classify(packet, mcp.Headers{Version: header["Mcp-Protocol-Version"], Method: header["Mcp-Method"], Name: header["Mcp-Name"]})
	c.x.account.Describe(packet)
	c.x.account.Era = c.x.client.era
	switch {
	case packet.Batch && err == nil:
		return c.batch(packet)
	case !packet.Batch:
		c.m = packet.Messages[0]
	}
	if err != nil {
		return c.fail(err)
	}
	if problem := cmp.Or(mcp.CheckVersion(&c.m), c.join()); problem != nil {
		return c.refuse(problem)
	}
	return c.message()
}

// message answers the message.
func (c *combined) message() error {
	switch c.m.Kind {
	case jsonrpc.Response:
		return c.respond()
	case jsonrpc.Notification:
		return c.notify()
	default:
		return c.request()
	}
}

// read reads the body in a slot, which it leaves again: each part takes a slot of its own.
func (c *combined) read() (body []byte, refused bool, err error) {
	x := c.x
	x.body.client = x.client.admissionClient()
	if err := x.slot.enter(x.h.requests, x.body.client); err != nil {
		return nil, true, x.reply.Fail(err)
	}
	defer x.slot.leave()
	body, problem := x.body.read(x.account.Context)
	if problem == nil {
		problem = x.client.recogniseAgain() // receiving the body may have taken long
	}
	if problem != nil {
		return nil, true, x.reply.Refuse(problem)
	}
	return body, false, nil
}

// join finds the session of a legacy message.
func (c *combined) join() *mcp.Problem {
	if c.x.client.era != mcp.Legacy || c.m.Kind == jsonrpc.Request && c.m.Method == mcpname.Initialize {
		return nil
	}
	return c.findSession()
}

func (c *combined) findSession() *mcp.Problem {
	id := c.x.r.Header.Get(sessionHeader)
	if id == "" {
		return &mcp.Problem{Type: mcp.InvalidRequest, Detail: "the Mcp-Session-Id header is missing: begin with initialize"}
	}
	var err error
	if c.session, err = c.endpoint.Session(c.x.account.Context, c.x.client.principal(), id); err != nil {
		problem, _ := errors.AsType[*mcp.Problem](err)
		return cmp.Or(problem, &mcp.Problem{Type: mcp.Internal, Cause: err})
	}
	if c.session == nil {
		return &mcp.Problem{Type: mcp.SessionGone}
	}
	return nil
}

// client names the client for what it has seen of tasks and resources.
func (c *combined) client() string {
	if c.session != nil {
		return c.session.ID
	}
	return cmp.Or(c.x.client.principal(), "network "+c.x.client.Network())
}

func (c *combined) refuse(problem *mcp.Problem) error {
	c.x.delegated = false
	var id []byte
	if c.m.Kind == jsonrpc.Request {
		id = c.m.ID.Bytes
	}
	return c.x.reply.refuseID(problem, id)
}

func (c *combined) fail(err error) error {
	if problem, ok := errors.AsType[*mcp.Problem](err); ok {
		return c.refuse(problem)
	}
	return c.x.reply.Fail(err)
}

// answer sends a result.
func (c *combined) answer(result []byte) error {
	return c.x.reply.Answer(conversation.Answered, jsonrpc.AppendResult(nil, c.m.ID.Bytes, result))
}

// unsupported refuses a method. The error is that of a server that does not have it.
func (c *combined) unsupported() error {
	problem := jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found: an endpoint with several servers does not know which of them this message is for"}
	status := conversation.Answered
	if c.x.client.era == mcp.Modern {
		status = conversation.UnknownMethod
	}
	return c.x.reply.Answer(status, jsonrpc.AppendErrorResponse(nil, c.m.ID.Bytes, &problem))
}

// request answers a request.
func (c *combined) request() error {
	switch c.m.Method {
	case mcpname.ToolsCall:
		return c.call()
	case mcpname.PromptsGet:
		return c.named(c.m.Params.Name, c.endpoint.Prompt, "prompt")
	case mcpname.CompletionComplete:
		return c.complete()
	case mcpname.ResourcesRead:
		return c.resource(c.m.Params.URI)
	case mcpname.TasksGet, mcpname.TasksResult, mcpname.TasksCancel, mcpname.TasksUpdate:
		return c.task()
	case mcpname.SubscriptionsListen:
		return c.subscribe()
	default:
		return c.toAll()
	}
}

// toAll answers a request that concerns the whole endpoint.
func (c *combined) toAll() error {
	switch method := c.m.Method; {
	case mcp.IsList(method), method == mcpname.TasksList:
		return c.list()
	case c.x.client.era == mcp.Legacy:
		return c.legacy()
	case method == mcpname.ServerDiscover:
		return c.discover()
	default:
		return c.unsupported()
	}
}

// discover answers what the endpoint offers to modern clients. If it has no modern server, the first one says so, as
// clients of both eras expect from it.
func (c *combined) discover() error {
	parts := c.askAll()
	if !slices.ContainsFunc(parts, func(p several.Part) bool { return len(p.Results) > 0 }) {
		return c.route(c.endpoint.Servers[0], c.m.Raw, "")
	}
	return c.answer(c.endpoint.Discovered(parts))
}

// legacy answers a request that only the legacy era has.
func (c *combined) legacy() error {
	switch c.m.Method {
	case mcpname.Initialize:
		return c.initialize()
	case mcpname.ResourcesSubscribe, mcpname.ResourcesUnsubscribe:
		return c.resource(c.m.Params.URI)
	case mcpname.LoggingSetLevel:
		c.askAll()
		return c.answer([]byte("{}"))
	case mcpname.Ping:
		return c.answer([]byte("{}"))
	default:
		return c.unsupported()
	}
}

// named forwards a request about a tool or a prompt to its server, with the server's own name.
func (c *combined) named(name jsonrpc.Value, resolve func(string) (*several.Server, string, bool), kind string) error {
	public, _ := name.Text()
	s, own, ok := resolve(public)
	if !ok {
		return c.refuse(&mcp.Problem{Type: mcp.InvalidParams, Detail: "Unknown " + kind})
	}
	if own == public {
		return c.route(s, c.m.Raw, own)
	}
	var patch jsonrpc.Patch
	patch.Replace(name, jsonrpc.AppendString(nil, own))
	return c.route(s, patch.Apply(c.m.Raw), own)
}

// complete forwards a request to complete an argument of a prompt or a template.
func (c *combined) complete() error {
	ref := c.m.Params.Member("ref")
	if kind, _ := ref.Member("type").Text(); kind == "ref/prompt" {
		return c.named(ref.Member("name"), c.endpoint.Prompt, "prompt")
	}
	return c.resource(ref.Member("uri"))
}

// resource forwards a request about a resource to its server.
func (c *combined) resource(uri jsonrpc.Value) error {
	text, ok := uri.Text()
	if !ok {
		return c.refuse(&mcp.Problem{Type: mcp.InvalidParams, Detail: "the message has no uri"})
	}
	owner := c.endpoint.Owner(c.client(), text)
	if owner == nil { // the client may have another list, or none
		c.learnURIs()
		owner = c.endpoint.Owner(c.client(), text)
	}
	if owner == nil {
		return c.refuse(mcp.NoResource(c.x.client.era, text, "no available server of this endpoint lists this resource, or a template for it"))
	}
	return c.route(owner, c.m.Raw, text)
}

// learnURIs asks all servers for their resources.
func (c *combined) learnURIs() {
	for _, method := range []string{mcpname.ResourcesList, mcpname.ResourcesTemplatesList} {
		c.endpoint.LearnURIs(c.client(), method, c.lists(method))
	}
}

// task forwards a request about a task to the server of the task.
func (c *combined) task() error {
	id, _ := c.m.Params.TaskID.Text()
	s := c.taskServer(id)
	if s == nil {
		return c.refuse(&mcp.Problem{Type: mcp.TaskNotFound})
	}
	return c.route(s, c.m.Raw, id)
}

// taskServer returns the server of a task, or nil.
func (c *combined) taskServer(id string) *several.Server {
	s, known := c.endpoint.TaskServer(c.client(), id)
	if !known && task.ID(id).Own() {
		s = c.findTask(id)
	}
	return s
}

// findTask returns the server of a task of the gate that this process has not shown to the client.
// The gate answers itself, and only the owner of the task.
func (c *combined) findTask(id string) *several.Server {
	body := c.newMessage(mcpname.TasksGet, jsonrpc.Member{Name: "taskId", JSON: jsonrpc.AppendString(nil, id)})
	for _, p := range c.all(func(ctx context.Context, s *several.Server) several.Part {
		return c.ask(ctx, s, mcpname.TasksGet, id, body)
	}) {
		if len(p.Results) > 0 {
			c.endpoint.NoteTask(c.client(), id, p.Server)
			return p.Server
		}
	}
	return nil
}

// newMessage returns a request with the id and the metadata of the client's.
func (c *combined) newMessage(method string, more ...jsonrpc.Member) []byte {
	members := more
	if meta := c.m.Params.Meta; meta.Present() {
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: meta.Bytes})
	}
	m := jsonrpc.NewRequest(c.m.ID.Bytes, method, jsonrpc.NewParams(members...))
	return m.Raw
}

// list answers with the lists of all servers, as one page.
func (c *combined) list() error {
	if cursor := c.m.Params.Member("cursor"); cursor.Present() {
		return c.refuse(&mcp.Problem{Type: mcp.InvalidParams, Detail: "invalid cursor: this endpoint has one page of each list"})
	}
	if c.endpoint.Search && c.m.Method == mcpname.ToolsList {
		return c.answer(several.OwnTools(c.x.client.era))
	}
	c.x.delegated = true
	parts := c.lists(c.m.Method)
	return c.answer(c.endpoint.MergeLists(c.client(), c.m.Method, c.x.client.era, parts))
}

// lists returns all pages of the lists of all servers.
func (c *combined) lists(method string) []several.Part {
	return c.all(func(ctx context.Context, s *several.Server) several.Part {
		all, size := several.Part{Server: s}, 0
		seen := map[string]bool{}
		for cursor := ""; ; {
			body := c.newMessage(method)
			if cursor != "" {
				body = c.newMessage(method, jsonrpc.Member{Name: "cursor", JSON: jsonrpc.AppendString(nil, cursor)})
			}
			page := c.ask(ctx, s, method, "", body)
			all.Why, all.Stale = cmp.Or(all.Why, page.Why), all.Stale || page.Stale
			if page.Results == nil {
				all.Stale = all.Results != nil
				return all
			}
			all.Results = append(all.Results, page.Results...)
			for _, result := range page.Results {
				size += len(result.Bytes)
			}
			cursor = ""
			if len(page.Results) == 1 {
				cursor, _ = page.Results[0].Member("nextCursor").Text()
			}
			if cursor == "" {
				return all
			}
			if size > several.MaxList || seen[cursor] {
				all.Why, all.Stale = "its list is too large", true
				return all
			}
			seen[cursor] = true
		}
	})
}

// askAll sends the message to all servers, and returns their results.
func (c *combined) askAll() []several.Part {
	c.x.delegated = true
	return c.all(func(ctx context.Context, s *several.Server) several.Part {
		return c.ask(ctx, s, c.m.Method, "", c.m.Raw)
	})
}

// all runs f for all servers at the same time. A server that takes too long is missing in the answer.
func (c *combined) all(f func(context.Context, *several.Server) several.Part) []several.Part {
	ctx, cancel := context.WithTimeout(c.x.account.Context, c.endpoint.ListLimit())
	defer cancel()
	parts := make([]several.Part, len(c.endpoint.Servers))
	var running sync.WaitGroup
	for i, s := range c.endpoint.Servers {
		running.Go(func() { parts[i] = f(ctx, s) })
	}
	running.Wait()
	return parts
}

// ask makes a request to one server, and returns its result. A server that has forgotten its session gets it again in a
// new one.
func (c *combined) ask(ctx context.Context, s *several.Server, method, name string, body []byte) several.Part {
	for again := false; ; again = true {
		member, why := c.member(ctx, s)
		if why != "" {
			return several.Part{Server: s, Why: why}
		}
		part := c.askIn(ctx, c.to(s, member, method, name, body), member, method)
		if again || part.Results != nil || c.session == nil || c.session.Member(s) == member {
			return part
		}
	}
}

// askIn is ask in a session. If the server fails, an earlier list takes the place of a new one.
func (c *combined) askIn(ctx context.Context, one partRequest, member *several.Membership, method string) several.Part {
	s := one.server
	part, failed := several.Part{Server: s, Why: "the server is unavailable"}, true
	retry := s.IsDown()
	if s.Admit() {
		if retry {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, several.RetryLimit)
			defer cancel()
		}
		part, failed = c.tryOnce(ctx, one, member, nil)
	}
	if part.Results != nil || !failed || !mcp.IsList(method) {
		return part
	}
	why := part.Why
	ctx, cancel := context.WithTimeout(c.x.account.Context, c.endpoint.ListLimit())
	defer cancel()
	part, _ = c.tryOnce(ctx, one, member, unavailable(s))
	part.Why = why
	return part
}

// tryOnce asks a server, unless it is down, and notes whether it can be used. It reports whether the server, and not
// the gate or the message, is why there is no answer.
func (c *combined) tryOnce(ctx context.Context, one partRequest, member *several.Membership, down *mcp.Problem) (part several.Part, failed bool) {
	part = several.Part{Server: one.server}
	to := newRecorder(several.MaxList)
	p := c.x.part(ctx, to, one)
	p.client.down = down
	p.run()
	c.note(ctx, p, one.server, down)
	problem := p.account.Problem
	failed = problem != nil && problem.Type.Upstream() || ctx.Err() != nil
	m := to.answer(c.m.ID.Bytes)
	switch {
	case m != nil && m.Result.Present():
		part.Results = []jsonrpc.Value{several.Copy(m.Result)}
		if part.Stale = p.reply.stale; part.Stale {
			part.Why = "the server failed to list"
		}
	case m != nil:
		code, _ := m.Error.Member("code").Int()
		if text, _ := m.Error.Member("message").Text(); code != jsonrpc.CodeMethodNotFound {
			part.Why = cmp.Or(text, "the server refused the request")
		} else {
			part.Results = []jsonrpc.Value{} // it has no such list
		}
	case to.status == http.StatusNotFound && c.session != nil:
		c.session.Left(one.server, member)
		part.Why = "the session of the server has ended"
	case ctx.Err() != nil:
		part.Why = "the server did not answer in time"
	default:
		part.Why = "the server gave no valid answer"
	}
	return part, failed
}

// note notes whether a server can be used, after it was asked.
func (c *combined) note(ctx context.Context, p *exchange, s *several.Server, down *mcp.Problem) {
	problem := failure(p)
	switch {
	case down != nil:
	case problem != nil && problem.Type == mcp.UpstreamDown:
		c.endpoint.Failed(s, several.Unreachable)
	case !p.client.reached && (tooSlow(p, s) || errors.Is(ctx.Err(), context.DeadlineExceeded)):
		c.endpoint.Failed(s, "it did not answer in time")
	case p.client.reached && s.IsDown():
		c.endpoint.Succeeded(s)
	case !p.client.reached:
		s.Untried()
	}
}

// failure returns why the answer of a server is missing, also if an earlier one took its place.
func failure(p *exchange) *mcp.Problem {
	problem, ok := errors.AsType[*mcp.Problem](p.reply.failure)
	if !ok {
		return p.account.Problem
	}
	return problem
}

// tooSlow reports whether a server did not answer in time. A slow call or resource says nothing of a server
// that was well.
func tooSlow(p *exchange, s *several.Server) bool {
	problem := failure(p)
	return problem != nil && problem.Type == mcp.UpstreamTimeout && (s.IsDown() || !mcp.TakesInput(p.account.Label))
}

// unavailable returns the problem of a request to a server that is down.
func unavailable(s *several.Server) *mcp.Problem {
	return &mcp.Problem{Type: mcp.UpstreamDown, Detail: "the server " + s.Name() + " is unavailable at the moment; the call did not run", RetryAfter: 5}
}

// missing returns the problem of a client without a session with a server.
func (c *combined) missing(s *several.Server) *mcp.Problem {
	if c.session.Ended() {
		return &mcp.Problem{Type: mcp.SessionGone}
	}
	return unavailable(s)
}

// to returns the part of the message for one server.
func (c *combined) to(s *several.Server, member *several.Membership, method, name string, body []byte) partRequest {
	header := headerFor(s, c.x.r.Header)
	if header["Mcp-Method"] != nil {
		header.Set("Mcp-Method", method)
	}
	if header.Del("Mcp-Name"); name != "" && c.x.r.Header["Mcp-Name"] != nil {
		header.Set("Mcp-Name", mcp.EncodeHeader(name))
	}
	if member != nil {
		if member.ID != "" {
			header.Set(sessionHeader, member.ID)
		}
		if header["Mcp-Protocol-Version"] != nil {
			header.Set("Mcp-Protocol-Version", member.Version)
		}
	}
	return partRequest{server: s, method: http.MethodPost, header: header, body: body}
}

// route forwards a message to one server, whose answer the client gets.
func (c *combined) route(s *several.Server, body []byte, name string) error {
	if c.session != nil && c.m.Kind == jsonrpc.Request {
		c.session.NoteRequest(c.m.ID.Bytes, s)
	}
	if c.divert != nil {
		c.divert(s, body, name)
		return nil
	}
	return c.forward(s, body, name)
}

// forward forwards the message to one server in the session of the client.
func (c *combined) forward(s *several.Server, body []byte, name string) error {
	member, why := c.member(c.x.account.Context, s)
	if why != "" {
		return c.refuse(c.missing(s))
	}
	one := c.to(s, member, c.m.Method, name, body)
	key := c.client()
	for again := false; ; again = true {
		w := &partWriter{ResponseWriter: c.x.reply.out.w, server: s, session: c.session}
		if c.m.Method == mcpname.ToolsCall {
			w.learn = func(m *jsonrpc.Message) { c.endpoint.LearnTask(key, s, m.Result) }
		}
		p := c.x.part(c.x.account.Context, w, one)
		w.reached, p.unlisted = &p.client.reached, c.endpoint.Search
		if !s.Admit() {
			p.client.down = unavailable(s)
		}
		p.body.reserved, c.x.body.reserved = c.x.body.reserved, 0
		c.x.delegated = true
		broken := p.run()
		w.end()
		c.note(c.x.account.Context, p, s, p.client.down)
		switch {
		case w.withheld == http.StatusNotFound && !again:
			// The server has forgotten its session, so the call did not run.
			c.session.Left(s, member)
			if member, why = c.member(c.x.account.Context, s); why != "" {
				return c.refuse(c.missing(s))
			}
			one = c.to(s, member, c.m.Method, name, body)
			continue
		case w.withheld != 0:
			return c.refuse(&mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server " + s.Name() + " does not accept the session or the credentials of the gate; the call did not run"})
		case broken:
			return conversation.ErrBrokenOff
		}
		return nil
	}
}

// notify forwards a notification.
func (c *combined) notify() error {
	c.x.delegated = true
	switch c.m.Method {
	case mcpname.NotifyInitialized, mcpname.NotifyRootsListChanged:
		if c.session == nil {
			break
		}
		members := c.session.Members()
		if c.m.Method == mcpname.NotifyInitialized {
			members = c.session.Initialized()
		}
		c.all(func(ctx context.Context, s *several.Server) several.Part {
			if member := members[s]; member != nil {
				c.x.part(ctx, newRecorder(several.MaxInitialize), c.to(s, member, c.m.Method, "", c.m.Raw)).run()
			}
			return several.Part{}
		})
	case mcpname.NotifyCancelled:
		id := c.m.Params.Member("requestId")
		if c.session == nil || !id.Present() {
			break
		}
		if s := c.session.RequestServer(id.Bytes); s != nil {
			return c.route(s, c.m.Raw, "")
		}
	case mcpname.NotifyProgress:
		return c.returnTo(c.m.Params.Member("progressToken"))
	}
	return c.x.reply.Answer(conversation.Answered, nil)
}

// respond forwards the client's answer to a request of a server.
func (c *combined) respond() error { return c.returnTo(c.m.ID) }

// returnTo forwards a message to the server that an id or a token names. A message about nothing that
// a server has sent is dropped.
func (c *combined) returnTo(id jsonrpc.Value) error {
	s, own, ok := c.endpoint.Unwrap(c.session, id)
	if !ok {
		return c.x.reply.Answer(conversation.Answered, nil)
	}
	var patch jsonrpc.Patch
	patch.Replace(id, own)
	return c.route(s, patch.Apply(c.m.Raw), "")
}

// initialize begins a session.
func (c *combined) initialize() error {
	if len(c.m.Raw) > several.MaxInitialize {
		return c.refuse(&mcp.Problem{Type: mcp.InvalidParams, Detail: "the initialize request is larger than 16 KiB"})
	}
	c.session = c.endpoint.Begin(c.x.client.principal(), bytes.Clone(c.m.Raw))
	c.x.delegated = true
	parts := c.all(func(ctx context.Context, s *several.Server) several.Part {
		member, why := c.member(ctx, s)
		if why != "" {
			return several.Part{Server: s, Why: why}
		}
		return several.Part{Server: s, Results: []jsonrpc.Value{member.Result}}
	})
	if !slices.ContainsFunc(parts, func(p several.Part) bool { return p.Results != nil }) {
		c.endpoint.End(c.x.account.Context, c.session)
		return c.refuse(&mcp.Problem{Type: mcp.UpstreamDown, Detail: "no server of this endpoint is available: " + parts[0].Why, RetryAfter: 5})
	}
	version, _ := c.m.Params.Member("protocolVersion").Text()
	result := c.endpoint.Initialized(version, parts)
	c.endpoint.Save(c.x.account.Context, c.session)
	c.x.reply.out.header().Set(sessionHeader, c.session.ID)
	return c.answer(result)
}

// member returns the client's session with a server, which begins if there is none yet. Why says why
// there is none. For a modern client both are empty.
func (c *combined) member(ctx context.Context, s *several.Server) (m *several.Membership, why string) {
	if c.session == nil {
		return nil, ""
	}
	if m := c.session.Member(s); m != nil {
		return m, ""
	}
	joined, first := c.session.Joining(s)
	if first {
		x, session := c.x, c.session
		c.endpoint.Go(x.r.Context(), several.JoinLimit, func(ctx context.Context) {
			m, why := beginSession(ctx, x, c.endpoint, session, s)
			session.Join(s, m, why)
		})
	}
	limit := c.endpoint.ListLimit()
	if s.IsDown() {
		if limit = several.RetryLimit; !first {
			return c.session.MemberOrReason(s)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !several.Wait(ctx, joined) && c.x.account.Context.Err() == nil {
		c.endpoint.Failed(s, "it did not begin a session in time")
	}
	return c.session.MemberOrReason(s)
}

// maxVersion is the longest name of a version of the protocol that a session keeps.
const maxVersion = 32

// beginSession begins the session with a server for a session with the endpoint. It returns an error
// that the client may see.
func beginSession(ctx context.Context, x *exchange, e *several.Endpoint, session *several.Session, s *several.Server) (*several.Membership, string) {
	if m, ended := e.Rejoin(ctx, session, s); ended {
		return nil, "the session has ended"
	} else if m != nil {
		session.Joined(s, m)
		return m, ""
	}
	if !s.Admit() {
		return nil, "the server is unavailable"
	}
	ask := &combined{x: x, endpoint: e}
	message, err := jsonrpc.ParseMessage(session.Initialize, jsonrpc.Limits{})
	if err != nil {
		return nil, "the request cannot be read"
	}
	header := headerFor(s, x.r.Header)
	header.Del("Mcp-Protocol-Version")
	header.Del("Mcp-Method")
	to := newRecorder(several.MaxList)
	p := x.part(ctx, to, partRequest{server: s, method: http.MethodPost, header: header, body: session.Initialize})
	p.run()
	ask.note(ctx, p, s, nil)
	var version string
	answer := to.answer(message.ID.Bytes)
	if answer != nil {
		version, _ = answer.Result.Member("protocolVersion").Text()
	}
	if version == "" || len(version) > maxVersion {
		return nil, "the server began no session of this protocol version"
	}
	m := &several.Membership{ID: to.head.Get(sessionHeader), Version: version, Result: several.Copy(answer.Result)}
	begun, initialized := session.Joined(s, m)
	if begun {
		e.Save(ctx, session)
	}
	if initialized {
		body := []byte(`{"jsonrpc":"2.0","method":"` + mcpname.NotifyInitialized + `"}`)
		one := partRequest{server: s, method: http.MethodPost, header: maps.Clone(header), body: body}
		if m.ID != "" {
			one.header.Set(sessionHeader, m.ID)
		}
		one.header.Set("Mcp-Protocol-Version", version)
		x.part(ctx, newRecorder(several.MaxInitialize), one).run()
	}
	return m, ""
}

// delete ends a session.
func (c *combined) delete() error {
	if problem := c.findSession(); problem != nil {
		return c.x.reply.Refuse(problem)
	}
	c.x.delegated = true
	members := c.endpoint.End(c.x.account.Context, c.session)
	c.all(func(ctx context.Context, s *several.Server) several.Part {
		if member := members[s]; member != nil && member.ID != "" {
			one := c.to(s, member, "", "", nil)
			one.method = http.MethodDelete
			// The client may have left already.
			c.x.part(context.WithoutCancel(ctx), newRecorder(several.MaxInitialize), one).run()
		}
		return several.Part{}
	})
	c.x.reply.out.begin(http.StatusOK)
	return nil
}

// taskEvents forwards a request for the events of a task to its server.
func (c *combined) taskEvents(id string) error {
	if c.x.r.Header.Get(sessionHeader) != "" {
		if problem := c.findSession(); problem != nil {
			return c.x.reply.Refuse(problem)
		}
	}
	s, known := c.endpoint.TaskServer(c.client(), id)
	if !known {
		return c.x.reply.Refuse(&mcp.Problem{Type: mcp.TaskNotFound})
	}
	var member *several.Membership
	if c.session != nil {
		member = c.session.Member(s)
	}
	one := c.to(s, member, "", "", nil)
	one.method = http.MethodGet
	p := c.x.part(c.x.account.Context, c.x.reply.out.w, one)
	p.client.era = c.x.client.era
	c.x.delegated = true
	if p.record(p.account.Safely(func() error {
		return p.withSlot(p.h.streams, func() error { return p.taskEvents(task.ID(id)) })
	}, p.reply.Refuse)) {
		return conversation.ErrBrokenOff
	}
	return nil
}

// get serves the stream on which servers send messages on their own initiative.
func (c *combined) get() error {
	x := c.x
	if x.r.Header.Get(sessionHeader) == "" {
		return x.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed, Detail: "only sessions have such a stream"})
	}
	if problem := c.findSession(); problem != nil {
		return x.reply.Refuse(problem)
	}
	if last := x.r.Header.Get("Last-Event-Id"); last != "" {
		return c.resume(last)
	}
	if !x.client.takesEvents() {
		return x.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed})
	}
	return x.withSlot(x.h.streams, func() error {
		ctx, stop := x.h.endable(x.account.Context, x.client.epoch)
		defer stop()
		c.beginStream()
		shared := &sharedStream{out: &x.reply.out}
		if _, err := shared.send(jsonrpc.AppendComment(nil, "connected")); err != nil {
			return err
		}
		return c.listen(ctx, shared)
	})
}

// beginStream sends the head of an answer with events of all servers.
func (c *combined) beginStream() {
	header := c.x.reply.out.header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no")
	c.x.reply.out.begin(http.StatusOK)
}

// resume forwards a request to resume the stream of one server.
func (c *combined) resume(last string) error {
	s, own, ok := c.endpoint.UnwrapEvent(last)
	if !ok {
		return c.x.reply.Refuse(&mcp.Problem{Type: mcp.InvalidRequest, Detail: "Last-Event-ID was not issued by this endpoint"})
	}
	member := c.session.Member(s)
	if member == nil {
		return c.x.reply.Refuse(unavailable(s))
	}
	one := c.to(s, member, "", "", nil)
	one.method = http.MethodGet
	one.header.Set("Last-Event-Id", own)
	w := &partWriter{ResponseWriter: c.x.reply.out.w, server: s, session: c.session}
	p := c.x.part(c.x.account.Context, w, one)
	w.reached = &p.client.reached
	c.x.delegated = true
	broken := p.run()
	w.end()
	switch {
	case w.withheld != 0:
		return c.x.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed, Detail: "the stream has ended"})
	case broken:
		return conversation.ErrBrokenOff
	}
	return nil
}

// listChanges are the events that tell a client to ask for all lists again.
var listChanges = func() (events []byte) {
	for _, method := range []string{mcpname.NotifyToolsListChanged, mcpname.NotifyPromptsListChanged, mcpname.NotifyResourcesListChanged} {
		events = jsonrpc.AppendEvent(events, jsonrpc.Event{Name: "message", Data: []byte(`{"jsonrpc":"2.0","method":"` + method + `"}`)})
	}
	return events
}()

// listen passes on the events of all servers until ctx ends. Servers that join later are added.
func (c *combined) listen(ctx context.Context, shared *sharedStream) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ended := make(chan *several.Server, len(c.endpoint.Servers))
	listening := map[*several.Server]bool{}
	asked := map[*several.Server]*several.Membership{} // not asked again: it has no such stream
	heartbeat := time.NewTicker(c.x.h.cfg.Gateway.HeartbeatInterval())
	defer heartbeat.Stop()
	changed, returned := c.session.Changed(), c.endpoint.Returned()
	var due <-chan time.Time // a list change, which is not sent to all clients at once
	for {
		for s, member := range c.session.Members() {
			if listening[s] || asked[s] == member {
				continue
			}
			listening[s], asked[s] = true, member
			running.Go(func() { c.listenTo(ctx, s, member, shared); ended <- s })
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-changed: // the client has not seen the lists of a server that has joined just now
			changed = c.session.Changed()
			_, err = shared.send(listChanges)
		case <-returned:
			returned = c.endpoint.Returned()
			due = time.After(c.endpoint.Spread())
		case <-due:
			due = nil
			_, err = shared.send(listChanges)
		case s := <-ended:
			listening[s] = false
		case <-heartbeat.C:
			_, err = shared.send(jsonrpc.AppendComment(nil, "listening"))
		}
		if err != nil {
			return err
		}
	}
}

// listenTo passes on the events of one server, and opens its stream again when it ends, until the session
// with the server ends or the server has no such stream.
func (c *combined) listenTo(ctx context.Context, s *several.Server, member *several.Membership, shared *sharedStream) {
	pause := minSubscribePause
	for ctx.Err() == nil && c.session.Member(s) == member {
		returned := c.endpoint.Returned()
		status := http.StatusServiceUnavailable
		if !s.IsDown() { // one request tries it, and then returned is closed
			status = c.relayStream(ctx, s, member, shared)
		}
		wait := after(pause/2 + rand.N(pause/2))
		switch {
		case status == http.StatusOK:
			pause = minSubscribePause
		case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
			pause = min(2*pause, maxSubscribePause)
		default:
			return
		}
		select {
		case <-ctx.Done():
		case <-wait:
		case <-returned:
			several.Wait(ctx, after(c.endpoint.Spread())) // not all clients at once
		}
	}
}

// relayStream passes on the stream of a server until it ends, and returns the status of the answer.
func (c *combined) relayStream(ctx context.Context, s *several.Server, member *several.Membership, shared *sharedStream) int {
	one := c.to(s, member, "", "", nil)
	one.method = http.MethodGet
	to := &streamWriter{head: make(http.Header), events: eventWrapper{server: s, session: c.session, to: shared.send, whole: true}}
	c.x.part(ctx, to, one).run()
	return to.status
}

// after returns a channel that is closed after a time.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}
