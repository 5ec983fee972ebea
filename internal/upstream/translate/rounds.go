package translate

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// A modernCall is a request of a legacy client at a modern server. A server that needs input ends a
// round of it; the client is asked in its stream, and another round follows. It implements conversion.
type modernCall struct {
	x      *exchange
	s      *legacySession
	source *source
	status answerStatus
	id     []byte // of the request at the server
	rounds int
	ctx    context.Context
	cancel context.CancelFunc
	leave  func() // the client can no longer cancel the request

	questions []question // not sent to the client yet
	asked     []question // sent
	state     jsonrpc.Value
	pause     bool // the server wants another round
	pauseFor  time.Duration

	wants    bool                   // the client has asked for a task
	declares bool                   // the server is told that the client supports tasks
	task     []byte                 // for whose end the client waits, as JSON
	absorbed atomic.Pointer[[]byte] // the task, if the client does not know it and it has not ended
	opened   bool                   // the client's stream is open, or will not be
	seen     map[string]bool        // the keys of the task's questions

	latest closer
}

// A question is one of the inputRequests of a server.
type question struct {
	key    string
	method string
	params jsonrpc.Value
	id     []byte                // of the request to the client
	answer chan *jsonrpc.Message // of the client
}

const (
	maxRounds    = 10
	maxQuestions = 16
	// roundPause is the time between rounds without questions.
	roundPause = 250 * time.Millisecond
)

