package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// asksForTask reports whether the client of a legacy call asked for a task.
func asksForTask(t task.Task) bool {
	m, err := parsed([]byte(t.Call.Message))
	return err == nil && m.Params.Task.Present()
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
			r.State = task.UpstreamWorks // it sends the outcome when it is asked
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
	if c.as.Header == nil {
		return false // a transport without headers has no sessions
	}
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
	ctx, cancel := context.WithTimeout(ctx, c.upstream.cfg.ListTimeout)
	defer cancel()
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
