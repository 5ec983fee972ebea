package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A Caller runs held calls at an upstream for one client. It sends a call in one of two ways:
//
//   - plain: the upstream answers when the tool has run, or first asks for input.
//   - as a task: the upstream answers at once with a task, which the Caller then polls, fetches or cancels. Only the gate and the upstream know the id of that task.
//
// A legacy call is sent as a task if the tool requires it, or if the tool allows it and the client
// waits by a task, too. A client that waits in its request gets a plain call, which is faster. A
// modern upstream that supports tasks is always told that the gate understands them, and decides
// itself.
type Caller struct {
	upstream    *Upstream
	credentials Credentials
	catalog     *catalog.Catalog
	client      catalog.Client
	sendInterim func(message []byte) // sends a message to the client before the answer; nil if it cannot
	isProbe     bool                 // the session to ask about may be made up, so a refusal is not noted
}

// Credentials returns the credentials that requests are made with.
func (c *Caller) Credentials() Credentials { return c.credentials }

// OwnedBy names the network of a client of which nothing else is known, as for the requests that are
// forwarded for it.
func (c *Caller) OwnedBy(network string) {
	c.credentials.Owner = cmp.Or(c.credentials.Owner, network)
}

// SendInterim makes f send the client the messages that precede the answer.
func (c *Caller) SendInterim(f func(message []byte)) { c.sendInterim = f }

// Call implements [approval.Sender].
func (c *Caller) Call(ctx context.Context, t task.Task, out approval.UpstreamRequest) (_ approval.Outcome, err error) {
	defer recovered(&err)
	ctx, span := c.Step(ctx, tracing.StepExecution, t)
	defer endStep(span, &err)
	if t.Call.Method == approval.MethodBatch {
		return c.execute(ctx, span, metrics.PathSync, func() (approval.Outcome, error) { return c.callBatch(ctx, out) })
	}
	path, m := metrics.PathSync, &out.Messages[0]
	byTask, err := c.takesTask(ctx, out)
	if err != nil {
		return approval.Outcome{}, err
	}
	if byTask {
		path = metrics.PathTask
		m, err = parsed(taskCall(m, c.upstream.taskTTL(t.Remaining(time.Now()))))
	}
	if err == nil && t.Execution != nil && t.Execution.Answers != nil {
		m, err = parsed(continued(m, t.Execution))
	}
	if err != nil {
		return approval.Outcome{}, unsendable(err)
	}
	return c.execute(ctx, span, path, func() (approval.Outcome, error) { return c.call(ctx, m) })
}

// Step starts the span of a step that is made upstream for t.
func (c *Caller) Step(ctx context.Context, s tracing.Step, t task.Task) (context.Context, tracing.Span) {
	if c.upstream.cfg.Tracing == nil {
		return ctx, tracing.Span{}
	}
	//mutate:swap "approval.TraceOf(t)" `""` internal/mcphttp.TestStepsAreTraced a step is not linked to the request that made the call
	ctx, span := c.upstream.cfg.Tracing.StartStep(ctx, s, approval.TraceOf(t))
	about := tracing.StepAttrs{Tool: t.Call.Name}
	if t.Execution != nil {
		about.UpstreamTask = t.Execution.UpstreamTask
	}
	span.SetStep(about)
	return ctx, span
}

// execute makes a held call with send, and counts, traces and logs it under path.
func (c *Caller) execute(ctx context.Context, span tracing.Span, path string, send func() (approval.Outcome, error)) (approval.Outcome, error) {
	c.upstream.cfg.Log.DebugContext(ctx, "upstream execution", "path", path)
	//mutate:swap "Path: path" "" internal/mcphttp.TestStepsAreTraced the span of a call has no path
	span.SetStep(tracing.StepAttrs{Path: path})
	outcome, err := send()
	status := metrics.Success
	if err != nil {
		status = metrics.Error
	}
	if outcome.Report != nil {
		span.SetStep(tracing.StepAttrs{UpstreamTask: outcome.Report.Task})
	}
	c.upstream.cfg.Metrics.UpstreamExecuted(path, status)
	return outcome, err
}

// endStep ends the span of a step that may have failed.
func endStep(span tracing.Span, err *error) {
	if failed, ok := errors.AsType[*approval.SendError](*err); ok {
		span.Fail(string(failed.Stage))
	} else if *err != nil {
		span.Fail(string(mcp.Internal))
	}
	span.End()
}

func (c *Caller) call(ctx context.Context, m *jsonrpc.Message) (approval.Outcome, error) {
	a, err := c.exchange(ctx, m, c.interim(ctx, task.Task{}))
	if err != nil {
		return approval.Outcome{}, err
	}
	if err := a.resolveKind(); err != nil {
		return approval.Outcome{}, err
	}
	era := mcp.EraOf(m)
	switch kind := a.resultType(); {
	case a.Error:
		return a.Outcome, nil
	case isUnfinished(&a, m):
		report, err := readUnfinished(&a, era)
		return approval.Outcome{Report: &report}, err
	case kind != resultComplete:
		a.close()
		return approval.Outcome{}, invalidType(kind)
	default:
		return a.Outcome, nil
	}
}

