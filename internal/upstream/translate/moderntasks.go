package translate

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

const (
	// maxTasks is how many tasks a session has. The oldest are forgotten.
	maxTasks  = 100
	maxTaskID = 256
	taskPage  = 20
)

// aboutModernTask serves a request of a legacy client about tasks of a modern server. The session has the
// ids of its tasks, which are those of the server.
func (x *exchange) aboutModernTask(s *legacySession) (*http.Response, error) {
	if x.m.Method == mcpname.TasksList {
		return x.listTasks(s)
	}
	id, _ := x.m.Params.TaskID.Text()
	if f := x.t.finished.find(s.id, id); f != nil {
		return x.aboutFinished(f)
	}
	if !slices.Contains(s.tasks, id) {
		return x.answerTaskGone("Task not found"), nil
	}
	var text []byte
	var err error
	switch x.m.Method {
	case mcpname.TasksGet:
		text, err = x.getModernTask(s, id)
	case mcpname.TasksCancel:
		text, err = x.cancelModernTask(s, id)
	case mcpname.TasksResult:
		if slices.Contains(s.cancelled, id) {
			return x.answerError(jsonrpc.CodeInvalidRequest, "The task was cancelled"), nil
		}
		return x.ask(&modernCall{x: x, s: s, declares: true, task: x.m.Params.TaskID.Bytes})
	default:
		return x.answerUnknown(http.StatusOK), nil
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refused.status.response(), nil
	}
	if err != nil {
		return nil, brokenAnswer(err)
	}
	return answer(http.StatusOK, text), nil
}

func (x *exchange) answerError(code int, message string) *http.Response {
	return answer(http.StatusOK, jsonrpc.AppendErrorResponse(nil, x.m.ID.Bytes, &jsonrpc.Error{Code: code, Message: message}))
}

// askAboutTask makes a request about a task of a modern server.
func (x *exchange) askAboutTask(ctx context.Context, s *legacySession, method string, id []byte, more ...jsonrpc.Member) (*jsonrpc.Message, error) {
	ctx, stop := own(ctx, sessionTimeout)
	defer stop()
	m := s.taskRequest(newID(), method, id, more...)
	resp, err := x.t.post(ctx, x.plain(), x.modernHeader(m), m.Raw)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := newSource(resp, x.t.cfg.MaxMessage).response(m.ID)
	if err != nil && resp.StatusCode != http.StatusOK {
		err = &refusedError{statusIn(resp)}
	}
	return got, err
}

// taskRequest returns a request about a task.
func (s *legacySession) taskRequest(requestID []byte, method string, id []byte, more ...jsonrpc.Member) *jsonrpc.Message {
	meta := jsonrpc.AppendObject(nil, modernMeta(declaringTasks(s.capabilities), s.info, "")...)
	members := append([]jsonrpc.Member{{Name: "taskId", JSON: id}, {Name: "_meta", JSON: meta}}, more...)
	m := jsonrpc.NewRequest(requestID, method, jsonrpc.NewParams(members...))
	return &m
}

// declaringTasks returns the capabilities of a client with the extension for tasks added.
func declaringTasks(capabilities []byte) []byte {
	return withMembers(jsonrpc.Value{Bytes: capabilities}, []jsonrpc.Member{{Name: "extensions", JSON: []byte(tasksExtension)}})
}

// getModernTask answers tasks/get.
func (x *exchange) getModernTask(s *legacySession, id string) ([]byte, error) {
	m, err := x.askAboutTask(x.http.Context(), s, mcpname.TasksGet, jsonrpc.AppendString(nil, id))
	if err != nil {
		return nil, err
	}
	if m.Error.Present() {
		return legacyError(m, x.m.ID.Bytes), nil
	}
	if !legacyStatus(m.Result).Valid() {
		return nil, errBrokenAnswer
	}
	return jsonrpc.AppendResult(nil, x.m.ID.Bytes, jsonrpc.AppendObject(nil, s.legacyTask(m.Result, id)...)), nil
}

