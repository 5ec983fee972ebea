package translate

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// A legacyTask is a task of a legacy server, for a modern client. The client knows it by another id.
// The store has the session of the task at the server, so all replicas can ask for it.
type legacyTask struct {
	t      *Translator
	by     httpclient.Peer
	header http.Header // the credentials of the client, and the session
	own    string      // the id that the client knows
	id     []byte      // of the server, as JSON
	secret string      // seals the keys of the task's questions
}

// ownTask is the prefix of the ids of tasks that the translator makes.
const ownTask = "task-translated-"

// keepTask remembers the task with which the server has answered a call.
func (c *legacyCall) keepTask(id jsonrpc.Value) *legacyTask {
	k := c.taskWith(id)
	c.s.hasTasks.Store(true)
	record := []jsonrpc.Member{{Name: "task", JSON: k.id}, {Name: "secret", JSON: jsonrpc.AppendString(nil, k.secret)}}
	for _, name := range sessionHeaders {
		record = append(record, jsonrpc.Member{Name: name, JSON: jsonrpc.AppendString(nil, k.header.Get(name))})
	}
	c.x.t.cfg.Sessions.Begin(c.x.http.Context(), c.x.sessionID(k.own), jsonrpc.AppendObject(nil, record...))
	return k
}

func (c *legacyCall) taskWith(id jsonrpc.Value) *legacyTask {
	return &legacyTask{t: c.x.t, by: c.x.plain(), header: c.x.headersIn(c.s), own: ownTask + rand.Text(), id: id.Clone().Bytes, secret: rand.Text()}
}

// findTask returns a task of the client, or nil if it has none with this id.
func (x *exchange) findTask(id string) (*legacyTask, error) {
	if !strings.HasPrefix(id, ownTask) {
		return nil, nil
	}
	name := x.sessionID(id)
	value, err := x.t.cfg.Sessions.Value(x.http.Context(), name)
	if err != nil || value == nil {
		return nil, err
	}
	if _, err := x.t.cfg.Sessions.Owned(x.http.Context(), name); err != nil { // keeps the record
		return nil, err
	}
	record := jsonrpc.Value{Bytes: value}
	k := &legacyTask{t: x.t, by: x.plain(), header: x.credentials(), own: id, id: record.Member("task").Bytes}
	k.secret, _ = record.Member("secret").Text()
	for _, name := range sessionHeaders {
		if text, _ := record.Member(name).Text(); text != "" {
			k.header.Set(name, text)
		}
	}
	return k, nil
}

// errTaskGone reports that the server has ended the session of a task.
var errTaskGone = errors.New("the server has ended the session of the task")

// ask makes a request about the task.
func (k *legacyTask) ask(ctx context.Context, method string) (*jsonrpc.Message, error) {
	ctx, stop := own(ctx, sessionTimeout)
	defer stop()
	m := jsonrpc.NewRequest(newID(), method, jsonrpc.NewParams(jsonrpc.Member{Name: "taskId", JSON: k.id}))
	resp, err := k.t.post(ctx, k.by, k.header, m.Raw)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotFound {
		return nil, errTaskGone
	}
	got, err := newSource(resp, k.t.cfg.MaxMessage).response(m.ID)
	if err != nil && resp.StatusCode != http.StatusOK {
		err = &refusedError{statusIn(resp)}
	}
	return got, err
}

// aboutTask serves a request of a modern client about a task of a legacy server.
func (x *exchange) aboutTask() (*http.Response, error) {
	id, _ := x.m.Params.TaskID.Text()
	k, err := x.findTask(id)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return x.answerTaskGone("Task not found"), nil
	}
	var text []byte
	switch x.m.Method {
	case mcpname.TasksGet:
		text, err = k.get(x)
	case mcpname.TasksUpdate:
		text, err = k.update(x)
	case mcpname.TasksCancel:
		text, err = k.cancel(x)
	default:
		return x.answerUnknown(http.StatusNotFound), nil
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refused.status.response(), nil
	}
	switch {
	case errors.Is(err, errTaskGone):
		return x.answerTaskGone("The server has ended the session of this task. The call may have run"), nil
	case err != nil:
		return nil, brokenAnswer(err)
	}
	return answer(http.StatusOK, text), nil
}