// ask sends a request of the client to the server.
func (x *exchange) ask(c *modernCall) (*http.Response, error) {
	c.ctx, c.cancel = context.WithCancel(x.http.Context())
	c.leave = x.t.rounds.begin(c)
	err := c.send()
	if err == nil && c.status.code == http.StatusBadRequest && x.m.Method == mcpname.ToolsCall {
		err = c.sendAgain()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if !c.answers() {
		return c.refused(), nil
	}
	return x.respond(c, func([]byte) int { return http.StatusOK })
}

// answers reports whether the server takes the request.
func (c *modernCall) answers() bool { return c.status.code == http.StatusOK || c.source.events != nil }

// send sends the request of a round.
func (c *modernCall) send() error {
	c.id = newID()
	m := c.request()
	header := c.x.modernHeader(m)
	if tool := c.x.t.tools.find(c.x.by.Owner, m); tool.Present() {
		if err := mcp.MirrorArguments(header, tool, m.Params.Arguments); err != nil {
			return &mcp.Problem{Type: mcp.InvalidParams, Detail: "the arguments cannot be repeated in headers as the tool demands", Cause: err}
		}
	}
	resp, err := c.x.t.post(c.ctx, c.x.by, header, m.Raw)
	if err != nil {
		return err
	}
	c.source, c.status = newSource(resp, c.x.t.cfg.MaxMessage), statusIn(resp)
	c.latest.set(resp)
	return nil
}

// request returns the modern request of a round.
func (c *modernCall) request() *jsonrpc.Message {
	if c.task != nil {
		return c.s.taskRequest(c.id, mcpname.TasksGet, c.task)
	}
	old := c.x.m.Params
	var members []jsonrpc.Member
	for name, v := range old.Members() {
		switch name {
		case "_meta", "task", "inputResponses", "requestState":
		default:
			members = append(members, jsonrpc.Member{Name: name, JSON: v.Bytes})
		}
	}
	capabilities := c.s.capabilities
	if c.declares {
		capabilities = declaringTasks(capabilities)
	}
	meta := modernMeta(capabilities, c.s.info, c.s.level)
	for name, v := range old.Meta.Members() {
		if !isOwnKey(name) {
			meta = append(meta, jsonrpc.Member{Name: name, JSON: v.Bytes})
		}
	}
	members = append(members, jsonrpc.Member{Name: "_meta", JSON: jsonrpc.AppendObject(nil, meta...)})
	if c.rounds > 0 {
		members = append(members, jsonrpc.Member{Name: "inputResponses", JSON: c.answersOfClient()})
		if c.state.Present() {
			members = append(members, jsonrpc.Member{Name: "requestState", JSON: c.state.Bytes})
		}
	}
	m := jsonrpc.NewRequest(c.id, c.x.m.Method, jsonrpc.NewParams(members...))
	return &m
}

// answersOfClient returns the client's answers by the keys of the questions.
func (c *modernCall) answersOfClient() []byte {
	var answers []jsonrpc.Member
	for _, q := range c.asked {
		answers = append(answers, jsonrpc.Member{Name: q.key, JSON: q.params.Bytes})
	}
	return jsonrpc.AppendObject(nil, answers...)
}

// refused passes on an answer without a result. An error of the protocol is one in the message only: a
// legacy client would take the status for the end of its session.
func (c *modernCall) refused() *http.Response {
	defer func() { _ = c.Close() }()
	m, err := c.source.next()
	status := c.status
	if err == nil && m.Error.Present() && !status.concernsCredentials() && status.code < http.StatusInternalServerError {
		return answer(http.StatusOK, c.failed(m))
	}
	if status.code == http.StatusNotFound {
		status.code = http.StatusBadGateway
	}
	return status.response()
}

// next implements conversion.
func (c *modernCall) next() (text []byte, final bool, err error) {
	for {
		if text, now := c.due(); now {
			return text, false, nil
		}
		if text, err := c.anotherRound(); text != nil || err != nil {
			return text, true, err
		}
		m, err := c.source.next()
		if err != nil {
			return nil, false, err
		}
		switch {
		case passesToLegacy(m.Method):
			return m.Raw, false, nil
		case isAnswer(m, c.id):
			if text, err := c.ended(m); text != nil || err != nil {
				return text, true, err
			}
		}
	}
}

// due returns what the client must get before the server's next message.
func (c *modernCall) due() (text []byte, now bool) {
	switch {
	case len(c.questions) > 0:
		return c.nextQuestion(), true
	case c.task != nil && !c.opened:
		c.opened = true
		return nil, true
	default:
		return nil, false
	}
}

// passesToLegacy reports whether a legacy client gets the notifications of a request with a method.
func passesToLegacy(method string) bool {
	return method == mcpname.NotifyProgress || method == mcpname.NotifyMessage
}

// nextQuestion returns the request to the client with the next question.
func (c *modernCall) nextQuestion() []byte {
	q := c.questions[0]
	c.questions, c.asked = c.questions[1:], append(c.asked, q)
	if c.x.m.Method == mcpname.TasksResult {
		q.params.Bytes = related(q.params, c.task)
	}
	m := jsonrpc.NewRequest(q.id, q.method, jsonrpc.Params{Value: q.params})
	return m.Raw
}

// ended handles the server's answer of a round. It returns the answer for the client, or nothing if there
// are questions first.
func (c *modernCall) ended(m *jsonrpc.Message) ([]byte, error) {
	if m.Error.Present() {
		return c.failed(m), nil
	}
	if c.task != nil {
		return c.taskNews(m.Result)
	}
	kind, present := m.Result.Member("resultType").Text()
	switch {
	case kind == string(schema.TaskResult) && c.declares:
		return c.becameTask(m.Result)
	case !present || kind == "complete":
		return c.completed(m.Result), nil
	case kind != "input_required":
		return nil, brokenAnswer(errBrokenAnswer)
	}
	if c.rounds++; c.rounds > maxRounds || !c.x.takesEvents {
		return nil, &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server asks more than this client can answer"}
	}
	c.state = m.Result.Member("requestState").Clone()
	c.pause, c.pauseFor = true, roundPause
	return nil, c.askAll(m.Result.Member("inputRequests"))
}

// completed returns a result of the server for the client.
func (c *modernCall) completed(result jsonrpc.Value) []byte {
	c.x.t.tools.learn(c.x, result)
	legacy := legacyResult(c.x.m.Method, result)
	switch {
	case c.wants && c.x.by.Use != httpclient.Held: // the gate itself takes both
		return c.finish(legacy)
	case c.s.takesTasks && c.x.m.Method == mcpname.ToolsList:
		legacy = eachTool(jsonrpc.Value{Bytes: legacy}, func(tool jsonrpc.Value) []byte {
			return withMembers(tool, []jsonrpc.Member{{Name: "execution", JSON: []byte(`{"taskSupport":"optional"}`)}})
		})
	}
	return jsonrpc.AppendResult(nil, c.x.m.ID.Bytes, legacy)
}

// askAll makes the questions of the server ready for the client. A task repeats those that are open.
func (c *modernCall) askAll(asked jsonrpc.Value) error {
	for key, v := range asked.Members() {
		method, _ := v.Member("method").Text()
		if c.seen[key] {
			continue
		}
		if len(c.questions) == maxQuestions || !isQuestion(method) || !c.x.takesEvents {
			return brokenAnswer(errBrokenAnswer)
		}
		if c.task != nil {
			if c.seen == nil {
				c.seen = make(map[string]bool)
			}
			c.seen[key] = true
		}
		q := question{key: key, method: method, params: jsonrpc.Value{Bytes: objectOr(v.Member("params")).Clone().Bytes}, id: newID(), answer: make(chan *jsonrpc.Message, 1)}
		c.x.t.rounds.open(c, q)
		c.questions = append(c.questions, q)
	}
	return nil
}

func isQuestion(method string) bool {
	return method == mcpname.SamplingCreateMessage || method == mcpname.ElicitationCreate || method == mcpname.RootsList
}

// anotherRound waits for the client's answers and sends the request again, if the server wants that. It
// returns the answer to the client's request if there can be no other round.
func (c *modernCall) anotherRound() ([]byte, error) {
	if !c.pause {
		return nil, nil
	}
	if failure, err := c.waitForAnswers(); failure != "" || err != nil {
		return c.failure(failure), err
	}
	if c.task != nil && len(c.asked) > 0 {
		if err := c.answerTask(); err != nil {
			return nil, err
		}
	}
	_ = c.source.body.Close()
	if err := c.send(); err != nil {
		return nil, err
	}
	c.asked, c.pause = nil, false
	if c.answers() {
		return nil, nil
	}
	m, err := c.source.next()
	if err != nil || !m.Error.Present() {
		return nil, brokenAnswer(errBrokenAnswer)
	}
	return c.failed(m), nil
}

// failure returns an error as the answer to the client's request, or nothing if there is no reason.
func (c *modernCall) failure(reason string) []byte {
	if reason == "" {
		return nil
	}
	return jsonrpc.AppendErrorResponse(nil, c.x.m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: reason})
}

