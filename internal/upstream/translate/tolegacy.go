package translate

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// modernToLegacy serves a modern client of a legacy server.
func (x *exchange) modernToLegacy() (*http.Response, error) {
	if x.m.Kind != jsonrpc.Request {
		return nothing(http.StatusAccepted), nil // modern clients have nothing to tell
	}
	if problem := mcp.CheckVersion(x.m); problem != nil {
		return nil, problem
	}
	switch x.m.Method {
	case mcpname.Initialize, mcpname.Ping, mcpname.LoggingSetLevel, mcpname.ResourcesSubscribe, mcpname.ResourcesUnsubscribe:
		return x.answerUnknown(http.StatusNotFound), nil
	case mcpname.SubscriptionsListen:
		return x.listen()
	}
	if strings.HasPrefix(x.m.Method, "tasks/") {
		return x.aboutTask()
	}
	if state, _ := x.m.Params.Member("requestState").Text(); strings.HasPrefix(state, ownSession) {
		return x.resume(state)
	}
	s, refusal, err := x.t.sessions.get(x)
	if err != nil || refusal != nil {
		return refusal, err
	}
	if x.m.Method == mcpname.ServerDiscover {
		defer s.release()
		return x.answerResult(s.discovery()), nil
	}
	c := &legacyCall{x: x, s: s}
	return c.begin(true)
}

// discovery returns the result of server/discover.
func (s *session) discovery() []byte {
	capabilities := objectOr(s.capability()).Without("tasks")
	if s.hasTaskTools() {
		capabilities = withMembers(jsonrpc.Value{Bytes: capabilities}, []jsonrpc.Member{{Name: "extensions", JSON: []byte(tasksExtension)}})
	}
	members := []jsonrpc.Member{
		{Name: "resultType", JSON: []byte(`"complete"`)},
		{Name: "supportedVersions", JSON: jsonrpc.Array([][]byte{jsonrpc.AppendString(nil, mcp.Version20260728)})},
		{Name: "capabilities", JSON: capabilities},
	}
	if instructions := s.result.Member("instructions"); instructions.Present() {
		members = append(members, jsonrpc.Member{Name: "instructions", JSON: instructions.Bytes})
	}
	members = append(members, jsonrpc.Member{Name: "ttlMs", JSON: []byte("0")}, jsonrpc.Member{Name: "cacheScope", JSON: []byte(`"private"`)})
	if info := s.result.Member("serverInfo"); info.IsObject() {
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: jsonrpc.AppendObject(nil, jsonrpc.Member{Name: mcpname.MetaServerInfo, JSON: info.Bytes})})
	}
	return jsonrpc.AppendObject(nil, members...)
}

// objectOr returns v, or an empty object if v is none.
func objectOr(v jsonrpc.Value) jsonrpc.Value {
	if !v.IsObject() {
		return jsonrpc.Value{Bytes: []byte("{}")}
	}
	return jsonrpc.Value{Bytes: v.Bytes}
}

// A legacyCall is a request at a legacy server, of one HTTP request of a modern client. If the server
// asks a question, the client's next request continues it. It implements conversion.
type legacyCall struct {
	x      *exchange
	s      *session
	id     []byte // of the request at the server
	level  int    // log messages that are more verbose are dropped
	source *source
	asTask bool            // the server is asked for a task
	task   *legacyTask     // for whose end a client waits that does not support tasks
	ctx    context.Context // of the requests at the server
	cancel context.CancelFunc
	detach func() bool   // from the context of x
	state  atomic.Uint32 // running, ended or parked
	once   sync.Once     // see release
}

// States of a legacyCall.
const (
	running = iota
	ended   // the server has answered, or was told that nobody waits for it
	parked  // another call continues it
)

// continuedBy returns the call as the request of another exchange.
func (c *legacyCall) continuedBy(x *exchange) *legacyCall {
	next := &legacyCall{x: x, s: c.s, id: c.id, source: c.source, task: c.task, ctx: c.ctx, cancel: c.cancel}
	next.attach()
	return next
}

// attach makes the call end when the client's HTTP request ends.
func (c *legacyCall) attach() {
	c.detach = context.AfterFunc(c.x.http.Context(), c.cancel)
	level, _ := c.x.m.Params.Meta.Member(metaLogLevel).Text()
	c.level = verbosity(level)
}