// answerTaskGone answers that there is no such task.
func (x *exchange) answerTaskGone(why string) *http.Response {
	return answer(http.StatusOK, jsonrpc.AppendErrorResponse(nil, x.m.ID.Bytes, &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidParams, Message: why, Data: []byte(`{"error_type":"` + mcp.UpstreamTaskGone + `"}`),
	}))
}

// get answers tasks/get.
func (k *legacyTask) get(x *exchange) ([]byte, error) {
	state, err := k.state(x.http.Context())
	if err != nil {
		return nil, err
	}
	if state.failure != nil {
		return modernError(state.failure, x.m.ID.Bytes), nil
	}
	members := append([]jsonrpc.Member{{Name: "resultType", JSON: []byte(`"complete"`)}}, state.members...)
	return jsonrpc.AppendResult(nil, x.m.ID.Bytes, jsonrpc.AppendObject(nil, members...)), nil
}

// A taskState is what a modern client learns about a task.
type taskState struct {
	members []jsonrpc.Member // of the task
	ended   bool
	pause   time.Duration    // before the next request for it
	failure *jsonrpc.Message // instead of the rest, the error of the server
}

// state asks for the task and, as a modern client expects it, its result or its questions.
func (k *legacyTask) state(ctx context.Context) (taskState, error) {
	m, err := k.ask(ctx, mcpname.TasksGet)
	if err != nil {
		return taskState{}, err
	}
	if m.Error.Present() {
		return taskState{failure: m}, nil
	}
	status, _ := m.Result.Member("status").Text()
	var more []jsonrpc.Member
	switch schema.Status(status) {
	case schema.Completed, schema.Failed:
		status, more, err = k.outcome(ctx)
	case schema.InputRequired:
		if questions := k.t.attended.questions(ctx, k); questions != nil {
			more = []jsonrpc.Member{{Name: "inputRequests", JSON: jsonrpc.AppendObject(nil, questions...)}}
		} else {
			status = string(schema.Working) // nothing can be answered
		}
	case schema.Working, schema.Cancelled:
	default:
		err = errBrokenAnswer
	}
	if err != nil {
		return taskState{}, err
	}
	return taskState{
		members: append(taskMembers(mcp.Modern, m.Result, jsonrpc.AppendString(nil, k.own), schema.Status(status)), more...),
		ended:   schema.Status(status).Terminal(), pause: pollPause(m.Result.Member("pollInterval")),
	}, nil
}

// outcome returns the modern status of a task that has ended, and the member with its outcome. A tool
// that reports an error has completed.
func (k *legacyTask) outcome(ctx context.Context) (status string, more []jsonrpc.Member, err error) {
	m, err := k.ask(ctx, mcpname.TasksResult)
	switch {
	case err != nil:
		return "", nil, err
	case m.Error.Present():
		return string(schema.Failed), []jsonrpc.Member{{Name: "error", JSON: m.Error.Bytes}}, nil
	default:
		return string(schema.Completed), []jsonrpc.Member{{Name: "result", JSON: withoutTask(m.Result)}}, nil
	}
}

// withoutTask returns a result or params without the metadata that names a task.
func withoutTask(of jsonrpc.Value) []byte {
	v := objectOr(of)
	meta := objectOr(v.Member("_meta"))
	if !meta.Member(mcpname.MetaRelatedTask).Present() {
		return v.Bytes
	}
	rest := meta.Without(mcpname.MetaRelatedTask)
	if (jsonrpc.Value{Bytes: rest}).IsEmptyObject() {
		return v.Without("_meta")
	}
	return withMembers(v, []jsonrpc.Member{{Name: "_meta", JSON: rest}})
}