// legacyTask returns a task of a modern server for the client. A task that it has cancelled stays so.
func (s *legacySession) legacyTask(t jsonrpc.Value, id string) []jsonrpc.Member {
	status := legacyStatus(t)
	if slices.Contains(s.cancelled, id) {
		status = schema.Cancelled
	}
	members := taskMembers(mcp.Legacy, t, jsonrpc.AppendString(nil, id), status)
	if status == schema.Failed && !t.Member("statusMessage").IsString() { // legacy clients look nowhere else
		if reason := failureOf(t); reason.IsString() {
			members = append(members, jsonrpc.Member{Name: "statusMessage", JSON: reason.Bytes})
		}
	}
	return members
}

// legacyStatus returns the legacy status of a modern task. A tool that reports an error has failed.
func legacyStatus(t jsonrpc.Value) schema.Status {
	status, _ := t.Member("status").Text()
	if status == string(schema.Completed) && t.Member("result").Member("isError").IsTrue() {
		return schema.Failed
	}
	return schema.Status(status)
}

// failureOf returns the text of the error with which a task has ended.
func failureOf(t jsonrpc.Value) jsonrpc.Value {
	for content := range t.Member("result").Member("content").Elements() {
		return content.Member("text")
	}
	return t.Member("error").Member("message")
}

// cancelModernTask answers tasks/cancel. The client sees the task as cancelled from then on.
func (x *exchange) cancelModernTask(s *legacySession, id string) ([]byte, error) {
	quoted := jsonrpc.AppendString(nil, id)
	m, err := x.askAboutTask(x.http.Context(), s, mcpname.TasksGet, quoted)
	if err != nil {
		return nil, err
	}
	if m.Error.Present() {
		return legacyError(m, x.m.ID.Bytes), nil
	}
	if status := legacyStatus(m.Result); status.Terminal() || slices.Contains(s.cancelled, id) {
		return jsonrpc.AppendErrorResponse(nil, x.m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Cannot cancel task: it has ended"}), nil
	}
	now, err := x.askAboutTask(x.http.Context(), s, mcpname.TasksCancel, quoted)
	if err != nil {
		return nil, err
	}
	if now.Error.Present() {
		return legacyError(now, x.m.ID.Bytes), nil
	}
	if _, err := x.change(s.id, func(s *legacySession) string {
		s.cancelled = append(s.cancelled, id)
		return ""
	}); err != nil {
		return nil, err
	}
	task := taskMembers(mcp.Legacy, m.Result, quoted, schema.Cancelled)
	return jsonrpc.AppendResult(nil, x.m.ID.Bytes, jsonrpc.AppendObject(nil, task...)), nil
}

// listTasks answers tasks/list. The server has no such list.
func (x *exchange) listTasks(s *legacySession) (*http.Response, error) {
	at := 0
	var tasks [][]byte
	if cursor := x.m.Params.Member("cursor"); cursor.Present() {
		last, _ := cursor.Text()
		if at = slices.Index(s.tasks, last) + 1; at == 0 {
			return x.answerInvalid("there is no such cursor"), nil
		}
	} else {
		tasks = x.t.finished.list(s.id)
	}
	page := s.tasks[at:min(at+taskPage, len(s.tasks))]
	for _, id := range page {
		m, err := x.askAboutTask(x.http.Context(), s, mcpname.TasksGet, jsonrpc.AppendString(nil, id))
		if err == nil && legacyStatus(m.Result).Valid() {
			tasks = append(tasks, jsonrpc.AppendObject(nil, s.legacyTask(m.Result, id)...))
		}
	}
	result := []jsonrpc.Member{{Name: "tasks", JSON: jsonrpc.Array(tasks)}}
	if at+taskPage < len(s.tasks) {
		result = append(result, jsonrpc.Member{Name: "nextCursor", JSON: jsonrpc.AppendString(nil, page[len(page)-1])})
	}
	return x.answerResult(jsonrpc.AppendObject(nil, result...)), nil
}

// becameTask handles a task with which the server has answered a call. It returns the answer for a client
// that has asked for a task. Otherwise the client waits for its end.
func (c *modernCall) becameTask(task jsonrpc.Value) ([]byte, error) {
	id, ok := task.Member("taskId").Text()
	if !ok || id == "" || len(id) > maxTaskID || !legacyStatus(task).Valid() {
		return nil, brokenAnswer(errBrokenAnswer)
	}
	quoted := jsonrpc.AppendString(nil, id)
	if !c.wants || !c.remember(id) {
		c.task, c.pause, c.pauseFor = quoted, true, pollPause(task.Member("pollIntervalMs"))
		c.absorbed.Store(&quoted)
		return nil, nil
	}
	return c.created(taskMembers(mcp.Legacy, task, quoted, legacyStatus(task))), nil
}

// remember adds a task to the session. If that fails, its client could not ask for it, but the call runs.
func (c *modernCall) remember(id string) bool {
	refusal, err := c.x.change(c.s.id, func(s *legacySession) string {
		s.tasks = append(s.tasks, id)
		if excess := len(s.tasks) - maxTasks; excess > 0 {
			s.tasks = s.tasks[excess:]
		}
		s.cancelled = slices.DeleteFunc(s.cancelled, func(id string) bool { return !slices.Contains(s.tasks, id) })
		return ""
	})
	return refusal == "" && err == nil
}

// created returns the answer to a call with a new task.
func (c *modernCall) created(task []jsonrpc.Member) []byte {
	result := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "task", JSON: jsonrpc.AppendObject(nil, task...)})
	return jsonrpc.AppendResult(nil, c.x.m.ID.Bytes, result)
}