// begin sends the request. If the server has ended the session, the request did not run, and it is
// sent again, once, in another session.
func (c *legacyCall) begin(again bool) (*http.Response, error) {
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(c.x.http.Context()))
	c.attach()
	support, err := c.s.taskSupport(c.x.http.Context(), c.x.m)
	if err != nil {
		c.state.Store(ended)
		_ = c.Close()
		return nil, brokenAnswer(err)
	}
	c.asTask = support == "required" || support == "optional" && c.x.wantsTask()
	c.s.ensureLevel(c.x.http.Context(), c.level)
	c.id = c.s.newID()
	resp, err := c.x.t.post(c.ctx, c.x.by, c.x.headersIn(c.s), c.request())
	if err != nil {
		if c.x.http.Context().Err() == nil {
			c.state.Store(ended)
		} else {
			err = context.Cause(c.x.http.Context()) // the server may work on the request
		}
		_ = c.Close()
		return nil, err
	}
	c.source = newSource(resp, c.x.t.cfg.MaxMessage)
	switch {
	case resp.StatusCode == http.StatusOK:
		return c.x.respond(c, statusOf(c.x.m.Method))
	case resp.StatusCode == http.StatusNotFound && again && c.s.header.Get("Mcp-Session-Id") != "":
		c.state.Store(ended)
		_ = c.Close()
		return c.inAnotherSession()
	}
	c.state.Store(ended)
	return c.refused(resp)
}

// inAnotherSession begins another session and sends the request there.
func (c *legacyCall) inAnotherSession() (*http.Response, error) {
	c.x.t.sessions.lose(c.s)
	s, refusal, err := c.x.t.sessions.get(c.x)
	if err != nil || refusal != nil {
		return refusal, err
	}
	next := &legacyCall{x: c.x, s: s}
	return next.begin(false)
}

// refused passes on an answer that has another status than 200, with the client's id.
func (c *legacyCall) refused(resp *http.Response) (*http.Response, error) {
	defer func() { _ = c.Close() }()
	if resp.StatusCode < http.StatusMultipleChoices {
		return nil, brokenAnswer(errBrokenAnswer)
	}
	to := statusIn(resp).response()
	if m, err := c.source.next(); err == nil && m.Error.Present() {
		setMessage(to, c.answered(m))
	}
	return to, nil
}

// request returns the request for the server.
func (c *legacyCall) request() []byte {
	m := c.x.m
	var p jsonrpc.Patch
	p.Replace(m.ID, c.id)
	raw := p.Apply(m.Raw)
	changed, err := jsonrpc.ParseMessage(raw, jsonrpc.Limits{})
	if err != nil {
		return raw // not possible: m was parsed
	}
	var own []string
	for name := range changed.Params.Meta.Members() {
		if isOwnKey(name) {
			own = append(own, name)
		}
	}
	params := jsonrpc.Value{Bytes: changed.Params.Without("inputResponses", "requestState", "task")}
	if meta := params.Member("_meta"); meta.IsObject() {
		rest := jsonrpc.Value{Bytes: meta.Without(own...)}
		if rest.IsEmptyObject() {
			params.Bytes = params.Without("_meta")
		} else {
			params.Bytes = replaced(params.Bytes, meta, rest.Bytes)
		}
	}
	if c.asTask {
		params.Bytes = withMembers(jsonrpc.Value{Bytes: params.Bytes}, []jsonrpc.Member{{Name: "task", JSON: []byte("{}")}})
	}
	return replaced(raw, changed.Params.Value, params.Bytes)
}

// replaced returns object with the value v in it replaced.
func replaced(object []byte, v jsonrpc.Value, json []byte) []byte {
	var p jsonrpc.Patch
	p.Replace(v, json)
	return p.Apply(object)
}

// statusOf returns the status of an answer to a modern client.
func statusOf(method string) func([]byte) int {
	return func(text []byte) int {
		m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
		if err != nil || !m.Error.Present() {
			return http.StatusOK
		}
		switch code, _ := m.Error.Member("code").Int(); {
		case code == mcp.CodeMissingCapability:
			return http.StatusBadRequest
		case code == jsonrpc.CodeMethodNotFound && method != mcpname.ToolsCall:
			return http.StatusNotFound
		default:
			return http.StatusOK
		}
	}
}