// update passes a client's answers on to the server. Any replica can do so: their keys have the ids of
// the server's requests, sealed with a secret of the task. Other clients may share the session, and
// have questions of their own.
func (k *legacyTask) update(x *exchange) ([]byte, error) {
	passed := 0
	for key, given := range x.m.Params.Member("inputResponses").Members() {
		id, ok := k.questionID(key)
		if !ok {
			continue
		}
		if passed++; passed > maxQuestions {
			break
		}
		resp, err := k.t.post(x.http.Context(), k.by, k.header, jsonrpc.AppendResult(nil, id, given.Bytes))
		if err != nil {
			return nil, err
		}
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusNotFound:
			return nil, errTaskGone
		case resp.StatusCode >= http.StatusBadRequest:
			return nil, &refusedError{statusIn(resp)}
		}
		k.t.attended.answered(k, key)
	}
	return jsonrpc.AppendResult(nil, x.m.ID.Bytes, []byte(`{"resultType":"complete"}`)), nil
}

// questionKey returns the key under which a client gets the server's request with an id.
func (k *legacyTask) questionKey(id []byte) string {
	seal := hmac.New(sha256.New, []byte(k.secret))
	_, _ = seal.Write(id)
	return "q-" + base64.RawURLEncoding.EncodeToString(id) + "." + base64.RawURLEncoding.EncodeToString(seal.Sum(nil)[:16])
}

// questionID returns the id in such a key.
func (k *legacyTask) questionID(key string) (id []byte, ok bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(key, "q-"), ".")
	id, err := base64.RawURLEncoding.DecodeString(text)
	return id, err == nil && k.secret != "" && hmac.Equal([]byte(key), []byte(k.questionKey(id)))
}

// cancel answers tasks/cancel. A task that has ended needs no cancelling.
func (k *legacyTask) cancel(x *exchange) ([]byte, error) {
	m, err := k.ask(x.http.Context(), mcpname.TasksCancel)
	if err != nil {
		return nil, err
	}
	if m.Error.Present() {
		now, err := k.ask(x.http.Context(), mcpname.TasksGet)
		if err != nil {
			return nil, err
		}
		status, _ := now.Result.Member("status").Text()
		if !schema.Status(status).Terminal() {
			return modernError(m, x.m.ID.Bytes), nil
		}
	}
	return jsonrpc.AppendResult(nil, x.m.ID.Bytes, []byte(`{"resultType":"complete"}`)), nil
}

// taskMembers returns a task of one era for clients of the other.
func taskMembers(to mcp.Era, t jsonrpc.Value, id []byte, status schema.Status) []jsonrpc.Member {
	old, renamed := []string{"ttl", "pollInterval"}, []string{"ttlMs", "pollIntervalMs"}
	if to == mcp.Legacy {
		old, renamed = renamed, old
	}
	members := []jsonrpc.Member{{Name: "taskId", JSON: id}, {Name: "status", JSON: jsonrpc.AppendString(nil, string(status))}}
	for _, name := range []string{"statusMessage", "createdAt", "lastUpdatedAt"} {
		if v := t.Member(name); v.IsString() {
			members = append(members, jsonrpc.Member{Name: name, JSON: v.Bytes})
		}
	}
	ttl := []byte("null")
	if ms, ok := t.Member(old[0]).Int(); ok && ms >= 0 {
		ttl = strconv.AppendInt(nil, min(ms, math.MaxInt32), 10) // timers of clients take no more
	}
	members = append(members, jsonrpc.Member{Name: renamed[0], JSON: ttl})
	if v := t.Member(old[1]); v.Present() {
		members = append(members, jsonrpc.Member{Name: renamed[1], JSON: strconv.AppendInt(nil, pollPause(v).Milliseconds(), 10)})
	}
	return members
}

const minPollPause = 50 * time.Millisecond

// pollPause returns the time before the next request for a task.
func pollPause(interval jsonrpc.Value) time.Duration {
	ms, ok := interval.Int()
	if !ok {
		return time.Second
	}
	return min(max(time.Duration(min(ms, 1<<20))*time.Millisecond, minPollPause), time.Minute)
}

// sleep waits for d, or returns the cause why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attended has the questions of tasks at a legacy server. It reads them in the answers to tasks/result,
// so they belong to this replica.
type attended struct {
	patience time.Duration
	mu       sync.Mutex
	byTask   map[string]*attendance // by the record of the task
}

// An attendance has the open questions of one task.
type attendance struct {
	owner   string
	open    []jsonrpc.Member // by key
	reading bool
	changed chan struct{} // closed when open or reading changes
	expire  *time.Timer
	ctx     context.Context // ends when nobody has asked for long
}