// taskNews handles the server's answer about the task for which the client waits. It returns the answer
// for the client once the task has ended.
func (c *modernCall) taskNews(t jsonrpc.Value) ([]byte, error) {
	status, _ := t.Member("status").Text()
	if schema.Status(status).Terminal() {
		c.absorbed.Store(nil)
	}
	c.pause, c.pauseFor = true, pollPause(t.Member("pollIntervalMs"))
	switch schema.Status(status) {
	case schema.Working:
		return nil, nil
	case schema.InputRequired:
		return nil, c.askAll(t.Member("inputRequests"))
	case schema.Completed:
		result := legacyResult(mcpname.ToolsCall, t.Member("result"))
		if c.x.m.Method == mcpname.TasksResult {
			result = related(jsonrpc.Value{Bytes: result}, c.task)
		}
		return jsonrpc.AppendResult(nil, c.x.m.ID.Bytes, result), nil
	case schema.Failed:
		failed := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "jsonrpc", JSON: []byte(`"2.0"`)}, jsonrpc.Member{Name: "id", JSON: c.id}, jsonrpc.Member{Name: "error", JSON: objectOr(t.Member("error")).Bytes})
		m, err := jsonrpc.ParseMessage(failed, jsonrpc.Limits{})
		if err != nil {
			return nil, brokenAnswer(err)
		}
		return legacyError(m, c.x.m.ID.Bytes), nil
	case schema.Cancelled:
		return c.failure("The task was cancelled"), nil
	default:
		return nil, brokenAnswer(errBrokenAnswer)
	}
}

// related returns a result or params with the metadata that names a task.
func related(to jsonrpc.Value, task []byte) []byte {
	v := objectOr(to)
	meta := withMembers(objectOr(v.Member("_meta")), []jsonrpc.Member{
		{Name: mcpname.MetaRelatedTask, JSON: jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "taskId", JSON: task})},
	})
	return withMembers(v, []jsonrpc.Member{{Name: "_meta", JSON: meta}})
}

// answerTask sends the client's answers to the task.
func (c *modernCall) answerTask() error {
	m, err := c.x.askAboutTask(c.ctx, c.s, mcpname.TasksUpdate, c.task, jsonrpc.Member{Name: "inputResponses", JSON: c.answersOfClient()})
	if err != nil {
		return err
	}
	if m.Error.Present() {
		return brokenAnswer(errBrokenAnswer)
	}
	return nil
}

// cancelTask cancels the task of a call whose client has left.
func (c *modernCall) cancelTask() {
	if id := c.absorbed.Swap(nil); id != nil {
		_, _ = c.x.askAboutTask(c.x.t.ctx, c.s, mcpname.TasksCancel, *id)
	}
}

// demandsTasks reports whether a server refuses a call because the client does not support tasks. Such a
// call did not run.
func demandsTasks(m *jsonrpc.Message) bool {
	code, _ := m.Error.Member("code").Int()
	return code == mcp.CodeMissingCapability &&
		m.Error.Member("data").Member("requiredCapabilities").Member("extensions").Member(mcpname.ExtensionTasks).Present()
}

// finishedCalls has the results of calls that clients made as tasks, but which the server has answered
// at once. They belong to this replica.
type finishedCalls struct {
	patience time.Duration
	mu       sync.Mutex
	byTask   map[finishedKey]*finishedCall
	size     int
	ofOwner  map[string]int // the size of what they have
}

