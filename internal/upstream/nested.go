package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// takesTask reports whether a call is made as a task of the upstream's. What
// the upstream says of the tool, or of itself, is asked for if nobody has done
// that yet. If it cannot be told whether the tool requires a task the error says
// so, and the call is not made.
func (c *Caller) takesTask(ctx context.Context, t task.Task, m *jsonrpc.Message) (bool, error) {
	if m.Method != "tools/call" {
		return false, nil
	}
	facts := c.gate.About(c.from)
	if wire.EraOf(m) == wire.Modern {
		return facts.Tasks || !facts.Known && c.discover(ctx, m), nil
	}
	if facts.Known && !facts.Tasks {
		return false, nil
	}
	tool, listed := c.gate.Tool(c.from, t.Call.Name)
	if !listed {
		var err error
		if tool, err = c.findTool(ctx, m, c.upstream.cfg.ToolsTimeout); err != nil {
			return false, unlisted(err)
		}
	}
	switch policy.TaskSupport(tool.TaskSupport) {
	case policy.TaskRequired:
		return true, nil
	case policy.TaskOptional:
		return asksForTask(t), nil
	default:
		return false, nil
	}
}

// unlisted says that a call was not made because the upstream's tools could not
// be listed, because of err.
func unlisted(err error) error {
	failure := &approval.SendError{
		Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: fmt.Errorf("the upstream's tools could not be listed: %w", err),
	}
	if known, ok := errors.AsType[*approval.SendError](err); ok {
		failure.Stage = known.Stage
	}
	if errors.Is(err, context.DeadlineExceeded) {
		failure.Stage = task.StageUpstreamTimeout
	}
	return failure
}

// Definition implements [approval.Definer].
func (c *Caller) Definition(ctx context.Context, t task.Task) string {
	if t.Call.Method != "tools/call" {
		return ""
	}
	tool, listed := c.gate.Tool(c.from, t.Call.Name)
	if m, err := outgoing(t); err == nil && !listed {
		tool = c.Define(ctx, m)
	}
	return tool.DigestText()
}

// Define returns what the upstream says of the tool that m calls, or nothing if
// it does not say that soon.
func (c *Caller) Define(ctx context.Context, m *jsonrpc.Message) gate.Tool {
	tool, err := c.findTool(ctx, m, min(learnTimeout, c.upstream.cfg.ToolsTimeout))
	if err != nil {
		c.upstream.cfg.Log.DebugContext(ctx, "tools not listed", "upstream", c.upstream.cfg.Name, "cause", err)
	}
	return tool
}

// asksForTask reports whether the client of a legacy call asked for a task.
func asksForTask(t task.Task) bool {
	m, err := parsed([]byte(t.Call.Message))
	return err == nil && m.Params.Task.Present()
}

// learnTimeout is how long an upstream may take to say what it can do.
const learnTimeout = 5 * time.Second

// discover asks a modern upstream whether it does tasks.
func (c *Caller) discover(ctx context.Context, call *jsonrpc.Message) bool {
	ctx, stop := context.WithTimeout(ctx, learnTimeout)
	defer stop()
	m, err := request("server/discover", metaMember(call))
	if err != nil {
		return false
	}
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return false
	}
	result, err := a.whole()
	if err != nil {
		return false
	}
	tasks := !a.Error && mcptask.DetectServer(result.Member("capabilities").Bytes).Extension
	c.gate.NoteTasks(c.from, tasks)
	return tasks
}

// findTool asks the upstream for its tools in the era of call, notes them all,
// and returns the one that is called, if it is there. An upstream that does not
// list its tools properly has none; the error is for a list that cannot be read
// in time, or within its limits.
func (c *Caller) findTool(ctx context.Context, call *jsonrpc.Message, patience time.Duration) (gate.Tool, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	name, _ := call.Params.Name.Text()
	cursor := ""
	for range c.upstream.cfg.ToolsPages {
		next, err := c.learnTools(ctx, call, cursor)
		if err != nil && ctx.Err() == nil && !errors.Is(err, jsonrpc.ErrTooLarge) {
			c.upstream.cfg.Log.DebugContext(ctx, "tools not listed", "upstream", c.upstream.cfg.Name, "cause", err)
			return gate.Tool{}, nil
		}
		if err != nil {
			return gate.Tool{}, cmp.Or(ctx.Err(), err)
		}
		tool, listed := c.gate.Tool(c.from, name)
		if cursor = next; listed || cursor == "" {
			return tool, nil
		}
	}
	return gate.Tool{}, errors.New("the list has too many pages")
}