// callBatch runs a batch that was held as a whole.
func (c *Caller) callBatch(ctx context.Context, out approval.UpstreamRequest) (approval.Outcome, error) {
	resp, err := c.post(ctx, &out.Messages[0], out.Text)
	if err != nil {
		return approval.Outcome{}, sendError(err)
	}
	return readBatchOutcome(resp, out.Messages)
}

// exchange sends a request and returns its answer. Interim, which may be nil, gets the messages
// that precede the answer.
func (c *Caller) exchange(ctx context.Context, m *jsonrpc.Message, interim func([]byte)) (answer, error) {
	resp, err := c.post(ctx, m, m.Raw)
	if err != nil {
		return answer{}, sendError(err)
	}
	return readAnswer(resp, m, interim)
}

// post sends a body that begins with the message m. The error is an [*UnsentError] if no byte was
// sent.
func (c *Caller) post(ctx context.Context, m *jsonrpc.Message, body []byte) (*Response, error) {
	resp, err := c.upstream.cfg.Server.Send(ctx, Request{Message: m, Body: body, Credentials: c.credentials})
	if err == nil && !c.isProbe {
		c.noteRefusal(ctx, resp.refusal())
	}
	return resp, err
}

// Poll implements [approval.Sender].
func (c *Caller) Poll(ctx context.Context, t task.Task) (_ approval.Report, err error) {
	status := ""
	defer func() {
		c.upstream.cfg.Metrics.LazyPoll(pollOutcome(ctx, err))
		c.upstream.cfg.Log.DebugContext(ctx, "lazy poll", "upstream_task_id", t.Execution.UpstreamTask, "status", status, "error", err)
	}()
	//mutate:swap "StepPoll" "StepListen" internal/mcphttp.TestStepsAreTraced a poll has no span
	ctx, span := c.Step(ctx, tracing.StepPoll, t)
	defer endStep(span, &err)
	defer recovered(&err)
	a, era, err := c.askAboutTask(ctx, t, mcpname.TasksGet)
	if err != nil {
		return approval.Report{}, err
	}
	if a.Error {
		return approval.Report{}, taskError(&a)
	}
	if id, ok := a.member("taskId").Text(); ok && id != t.Execution.UpstreamTask {
		a.close()
		return approval.Report{}, errOtherTask()
	}
	status, _ = a.member("status").Text()
	if era == mcp.Modern && (status == string(schema.Completed) || status == string(schema.Failed)) {
		return readEnd(&a)
	}
	result, err := a.readAll()
	if err != nil {
		return approval.Report{}, err
	}
	report, err := ReadReport(result, era)
	if err == nil && report.Task != t.Execution.UpstreamTask {
		err = errOtherTask()
	}
	return report, err
}

// errOtherTask reports an answer about another task than the requested one.
func errOtherTask() error {
	return invalidAnswer(errors.New("the upstream answered about another task"))
}

// pollOutcome returns the metric label of a poll that ended with err. An answer of the upstream
// takes precedence over a deadline that has passed meanwhile.
func pollOutcome(ctx context.Context, err error) string {
	known, ok := errors.AsType[*approval.SendError](err)
	switch {
	case err == nil:
		return metrics.Success
	case ok && known.Stage == lifecycle.StageUpstreamGone:
		return metrics.NotFound
	case ok && known.Stage == lifecycle.StageUpstreamTimeout, !ok && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return metrics.Timeout
	default:
		return metrics.Error
	}
}

// Fetch implements [approval.Sender]. Modern upstreams send the outcome in the answer to a poll.
func (c *Caller) Fetch(ctx context.Context, t task.Task) (_ approval.Outcome, err error) {
	defer recovered(&err)
	if t.AwaitsInput() && c.sendInterim == nil {
		return approval.Outcome{}, invalidAnswer(errors.New("the upstream asks for input, but no client is present to answer"))
	}
	//mutate:swap "StepResult" "StepListen" internal/mcphttp.TestStepsAreTraced fetching a result has no span
	ctx, span := c.Step(ctx, tracing.StepResult, t)
	a, era, err := c.askAboutTask(ctx, t, mcpname.TasksResult)
	if a.Body != nil {
		a.Body = &fetchedBody{Reader: a.Body, span: span, metrics: c.upstream.cfg.Metrics, end: func(bytes int64) {
			c.upstream.cfg.Log.DebugContext(ctx, "streaming result", "upstream_task_id", t.Execution.UpstreamTask, "bytes", bytes)
		}}
	} else {
		c.upstream.cfg.Metrics.ResultStreamed(metrics.Error)
		defer endStep(span, &err)
	}
	switch {
	case err != nil:
		return approval.Outcome{}, err
	case era == mcp.Modern:
		a.close()
		return approval.Outcome{}, invalidAnswer(errors.New("the upstream's task has ended without an outcome"))
	case a.Error && t.Execution.Upstream != gatetask.UpstreamFailed:
		return approval.Outcome{}, taskError(&a) // the task had completed, so the error concerns the request
	default:
		return a.Outcome, nil
	}
}