func newAttended(patience time.Duration) *attended {
	return &attended{patience: patience, byTask: make(map[string]*attendance)}
}

// questionWait is how long a request for a task waits for the questions that the server has announced.
const questionWait = 5 * time.Second

// questions returns the open questions of a task, by their keys.
func (a *attended) questions(ctx context.Context, k *legacyTask) []jsonrpc.Member {
	late := time.NewTimer(questionWait)
	defer late.Stop()
	a.attend(k)
	for {
		open, changed := a.look(k)
		if open != nil || changed == nil {
			return open
		}
		select {
		case <-changed:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// attend asks the server for the questions of a task, unless some are open.
func (a *attended) attend(k *legacyTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.byTask[k.own]
	if at == nil {
		if len(a.byTask) >= maxParked || a.count(k.by.Owner) >= maxParkedOfOwner {
			return
		}
		at = &attendance{owner: k.by.Owner, changed: make(chan struct{})}
		var stop context.CancelFunc
		at.ctx, stop = context.WithCancel(k.t.ctx)
		at.expire = time.AfterFunc(a.patience, func() { stop(); a.drop(k, at) })
		a.byTask[k.own] = at
	}
	at.expire.Reset(a.patience)
	if !at.reading && len(at.open) == 0 {
		at.reading = true
		k.t.following.Go(func() { a.read(k, at) })
	}
}

// count returns how many tasks of an owner are attended. The caller holds the lock.
func (a *attended) count(owner string) (n int) {
	for _, at := range a.byTask {
		if at.owner == owner {
			n++
		}
	}
	return n
}

// look returns the open questions of a task or, if there are none, a channel that is closed when that
// may have changed. It is nil if the server is not asked.
func (a *attended) look(k *legacyTask) (open []jsonrpc.Member, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.byTask[k.own]
	switch {
	case at == nil:
		return nil, nil
	case len(at.open) > 0:
		return slices.Clone(at.open), nil
	case !at.reading:
		return nil, nil
	default:
		return nil, at.changed
	}
}

func (a *attended) drop(k *legacyTask, at *attendance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byTask[k.own] == at {
		delete(a.byTask, k.own)
	}
}

// change calls f, and wakes those who wait for questions.
func (a *attended) change(at *attendance, f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(at.changed)
	at.changed = make(chan struct{})
}

// answered removes a question that the client has answered.
func (a *attended) answered(k *legacyTask, key string) {
	a.mu.Lock()
	at := a.byTask[k.own]
	a.mu.Unlock()
	if at != nil {
		a.change(at, func() {
			at.open = slices.DeleteFunc(at.open, func(m jsonrpc.Member) bool { return m.Name == key })
		})
	}
}

// read reads the questions of a task until it ends.
func (a *attended) read(k *legacyTask, at *attendance) {
	defer a.change(at, func() { at.reading = false })
	by := k.by
	by.Use = httpclient.Stream
	m := jsonrpc.NewRequest(newID(), mcpname.TasksResult, jsonrpc.NewParams(jsonrpc.Member{Name: "taskId", JSON: k.id}))
	resp, err := k.t.post(at.ctx, by, k.header, m.Raw)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	source := newSource(resp, k.t.cfg.MaxMessage)
	for {
		got, err := source.next()
		if err != nil || got.Kind == jsonrpc.Response {
			return
		}
		if got.Kind == jsonrpc.Request && !a.ask(k, at, got) {
			return
		}
	}
}

// ask keeps a question of the server for the client. It returns false if the server cannot be reached.
func (a *attended) ask(k *legacyTask, at *attendance, m *jsonrpc.Message) bool {
	kept := false
	if isQuestion(m.Method) {
		question := jsonrpc.Member{Name: k.questionKey(m.ID.Bytes), JSON: questionFor(m)}
		a.change(at, func() {
			if kept = len(at.open) < maxQuestions; kept {
				at.open = append(at.open, question)
			}
		})
	}
	if kept {
		return true
	}
	reply := jsonrpc.AppendResult(nil, m.ID.Bytes, []byte("{}"))
	if m.Method != mcpname.Ping {
		reply = jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "The client cannot be asked this"})
	}
	resp, err := k.t.post(at.ctx, k.by, k.header, reply)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err == nil
}

// questionFor returns a question of a legacy server for a modern client.
func questionFor(m *jsonrpc.Message) []byte {
	params := jsonrpc.Value{Bytes: objectOr(m.Params.Value).Without("elicitationId", "task")}
	return jsonrpc.AppendObject(nil,
		jsonrpc.Member{Name: "method", JSON: jsonrpc.AppendString(nil, m.Method)},
		jsonrpc.Member{Name: "params", JSON: withoutTask(params)})
}

// A taskSupport remembers which tools of a session the server runs as tasks.
type taskSupport struct {
	mu     sync.Mutex
	byTool map[string]string // task support that is not forbidden; nil if not known
	listed time.Time
}

// supportFor is how long the list of tools is trusted for a tool that is not in it.
const supportFor = time.Minute

// forget makes the next call list the tools.
func (ts *taskSupport) forget() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.byTool = nil
}