// next implements conversion.
func (c *legacyCall) next() (text []byte, final bool, err error) {
	for {
		if text, err := c.awaitTask(); text != nil || err != nil {
			return text, true, err
		}
		m, err := c.read()
		switch {
		case err != nil:
			return nil, false, err
		case m == nil:
		case m.Kind == jsonrpc.Notification:
			if c.passes(m) {
				return withoutTaskOf(m), false, nil
			}
			c.s.announce(m)
		case m.Kind == jsonrpc.Request:
			text, err := c.asked(m)
			if text != nil || err != nil {
				return text, true, err
			}
		case isAnswer(m, c.id):
			text := c.end(m)
			return text, text != nil, nil
		}
	}
}

// read returns the next message, or nil if the server has ended the stream before the task.
func (c *legacyCall) read() (*jsonrpc.Message, error) {
	m, err := c.source.next()
	if c.task == nil || !errors.Is(err, io.EOF) {
		return m, err
	}
	c.endSource()
	return nil, sleep(c.ctx, time.Second)
}

// end returns the answer for the client to the server's answer m, or nil if the call goes on.
func (c *legacyCall) end(m *jsonrpc.Message) []byte {
	if c.created(m) {
		return nil
	}
	if task := m.Result.Member("task"); c.asTask && c.task == nil && task.IsObject() && !isTask(task) {
		broken := &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server's task has no id or no status. The call may have run"}
		return broken.AppendResponse(nil, mcp.Modern, c.x.m.ID.Bytes, "")
	}
	c.state.Store(ended)
	return c.answered(m)
}

// isTask reports whether a task of a legacy server has an id and a status.
func isTask(v jsonrpc.Value) bool {
	id, _ := v.Member("taskId").Text()
	status, _ := v.Member("status").Text()
	return id != "" && len(id) <= maxTaskID && schema.Status(status).Valid()
}

// created reports whether m is a task for whose end the call waits, because its client does not support
// tasks.
func (c *legacyCall) created(m *jsonrpc.Message) bool {
	task := m.Result.Member("task")
	if !c.asTask || !isTask(task) || c.x.wantsTask() || c.task != nil {
		return false
	}
	c.task = c.taskWith(task.Member("taskId"))
	c.endSource()
	return true
}

// endSource makes the call wait for its task.
func (c *legacyCall) endSource() {
	_ = c.source.body.Close()
	c.source = nil
}

// awaitTask waits, if there is nothing to read, until the task of the call has ended or has questions, and
// asks for its result. It returns the answer to the client if that is not possible.
func (c *legacyCall) awaitTask() ([]byte, error) {
	for c.source == nil {
		m, err := c.task.ask(c.ctx, mcpname.TasksGet)
		if errors.Is(err, errTaskGone) {
			c.state.Store(ended)
			gone := &mcp.Problem{Type: mcp.UpstreamTaskGone}
			return gone.AppendResponse(nil, mcp.Modern, c.x.m.ID.Bytes, ""), nil
		}
		if err != nil {
			return nil, err
		}
		status, _ := m.Result.Member("status").Text()
		switch {
		case m.Error.Present():
			return modernError(m, c.x.m.ID.Bytes), nil
		case !schema.Status(status).Valid():
			return nil, errBrokenAnswer
		case status != string(schema.Working):
			return nil, c.askResult()
		}
		if err := sleep(c.ctx, pollPause(m.Result.Member("pollInterval"))); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// askResult asks for the result of the task. The server's questions come in the same stream.
func (c *legacyCall) askResult() error {
	c.id = c.s.newID()
	m := jsonrpc.NewRequest(c.id, mcpname.TasksResult, jsonrpc.NewParams(jsonrpc.Member{Name: "taskId", JSON: c.task.id}))
	resp, err := c.x.t.post(c.ctx, c.x.by, c.x.headersIn(c.s), m.Raw)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server refuses the result of its task with status " + strconv.Itoa(resp.StatusCode)}
	}
	c.source = newSource(resp, c.x.t.cfg.MaxMessage)
	return nil
}

// withoutTaskOf returns a notification without the metadata that names a task.
func withoutTaskOf(m *jsonrpc.Message) []byte {
	if !m.Params.Meta.Member(mcpname.MetaRelatedTask).Present() {
		return m.Raw
	}
	n := jsonrpc.NewRequest(nil, m.Method, jsonrpc.Params{Value: jsonrpc.Value{Bytes: withoutTask(m.Params.Value)}})
	return n.Raw
}

// passes reports whether the client gets a notification.
func (c *legacyCall) passes(m *jsonrpc.Message) bool {
	switch m.Method {
	case mcpname.NotifyProgress:
		return true
	case mcpname.NotifyMessage:
		level, _ := m.Params.Member("level").Text()
		return c.level > 0 && verbosity(level) <= c.level
	default:
		return false // the rest is for those who listen
	}
}

// asked handles a request of the server. It returns the answer that ends the client's request, unless
// the translator answers the server itself.
func (c *legacyCall) asked(m *jsonrpc.Message) ([]byte, error) {
	ctx, stop := own(c.x.t.ctx, sessionTimeout)
	defer stop()
	switch m.Method {
	case mcpname.Ping:
		return nil, c.send(ctx, jsonrpc.AppendResult(nil, m.ID.Bytes, []byte("{}")))
	case mcpname.SamplingCreateMessage, mcpname.ElicitationCreate, mcpname.RootsList:
		if mcp.TakesInput(c.x.m.Method) {
			if text, err := c.park(m); err == nil {
				return text, nil
			}
		}
	}
	unknown := &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "The client cannot be asked this now"}
	return nil, c.send(ctx, jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, unknown))
}