// waitForAnswers waits for the client's answers, or for the next round without questions. The failure
// says why there can be no other round.
func (c *modernCall) waitForAnswers() (failure string, err error) {
	if len(c.asked) == 0 {
		return "", sleep(c.ctx, c.pauseFor)
	}
	late := time.NewTimer(c.x.t.cfg.Patience)
	defer late.Stop()
	for i := range c.asked {
		select {
		case m := <-c.asked[i].answer:
			if m.Error.Present() {
				return "The client answered the server's question with an error", nil
			}
			c.asked[i].params = m.Result.Clone()
		case <-late.C:
			return "The server's question was not answered in time", nil
		case <-c.ctx.Done():
			return "", context.Cause(c.ctx)
		}
	}
	return "", nil
}

// Close implements conversion. A modern server takes the end of the stream for a cancellation.
func (c *modernCall) Close() error {
	c.leave()
	c.cancel()
	c.latest.close()
	c.cancelTask()
	return nil
}

// failed returns the server's error for the client.
func (c *modernCall) failed(m *jsonrpc.Message) []byte { return legacyError(m, c.x.m.ID.Bytes) }

// legacyError returns an error of a modern server for a legacy client. Codes of the modern protocol have
// no meaning for it.
func legacyError(m *jsonrpc.Message, id []byte) []byte {
	var p jsonrpc.Patch
	p.Replace(m.ID, id)
	code := m.Error.Member("code")
	if n, _ := code.Int(); n <= -32020 && n >= -32099 {
		p.Replace(code, []byte("-32600"))
	}
	return p.Apply(m.Raw)
}