// taskSupport returns the task support of the tool that m calls.
func (s *session) taskSupport(ctx context.Context, m *jsonrpc.Message) (string, error) {
	name, ok := m.Params.Name.Text()
	if !ok || m.Method != mcpname.ToolsCall || !s.hasTaskTools() {
		return "", nil
	}
	s.support.mu.Lock()
	defer s.support.mu.Unlock()
	if support := s.support.byTool[name]; s.support.byTool != nil && (support != "" || time.Since(s.support.listed) < supportFor) {
		return support, nil
	}
	found, err := s.listSupport(ctx)
	if err != nil {
		return "", err
	}
	s.support.byTool, s.support.listed = found, time.Now()
	return found[name], nil
}

// listSupport lists the tools of the server.
func (s *session) listSupport(ctx context.Context) (map[string]string, error) {
	found := make(map[string]string)
	var params []jsonrpc.Member
	for range maxToolPages {
		result, err := s.ask(ctx, mcpname.ToolsList, params...)
		if err != nil {
			return nil, err
		}
		for tool := range result.Member("tools").Elements() {
			name, _ := tool.Member("name").Text()
			support, _ := tool.Member("execution").Member("taskSupport").Text()
			if len(found) < maxOwnerTools && (support == "optional" || support == "required") {
				found[name] = support
			}
		}
		next := result.Member("nextCursor")
		if !next.IsString() {
			break
		}
		params = []jsonrpc.Member{{Name: "cursor", JSON: next.Clone().Bytes}}
	}
	return found, nil
}

// wantsTask reports whether a modern request declares the extension for tasks.
func (x *exchange) wantsTask() bool {
	return x.m.Params.Meta.Member(mcpname.MetaClientCapabilities).Member("extensions").Member(mcpname.ExtensionTasks).IsObject()
}

// watch tells a listener about the steps of a task. Servers need not report them, so it asks.
func (l *listener) watch(k *legacyTask) {
	ctx, stop := context.WithCancel(l.ctx)
	defer stop()
	defer context.AfterFunc(k.t.ctx, stop)()
	last := ""
	for {
		state, err := k.state(ctx)
		if errors.Is(err, errTaskGone) || err == nil && state.failure != nil || ctx.Err() != nil {
			return
		}
		if now := string(jsonrpc.AppendObject(nil, state.members...)); err == nil && now != last {
			last = now
			l.send(mcpname.NotifyTasks, state.members...)
		}
		if err != nil {
			state.pause = time.Second
		}
		if state.ended || sleep(ctx, state.pause) != nil {
			return
		}
	}
}

// tasks returns those of the named tasks that the client has.
func (x *exchange) tasks(ids jsonrpc.Value) (found []*legacyTask) {
	asked := 0
	for v := range ids.Elements() {
		if asked++; asked > maxURIs {
			break
		}
		id, _ := v.Text()
		if slices.ContainsFunc(found, func(k *legacyTask) bool { return k.own == id }) {
			continue
		}
		if k, err := x.findTask(id); err == nil && k != nil {
			found = append(found, k)
		}
	}
	return found
}

// sessionHeaders are the headers that name a session with a server.
var sessionHeaders = []string{"Mcp-Session-Id", "Mcp-Protocol-Version"}