// A fetchedBody counts a result, and ends its span, when it is closed.
type fetchedBody struct {
	io.Reader

	span    tracing.Span
	metrics *metrics.Metrics
	read    int64
	err     error             // of the last Read
	end     func(bytes int64) // called by Close with the number of bytes read
}

// Read implements [io.Reader].
func (b *fetchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	b.err = err
	return n, err
}

// Close implements [io.Closer].
func (b *fetchedBody) Close() error {
	status := metrics.Error
	if errors.Is(b.err, io.EOF) {
		status = metrics.Success
	}
	b.metrics.ResultStreamed(status)
	b.end(b.read)
	//mutate:swap "b.read" "1" internal/mcphttp.TestStepsAreTraced the span of a result has no size
	b.span.SetStep(tracing.StepAttrs{Bytes: b.read})
	b.span.End()
	if c, ok := b.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Answer implements [approval.Sender].
func (c *Caller) Answer(ctx context.Context, t task.Task, responses json.RawMessage) (err error) {
	defer recovered(&err)
	return c.askForAck(ctx, t, mcpname.TasksUpdate, jsonrpc.Member{Name: "inputResponses", JSON: responses})
}

// askForAck makes a request about the upstream task of t and expects an empty result.
func (c *Caller) askForAck(ctx context.Context, t task.Task, method string, more ...jsonrpc.Member) error {
	a, _, err := c.askAboutTask(ctx, t, method, more...)
	switch {
	case err != nil:
		return err
	case a.Error:
		return taskError(&a)
	}
	_, err = a.readAll()
	return err
}

// Cancel implements [approval.Sender]. A modern call without a task was cancelled when its request
// was closed.
func (c *Caller) Cancel(ctx context.Context, t task.Task) (err error) {
	defer recovered(&err)
	out, err := approval.NewUpstreamRequest(t)
	nested := t.Execution != nil && t.Execution.UpstreamTask != ""
	if err != nil || !nested && mcp.EraOf(&out.Messages[0]) == mcp.Modern {
		return err
	}
	if nested {
		err = c.askForAck(ctx, t, mcpname.TasksCancel)
	} else {
		err = c.cancelCalls(ctx, out.Messages)
	}
	outcome := metrics.Success
	switch {
	case err == nil:
	case ctx.Err() != nil:
		outcome = metrics.Timeout
	default:
		outcome = metrics.Failed
	}
	c.upstream.cfg.Metrics.UpstreamCancelled(outcome)
	return err
}

func (c *Caller) cancelCalls(ctx context.Context, messages []jsonrpc.Message) error {
	var failed error
	for i := range messages {
		if messages[i].Kind == jsonrpc.Request {
			failed = errors.Join(failed, c.cancelCall(ctx, &messages[i]))
		}
	}
	return failed
}

func (c *Caller) cancelCall(ctx context.Context, m *jsonrpc.Message) error {
	n := jsonrpc.NewRequest(nil, mcpname.NotifyCancelled, jsonrpc.NewParams(jsonrpc.Member{Name: "requestId", JSON: m.ID.Bytes}))
	resp, err := c.post(ctx, &n, n.Raw)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.Status < http.StatusOK || resp.Status >= http.StatusMultipleChoices {
		return fmt.Errorf("the upstream answered with status %d", resp.Status)
	}
	return nil
}

// askAboutTask makes a request about the upstream task of t, in the era of the held call. More are
// additional members of params.
func (c *Caller) askAboutTask(ctx context.Context, t task.Task, method string, more ...jsonrpc.Member) (a answer, era mcp.Era, err error) {
	out, err := approval.NewUpstreamRequest(t)
	if err != nil {
		return answer{}, era, err
	}
	call := &out.Messages[0]
	era = mcp.EraOf(call)
	id := jsonrpc.Member{Name: "taskId", JSON: jsonrpc.AppendString(nil, t.Execution.UpstreamTask)}
	m := request(call, method, append([]jsonrpc.Member{id}, more...)...)
	var interim func([]byte)
	if method == mcpname.TasksResult {
		interim = c.interim(ctx, t)
	}
	a, err = c.exchange(ctx, m, interim)
	return a, era, err
}

// recovered turns a panic into an error: no HTTP handler recovers it here.
func recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = &approval.SendError{
			Stage: lifecycle.StageExecutorLost, Ran: task.RanUnknown,
			Err: fmt.Errorf("panic: %v\n%s", cause, debug.Stack()),
		}
	}
}