// legacyResult returns a result of a modern server for a legacy client, which knows structured content
// and its schema only as objects.
func legacyResult(method string, result jsonrpc.Value) []byte {
	v := objectOr(result)
	without := []string{"resultType"}
	if cachedResult(method) {
		without = append(without, "ttlMs", "cacheScope")
	}
	if content := v.Member("structuredContent"); content.Present() && !content.IsObject() {
		without = append(without, "structuredContent")
	}
	v.Bytes = v.Without(without...)
	if method != mcpname.ToolsList {
		return v.Bytes
	}
	return eachTool(v, func(tool jsonrpc.Value) []byte {
		if kind, _ := tool.Member("outputSchema").Member("type").Text(); kind != "object" {
			return tool.Without("outputSchema")
		}
		return tool.Bytes
	})
}

// openRounds connects the messages of a legacy client with its open requests at a modern server. They
// belong to this replica.
type openRounds struct {
	mu        sync.Mutex
	questions map[string]openQuestion
	requests  map[string]*modernCall
	followers map[upstream.Session]map[*func()]bool
}

// An openQuestion is a question that a client has not answered.
type openQuestion struct {
	call   *modernCall
	answer chan<- *jsonrpc.Message
}

func newOpenRounds() *openRounds {
	return &openRounds{
		questions: make(map[string]openQuestion), requests: make(map[string]*modernCall),
		followers: make(map[upstream.Session]map[*func()]bool),
	}
}

func idIn(s upstream.Session, id []byte) string {
	return s.Principal + "\x00" + s.ID + "\x00" + jsonrpc.IDKey(id)
}

// begin lets the client cancel a request until the returned function is called.
func (o *openRounds) begin(c *modernCall) (end func()) {
	key := idIn(c.s.id, c.x.m.ID.Bytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests[key] = c
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.requests[key] == c {
			delete(o.requests, key)
		}
		maps.DeleteFunc(o.questions, func(_ string, q openQuestion) bool { return q.call == c })
	}
}

// cancel cancels a request for its client.
func (o *openRounds) cancel(s upstream.Session, id jsonrpc.Value) {
	o.mu.Lock()
	c := o.requests[idIn(s, id.Bytes)]
	o.mu.Unlock()
	if c != nil {
		c.cancel()
		c.latest.close()
	}
}

// open lets the client answer a question of a call, until the call ends.
func (o *openRounds) open(c *modernCall, q question) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.questions[idIn(c.s.id, q.id)] = openQuestion{call: c, answer: q.answer}
}

// answered gives a client's answer to the request that waits for it.
func (o *openRounds) answered(s upstream.Session, m *jsonrpc.Message) {
	key := idIn(s, m.ID.Bytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	if q, ok := o.questions[key]; ok {
		delete(o.questions, key)
		q.answer <- m
	}
}

// follow calls wake when the subscriptions of a session have changed, until leave is called.
func (o *openRounds) follow(s upstream.Session, wake func()) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.followers[s] == nil {
		o.followers[s] = make(map[*func()]bool)
	}
	o.followers[s][&wake] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.followers[s], &wake)
		if len(o.followers[s]) == 0 {
			delete(o.followers, s)
		}
	}
}

// wake calls the followers of a session.
func (o *openRounds) wake(s upstream.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for wake := range o.followers[s] {
		(*wake)()
	}
}