// learnTools notes one page of the upstream's tools, asked for in the era of
// call, and returns the cursor of the next.
func (c *Caller) learnTools(ctx context.Context, call *jsonrpc.Message, cursor string) (next string, err error) {
	defer recovered(&err)
	at := ""
	if cursor != "" {
		at = `"cursor":` + string(jsonrpc.AppendString(nil, cursor))
	}
	m, err := request("tools/list", at, metaMember(call))
	if err != nil {
		return "", err
	}
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return "", err
	}
	result, err := a.list(ctx, c.upstream.cfg.Room)
	if err != nil {
		return "", err
	}
	if a.Error {
		return "", ErrUnchecked
	}
	c.gate.Learn(ctx, c.from, gate.Page{Method: m.Method, Cursor: cursor, Result: result.Bytes}, result.Member("tools"))
	next, _ = result.Member("nextCursor").Text()
	return next, nil
}

// taskTTL returns how long the upstream's task of a call is to live, if the gate's
// own lives that long yet.
func (u *Upstream) taskTTL(remaining time.Duration) time.Duration {
	if u.cfg.MaxTaskTTL == 0 {
		return remaining
	}
	return min(remaining, u.cfg.MaxTaskTTL)
}

// taskCall returns the call with a wish for a task that lives as long as ttl.
func taskCall(m *jsonrpc.Message, ttl time.Duration) []byte {
	if wire.EraOf(m) == wire.Modern {
		return wire.DeclareTasks(m)
	}
	var patch jsonrpc.Patch
	patch.Set(m.Params.Value, "task", []byte(`{"ttl":`+strconv.FormatInt(max(1, ttl.Milliseconds()), 10)+`}`))
	return patch.Apply(m.Raw)
}

// continued returns a call that goes on with the client's answers. It is the
// same call: same tool, same arguments. As another request it has another id.
func continued(message []byte, x *task.Execution) []byte {
	m, err := parsed(message)
	if err != nil {
		return message // which was read before, so that this cannot be
	}
	var patch jsonrpc.Patch
	patch.Replace(m.ID, newRequestID())
	patch.Set(m.Params.Value, "inputResponses", x.Answers)
	if x.RequestState != "" {
		patch.Set(m.Params.Value, "requestState", jsonrpc.AppendString(nil, x.RequestState))
	}
	return patch.Apply(m.Raw)
}

// isTaken reports whether the answer to a call is none yet: the upstream has
// made a task of the call, or asks something first.
func isTaken(a *answer, call *jsonrpc.Message) bool {
	if wire.EraOf(call) == wire.Legacy {
		return call.Params.Task.Present() && a.member(memberTask).IsObject()
	}
	kind := a.resultType()
	return kind == string(mcptask.TaskResult) || kind == resultInputRequired
}

// taken returns what such an answer says.
func taken(a *answer, era wire.Era) (approval.Report, error) {
	kind := a.resultType()
	result, err := a.whole()
	if err != nil {
		return approval.Report{}, err
	}
	switch {
	case era == wire.Legacy:
		return ReadReport(result.Member(memberTask), era)
	case kind == string(mcptask.TaskResult):
		r, err := ReadReport(result, era)
		if r.State.Ended() {
			r.State = task.UpstreamWorks // it tells the outcome when it is asked
		}
		return r, err
	default:
		state, _ := result.Member("requestState").Text()
		asked := result.Member("inputRequests").Bytes
		if asked == nil {
			asked = []byte("{}")
		}
		return approval.Report{State: task.UpstreamAsks, InputRequests: asked, RequestState: state}, nil
	}
}

const resultInputRequired = "input_required"

