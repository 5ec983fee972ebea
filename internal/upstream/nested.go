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
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// taskTTL returns the TTL to ask for an upstream task, given the remaining time of the held task.
func (u *Upstream) taskTTL(remaining time.Duration) time.Duration {
	if u.cfg.MaxTaskTTL == 0 {
		return remaining
	}
	return min(remaining, u.cfg.MaxTaskTTL)
}

// taskCall returns the call with a request for a task that lives for ttl.
func taskCall(m *jsonrpc.Message, ttl time.Duration) []byte {
	var patch jsonrpc.Patch
	if mcp.EraOf(m) == mcp.Modern {
		patch.Replace(m.Params.Meta, mcp.DeclareTasks(m.Params.Meta))
	} else {
		patch.Set(m.Params.Value, "task", []byte(`{"ttl":`+strconv.FormatInt(max(1, ttl.Milliseconds()), 10)+`}`))
	}
	return patch.Apply(m.Raw)
}

// continued returns the call with the client's answers added. Tool and arguments are the same; the
// request id is new.
func continued(m *jsonrpc.Message, x *task.Execution) []byte {
	var patch jsonrpc.Patch
	patch.Replace(m.ID, newRequestID())
	patch.Set(m.Params.Value, "inputResponses", x.Answers)
	if x.RequestState != "" {
		patch.Set(m.Params.Value, "requestState", jsonrpc.AppendString(nil, x.RequestState))
	}
	return patch.Apply(m.Raw)
}

// isUnfinished reports whether a call was answered with a task or with a request for input, and not
// with its result.
func isUnfinished(a *answer, call *jsonrpc.Message) bool {
	if mcp.EraOf(call) == mcp.Legacy {
		return call.Params.Task.Present() && a.member(memberTask).IsObject()
	}
	kind := a.resultType()
	return kind == string(schema.TaskResult) || kind == resultInputRequired
}

// readUnfinished reads such an answer.
func readUnfinished(a *answer, era mcp.Era) (approval.Report, error) {
	kind := a.resultType()
	result, err := a.readAll()
	if err != nil {
		return approval.Report{}, err
	}
	switch {
	case era == mcp.Legacy:
		return ReadReport(result.Member(memberTask), era)
	case kind == string(schema.TaskResult):
		r, err := ReadReport(result, era)
		if r.State.Ended() {
			r.State = gatetask.UpstreamWorks // a poll returns its outcome
		}
		return r, err
	default:
		state, _ := result.Member("requestState").Text()
		asked := result.Member("inputRequests").Bytes
		if asked == nil {
			asked = []byte("{}")
		}
		return approval.Report{State: gatetask.UpstreamAsks, InputRequests: asked, RequestState: state}, nil
	}
}

const resultInputRequired = "input_required"

// ReadReport reads an upstream task from the answer to a call or to tasks/get, or from a
// notification.
func ReadReport(v jsonrpc.Value, era mcp.Era) (approval.Report, error) {
	id, ok := v.Member("taskId").Text()
	status, _ := v.Member("status").Text()
	if !ok || id == "" || !schema.Status(status).Valid() {
		return approval.Report{}, invalidAnswer(errors.New("the upstream's task has no id or no status"))
	}
	message, _ := v.Member("statusMessage").Text()
	r := approval.Report{Task: id, Message: message, PollInterval: millis(v.Member("pollInterval"))}
	if era == mcp.Modern {
		r.PollInterval = millis(v.Member("pollIntervalMs"))
	}
	switch schema.Status(status) {
	case schema.InputRequired:
		r.State = gatetask.UpstreamAsks
		if asked := v.Member("inputRequests"); era == mcp.Modern && asked.IsObject() {
			r.InputRequests = bytes.Clone(asked.Bytes)
		}
	case schema.Completed:
		r.State = gatetask.UpstreamReady
	case schema.Failed:
		r.State = gatetask.UpstreamFailed
	case schema.Cancelled:
		r.Cancelled = true
	case schema.Working:
	}
	return r, nil
}

// readEnd reads the report of a modern task that has ended. Its outcome may be large and is read
// later.
func readEnd(a *answer) (approval.Report, error) {
	r, err := ReadReport(a.result, mcp.Modern)
	if err != nil {
		a.close()
		return r, err
	}
	// The outcome has the same members in a task as in a response: result or error.
	_, err = io.ReadFull(a.Body, make([]byte, 1))
	outcome := jsonrpc.NewResponseReader(io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":0,`), a.Body))
	head, headErr := outcome.Head()
	if err = errors.Join(err, headErr); err != nil || head.Kind != jsonrpc.Response {
		a.close()
		return r, invalidAnswer(errors.Join(errNoAnswer, err))
	}
	r.Outcome = &approval.Outcome{Body: struct {
		io.Reader
		io.Closer
	}{outcome, a.body}, Error: head.Failed}
	return r, nil
}

// millis reads a number of milliseconds, or 0 if it is not valid.
func millis(v jsonrpc.Value) time.Duration {
	ms, err := strconv.ParseFloat(string(v.Bytes), 64)
	if err != nil || ms <= 0 || ms > float64(math.MaxInt64/int64(time.Millisecond)) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// errTaskGone reports that the upstream no longer knows its task.
var errTaskGone = errors.New("the upstream does not know the task")

// taskError returns the meaning of an upstream's error about its task.
func taskError(a *answer) error {
	failure, err := a.readAll()
	if err != nil {
		return err
	}
	code, _ := failure.Member("code").Int()
	if code == jsonrpc.CodeInvalidParams {
		return &approval.SendError{Stage: lifecycle.StageUpstreamGone, Ran: task.RanUnknown, Err: errTaskGone}
	}
	return invalidAnswer(fmt.Errorf("the upstream answered with error %d", code))
}

// Ping reports whether the upstream answers requests in a session.
func (c *Caller) Ping(ctx context.Context, session string) bool {
	if c.credentials.Header == nil {
		return false // a transport without headers has no sessions
	}
	as := c.credentials
	as.Header = as.Header.Clone()
	as.Header.Set("Mcp-Session-Id", session)
	m := jsonrpc.NewRequest(newRequestID(), mcpname.Ping, jsonrpc.Params{})
	a, err := (&Caller{upstream: c.upstream, credentials: as, catalog: c.catalog, client: c.client, isProbe: true}).exchange(ctx, &m, nil)
	if err != nil {
		return false
	}
	defer a.close()
	return !a.Error
}

// List requests a list and returns its result.
func (c *Caller) List(ctx context.Context, m *jsonrpc.Message) (jsonrpc.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, c.upstream.cfg.ListTimeout)
	defer cancel()
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return jsonrpc.Value{}, err
	}
	result, err := a.readList(ctx, c.upstream.cfg.AnswerLimit)
	if err == nil && a.Error {
		err = errors.New("the upstream answered with an error")
	}
	return result, err
}