// send sends a notification or an answer about the call.
func (c *legacyCall) send(ctx context.Context, message []byte) error {
	return c.s.sendAs(ctx, c.x.plain(), c.x.headersIn(c.s), message)
}

// park keeps the call until the client answers a question, and returns the answer with the question.
func (c *legacyCall) park(question *jsonrpc.Message) ([]byte, error) {
	p := &parkedCall{call: c, binding: c.x.binding(), question: question, key: "question-" + rand.Text()[:8]}
	state, ok := c.x.t.parked.put(p)
	if !ok {
		return nil, &mcp.Problem{Type: mcp.ClientLimit, Detail: "too many questions of servers are open"}
	}
	c.state.Store(parked)
	c.detach()
	return jsonrpc.AppendResult(nil, c.x.m.ID.Bytes, inputRequired([]jsonrpc.Member{{Name: p.key, JSON: questionFor(question)}}, state)), nil
}

// inputRequired returns the result that asks a modern client questions.
func inputRequired(questions []jsonrpc.Member, state string) []byte {
	members := []jsonrpc.Member{
		{Name: "resultType", JSON: []byte(`"input_required"`)},
		{Name: "inputRequests", JSON: jsonrpc.AppendObject(nil, questions...)},
	}
	if state != "" {
		members = append(members, jsonrpc.Member{Name: "requestState", JSON: jsonrpc.AppendString(nil, state)})
	}
	return jsonrpc.AppendObject(nil, members...)
}

// Close implements conversion. A call without an answer is cancelled, unless it waits for its client.
func (c *legacyCall) Close() error {
	if c.state.Load() != parked {
		c.giveUp()
	}
	return nil
}

// giveUp ends the call.
func (c *legacyCall) giveUp() {
	if c.state.Swap(ended) != ended {
		ctx, stop := own(c.x.t.ctx, probeTimeout)
		m := jsonrpc.NewRequest(nil, mcpname.NotifyCancelled, jsonrpc.NewParams(jsonrpc.Member{Name: "requestId", JSON: c.id}))
		if c.task != nil {
			m = jsonrpc.NewRequest(c.s.newID(), mcpname.TasksCancel, jsonrpc.NewParams(jsonrpc.Member{Name: "taskId", JSON: c.task.id}))
		}
		_ = c.send(ctx, m.Raw)
		stop()
	}
	c.once.Do(func() {
		if c.source != nil {
			_ = c.source.body.Close()
		}
		c.detach()
		c.cancel()
		c.s.release()
	})
}

// answered returns the server's answer for the client.
func (c *legacyCall) answered(m *jsonrpc.Message) []byte {
	id := c.x.m.ID.Bytes
	if m.Error.Present() {
		if code, _ := m.Error.Member("code").Int(); code == jsonrpc.CodeMethodNotFound || code == jsonrpc.CodeInvalidRequest {
			c.s.support.forget() // the tool may have become one with tasks, or without
		}
		return modernError(m, id)
	}
	if task := m.Result.Member("task"); c.asTask && c.task == nil && task.IsObject() {
		k := c.keepTask(task.Member("taskId"))
		status, _ := task.Member("status").Text()
		members := append(taskMembers(mcp.Modern, task, jsonrpc.AppendString(nil, k.own), schema.Status(status)), jsonrpc.Member{Name: "resultType", JSON: []byte(`"task"`)})
		return jsonrpc.AppendResult(nil, id, jsonrpc.AppendObject(nil, members...))
	}
	if c.task != nil {
		m.Result = jsonrpc.Value{Bytes: withoutTask(m.Result)}
	}
	return jsonrpc.AppendResult(nil, id, modernResult(c.x.m.Method, m.Result, c.s.result.Member("serverInfo")))
}