// ReadReport reads a task as an upstream describes it: in the answer to a call
// or to tasks/get, or in a notification.
func ReadReport(v jsonrpc.Value, era wire.Era) (approval.Report, error) {
	id, ok := v.Member("taskId").Text()
	status, _ := v.Member("status").Text()
	if !ok || id == "" || !mcptask.Status(status).Valid() {
		return approval.Report{}, invalidAnswer(errors.New("the upstream's task has no id or no status"))
	}
	message, _ := v.Member("statusMessage").Text()
	r := approval.Report{Task: id, Message: message, PollInterval: millis(v.Member("pollInterval"))}
	if era == wire.Modern {
		r.PollInterval = millis(v.Member("pollIntervalMs"))
	}
	switch mcptask.Status(status) {
	case mcptask.InputRequired:
		r.State = task.UpstreamAsks
		if asked := v.Member("inputRequests"); era == wire.Modern && asked.IsObject() {
			r.InputRequests = bytes.Clone(asked.Bytes)
		}
	case mcptask.Completed:
		r.State = task.UpstreamReady
	case mcptask.Failed:
		r.State = task.UpstreamFailed
	case mcptask.Cancelled:
		r.Cancelled = true
	case mcptask.Working:
	}
	return r, nil
}

// readEnd reads the report of a modern task that has ended, which carries its
// outcome. That is not read here: it may be large.
func readEnd(a *answer) (approval.Report, error) {
	r, err := ReadReport(a.result, wire.Modern)
	if err != nil {
		a.close()
		return r, err
	}
	// The task has its outcome under the same names as a response has.
	whole := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":0,`), &tail{Reader: a.Body})
	outcome := jsonrpc.NewResponseReader(whole)
	head, err := outcome.Head()
	if err != nil || head.Kind != jsonrpc.Response {
		a.close()
		return r, invalidAnswer(errors.Join(errNoAnswer, err))
	}
	r.Outcome = &approval.Outcome{Body: &nestedBody{outcome, a}, Error: head.Failed}
	return r, nil
}

// A tail is all but the first byte of what its reader has.
type tail struct {
	io.Reader

	cut bool
}

// Read implements [io.Reader].
func (t *tail) Read(p []byte) (int, error) {
	if !t.cut {
		t.cut = true
		if _, err := io.ReadFull(t.Reader, make([]byte, 1)); err != nil {
			return 0, err
		}
	}
	return t.Reader.Read(p)
}

// A nestedBody is an outcome within an answer.
type nestedBody struct {
	io.Reader

	within *answer
}

// Close implements [io.Closer].
func (b *nestedBody) Close() error {
	b.within.close()
	return nil
}

// millis reads a number of milliseconds, or nothing if it makes no sense.
func millis(v jsonrpc.Value) time.Duration {
	ms, err := strconv.ParseFloat(string(v.Bytes), 64)
	if err != nil || ms <= 0 || ms > float64(math.MaxInt64/int64(time.Millisecond)) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// errTaskGone says that an upstream does not know a task that it has made.
var errTaskGone = errors.New("the upstream does not know the task")

// taskError returns what an upstream's error about its task means.
func taskError(a *answer) error {
	failure, err := a.whole()
	if err != nil {
		return err
	}
	code, _ := failure.Member("code").Int()
	if code == jsonrpc.CodeInvalidParams {
		return &approval.SendError{Stage: task.StageUpstreamGone, Ran: task.RanUnknown, Err: errTaskGone}
	}
	return invalidAnswer(fmt.Errorf("the upstream answered with error %d", code))
}

// Ping reports whether the upstream answers to a session.
func (c *Caller) Ping(ctx context.Context, session string) bool {
	as := c.as
	as.Header = as.Header.Clone()
	as.Header.Set("Mcp-Session-Id", session)
	m, err := parsed([]byte(`{"jsonrpc":"2.0","id":` + string(newRequestID()) + `,"method":"ping"}`))
	if err != nil {
		return false
	}
	a, err := (&Caller{upstream: c.upstream, as: as, gate: c.gate, from: c.from}).exchange(ctx, m, nil)
	if err != nil {
		return false
	}
	defer a.close()
	return !a.Error
}

// List makes a request for a list, and returns its result.
func (c *Caller) List(ctx context.Context, m *jsonrpc.Message) (jsonrpc.Value, error) {
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return jsonrpc.Value{}, err
	}
	result, err := a.list(ctx, c.upstream.cfg.Room)
	if err == nil && a.Error {
		err = errors.New("the upstream answered with an error")
	}
	return result, err
}