type finishedKey struct {
	session upstream.Session
	task    string
}

// A finishedCall is a task with its outcome.
type finishedCall struct {
	owner  string
	id     []byte // as JSON
	at     string // when the task was created
	ttl    time.Duration
	result []byte
}

const (
	maxFinished        = 64 << 20 // bytes
	maxFinishedOfOwner = maxFinished / 4
	finishedOverhead   = 4 << 10 // of each, besides its result
)

func newFinishedCalls(patience time.Duration) *finishedCalls {
	return &finishedCalls{patience: patience, byTask: make(map[finishedKey]*finishedCall), ofOwner: make(map[string]int)}
}

// finish returns the answer to a call that the client made as a task, and keeps its result. Without space
// for it, the answer is the result: the call has run.
func (c *modernCall) finish(result []byte) []byte {
	id := ownTask + rand.Text()
	f := &finishedCall{owner: c.x.by.Owner, id: jsonrpc.AppendString(nil, id), at: time.Now().UTC().Format(time.RFC3339), ttl: c.x.t.cfg.Patience, result: bytes.Clone(result)}
	if !c.x.t.finished.put(finishedKey{c.s.id, id}, f) {
		return jsonrpc.AppendResult(nil, c.x.m.ID.Bytes, result)
	}
	return c.created(f.members(schema.Working))
}

// put keeps f for a while. It returns false if there are too many.
func (fc *finishedCalls) put(key finishedKey, f *finishedCall) bool {
	fc.mu.Lock()
	defer fc.mu.Unlock()
	size := len(f.result) + finishedOverhead
	if fc.size+size > maxFinished || fc.ofOwner[f.owner]+size > maxFinishedOfOwner {
		return false
	}
	fc.byTask[key] = f
	fc.size += size
	fc.ofOwner[f.owner] += size
	time.AfterFunc(fc.patience, func() {
		fc.mu.Lock()
		defer fc.mu.Unlock()
		delete(fc.byTask, key)
		fc.size -= size
		if fc.ofOwner[f.owner] -= size; fc.ofOwner[f.owner] == 0 {
			delete(fc.ofOwner, f.owner)
		}
	})
	return true
}

func (fc *finishedCalls) find(s upstream.Session, id string) *finishedCall {
	fc.mu.Lock()
	defer fc.mu.Unlock()
	return fc.byTask[finishedKey{s, id}]
}

// list returns the tasks of a session.
func (fc *finishedCalls) list(s upstream.Session) (tasks [][]byte) {
	fc.mu.Lock()
	defer fc.mu.Unlock()
	for key, f := range fc.byTask {
		if key.session == s {
			tasks = append(tasks, jsonrpc.AppendObject(nil, f.members(f.status())...))
		}
	}
	slices.SortFunc(tasks, bytes.Compare)
	return tasks
}

func (f *finishedCall) status() schema.Status {
	if (jsonrpc.Value{Bytes: f.result}).Member("isError").IsTrue() {
		return schema.Failed
	}
	return schema.Completed
}

// members returns the task with a status.
func (f *finishedCall) members(status schema.Status) []jsonrpc.Member {
	at := jsonrpc.AppendString(nil, f.at)
	t := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "createdAt", JSON: at}, jsonrpc.Member{Name: "lastUpdatedAt", JSON: at},
		jsonrpc.Member{Name: "ttlMs", JSON: strconv.AppendInt(nil, f.ttl.Milliseconds(), 10)},
		jsonrpc.Member{Name: "pollIntervalMs", JSON: []byte("100")})
	return taskMembers(mcp.Legacy, jsonrpc.Value{Bytes: t}, f.id, status)
}

// aboutFinished serves a request about such a task.
func (x *exchange) aboutFinished(f *finishedCall) (*http.Response, error) {
	switch x.m.Method {
	case mcpname.TasksGet:
		return x.answerResult(jsonrpc.AppendObject(nil, f.members(f.status())...)), nil
	case mcpname.TasksResult:
		return x.answerResult(related(jsonrpc.Value{Bytes: f.result}, f.id)), nil
	case mcpname.TasksCancel:
		return x.answerInvalid("the task has ended"), nil
	default:
		return x.answerUnknown(http.StatusOK), nil
	}
}