const (
	codeNotFoundBefore = -32002 // for a resource, in legacy versions
	codeElicitURL      = -32042 // the client must open a URL first
)

// modernError returns an error of a legacy server for a modern client.
func modernError(m *jsonrpc.Message, id []byte) []byte {
	var p jsonrpc.Patch
	p.Replace(m.ID, id)
	code := m.Error.Member("code")
	switch n, _ := code.Int(); n {
	case codeNotFoundBefore:
		p.Replace(code, []byte("-32602"))
	case codeElicitURL:
		if questions := urlQuestions(m.Error.Member("data").Member("elicitations")); questions != nil {
			return jsonrpc.AppendResult(nil, id, inputRequired(questions, ""))
		}
		p.Replace(code, []byte("-32603"))
	}
	return p.Apply(m.Raw)
}

// urlQuestions returns questions to open URLs. The request is repeated after the client's answers.
func urlQuestions(elicitations jsonrpc.Value) (questions []jsonrpc.Member) {
	for e := range elicitations.Elements() {
		question := jsonrpc.AppendObject(nil,
			jsonrpc.Member{Name: "method", JSON: jsonrpc.AppendString(nil, mcpname.ElicitationCreate)},
			jsonrpc.Member{Name: "params", JSON: objectOr(e).Without("elicitationId")})
		questions = append(questions, jsonrpc.Member{Name: "url-" + string(rune('a'+len(questions)%26)), JSON: question})
		if len(questions) == 26 {
			break
		}
	}
	return questions
}

// cachedResult reports whether results of a method say how long they may be kept.
func cachedResult(method string) bool {
	return mcp.IsList(method) || method == mcpname.ResourcesRead || method == mcpname.ResourcesTemplatesList
}

// modernResult returns a result of a legacy server for a modern client.
func modernResult(method string, result, info jsonrpc.Value) []byte {
	v := objectOr(result)
	if method == mcpname.ToolsList {
		v.Bytes = eachTool(v, func(tool jsonrpc.Value) []byte { return tool.Without("execution") })
	}
	members := []jsonrpc.Member{{Name: "resultType", JSON: []byte(`"complete"`)}}
	if cachedResult(method) {
		members = append(members, jsonrpc.Member{Name: "ttlMs", JSON: []byte("0")}, jsonrpc.Member{Name: "cacheScope", JSON: []byte(`"private"`)})
	}
	if info.IsObject() {
		meta := objectOr(v.Member("_meta"))
		var p jsonrpc.Patch
		p.Set(meta, mcpname.MetaServerInfo, info.Bytes)
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: p.Apply(meta.Bytes)})
	}
	return withMembers(v, members)
}

// withMembers returns object v with members replaced or added.
func withMembers(v jsonrpc.Value, members []jsonrpc.Member) []byte {
	all := slices.Clone(members)
	for name, value := range v.Members() {
		if !slices.ContainsFunc(members, func(m jsonrpc.Member) bool { return m.Name == name }) {
			all = append(all, jsonrpc.Member{Name: name, JSON: value.Bytes})
		}
	}
	return jsonrpc.AppendObject(nil, all...)
}

// eachTool returns the result of tools/list with each tool changed.
func eachTool(result jsonrpc.Value, change func(tool jsonrpc.Value) []byte) []byte {
	tools := result.Member("tools")
	var changed [][]byte
	for tool := range tools.Elements() {
		one := []byte(string(tool.Bytes))
		if tool.IsObject() {
			one = change(jsonrpc.Value{Bytes: tool.Bytes})
		}
		changed = append(changed, one)
	}
	if changed == nil {
		return result.Bytes
	}
	return withMembers(result, []jsonrpc.Member{{Name: "tools", JSON: jsonrpc.Array(changed)}})
}
