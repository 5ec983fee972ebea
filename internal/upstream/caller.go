package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Caller reaches an upstream for held calls, in somebody's name. It makes a
// call in one of two ways:
//
//   - plain: without any wish for a task. The upstream answers when the tool
//     has run, or with questions before it does.
//   - as a task: the upstream answers at once with a task of its own, which is
//     then asked for, fetched and cancelled. Its id is known to the gate and the
//     upstream alone.
//
// A legacy call is made as a task if the tool requires that, or allows it and
// the client waits by a task itself: who waits in a request is served sooner by
// a plain call. A modern upstream that has tasks always reads that the gate
// understands them, and decides itself.
type Caller struct {
	upstream *Upstream
	as       Credentials
	gate     *gate.Gate
	from     gate.Client
	send     func(message []byte) // sends the client a message before the answer; nil if it takes none
}

// As returns in whose name requests are made.
func (c *Caller) As() Credentials { return c.as }

// SendInterim has f send the client the messages that the upstream sends it before
// the answer.
func (c *Caller) SendInterim(f func(message []byte)) { c.send = f }

// Call implements [approval.Sender].
func (c *Caller) Call(ctx context.Context, t task.Task) (_ approval.Outcome, err error) {
	defer recovered(&err)
	ctx, span := c.Step(ctx, tracing.StepExecution, t)
	defer endStep(span, &err)
	if t.Call.Method == approval.MethodBatch {
		return c.execute(ctx, span, execution{path: metrics.PathSync, make: func(ctx context.Context) (approval.Outcome, error) {
			return c.callBatch(ctx, t)
		}})
	}
	m, err := outgoing(t)
	if err != nil {
		return approval.Outcome{}, unsendable(err)
	}
	path, message := metrics.PathSync, m.Raw
	byTask, err := c.takesTask(ctx, t, m)
	if err != nil {
		return approval.Outcome{}, err
	}
	if byTask {
		path, message = metrics.PathTask, taskCall(m, c.upstream.taskTTL(t.Remaining(time.Now())))
	}
	if t.Execution != nil && t.Execution.Answers != nil {
		message = continued(message, t.Execution)
	}
	return c.execute(ctx, span, execution{path: path, make: func(ctx context.Context) (approval.Outcome, error) {
		return c.call(ctx, message)
	}})
}

// Step starts the span of something that is done upstream for t.
func (c *Caller) Step(ctx context.Context, s tracing.Step, t task.Task) (context.Context, tracing.Span) {
	if c.upstream.cfg.Tracing == nil {
		return ctx, tracing.Span{}
	}
	ctx, span := c.upstream.cfg.Tracing.StartStep(ctx, s, approval.TraceOf(t))
	about := tracing.StepAttrs{Tool: t.Call.Name}
	if t.Execution != nil {
		about.UpstreamTask = t.Execution.UpstreamTask
	}
	span.SetStep(about)
	return ctx, span
}

// An execution is how a held call is made.
type execution struct {
	path string // as metrics name it
	make func(context.Context) (approval.Outcome, error)
}

// execute makes a held call, and counts, traces and logs that.
func (c *Caller) execute(ctx context.Context, span tracing.Span, e execution) (approval.Outcome, error) {
	c.upstream.cfg.Log.DebugContext(ctx, "upstream execution", "path", e.path)
	span.SetStep(tracing.StepAttrs{Path: e.path})
	outcome, err := e.make(ctx)
	status := metrics.Success
	if err != nil {
		status = metrics.Error
	}
	if outcome.Report != nil {
		span.SetStep(tracing.StepAttrs{UpstreamTask: outcome.Report.Task})
	}
	c.upstream.cfg.Metrics.UpstreamExecuted(e.path, status)
	return outcome, err
}

// endStep ends the span of a step that may have failed.
func endStep(span tracing.Span, err *error) {
	if failed, ok := errors.AsType[*approval.SendError](*err); ok {
		span.Fail(string(failed.Stage))
	} else if *err != nil {
		span.Fail(string(wire.Internal))
	}
	span.End()
}

func (c *Caller) call(ctx context.Context, message []byte) (approval.Outcome, error) {
	m, err := parsed(message)
	if err != nil {
		return approval.Outcome{}, unsendable(err)
	}
	a, err := c.exchange(ctx, m, c.interim(ctx, task.Task{}))
	if err != nil {
		return approval.Outcome{}, err
	}
	if err := a.clear(); err != nil {
		return approval.Outcome{}, err
	}
	era := wire.EraOf(m)
	switch kind := a.resultType(); {
	case a.Error:
		return a.Outcome, nil
	case isTaken(&a, m):
		report, err := taken(&a, era)
		return approval.Outcome{Report: &report}, err
	case kind != resultComplete:
		a.close()
		return approval.Outcome{}, invalidType(kind)
	default:
		return a.Outcome, nil
	}
}

// callBatch is Call for a whole batch.
func (c *Caller) callBatch(ctx context.Context, t task.Task) (approval.Outcome, error) {
	message, packet, err := outgoingPacket(t)
	if err != nil {
		return approval.Outcome{}, unsendable(err)
	}
	resp, err := c.post(ctx, &packet.Messages[0], message)
	if err != nil {
		return approval.Outcome{}, sendError(err)
	}
	return readBatchOutcome(resp, packet)
}

// exchange sends a request and returns the answer to it. Interim, which may be nil, is
// called with messages that the upstream sends before the answer.
func (c *Caller) exchange(ctx context.Context, m *jsonrpc.Message, interim func([]byte)) (answer, error) {
	resp, err := c.post(ctx, m, m.Raw)
	if err != nil {
		return answer{}, sendError(err)
	}
	return readAnswer(resp, m, interim)
}

// post sends a body that begins with the message m. The error is an
// [*UnsentError] if no byte was sent.
func (c *Caller) post(ctx context.Context, m *jsonrpc.Message, body []byte) (*Response, error) {
	return c.upstream.cfg.Server.Send(ctx, Request{Message: m, Body: body, As: c.as})
}

// Poll implements [approval.Sender].
func (c *Caller) Poll(ctx context.Context, t task.Task) (_ approval.Report, err error) {
	status := ""
	defer func() {
		c.upstream.cfg.Metrics.LazyPoll(pollOutcome(ctx, err))
		c.upstream.cfg.Log.DebugContext(ctx, "lazy poll", "upstream_task_id", t.Execution.UpstreamTask, "status", status, "error", err)
	}()
	ctx, span := c.Step(ctx, tracing.StepPoll, t)
	defer endStep(span, &err)
	defer recovered(&err)
	a, era, err := c.ask(ctx, t, mcptask.MethodGet)
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
	if era == wire.Modern && (status == string(mcptask.Completed) || status == string(mcptask.Failed)) {
		return readEnd(&a)
	}
	result, err := a.whole()
	if err != nil {
		return approval.Report{}, err
	}
	report, err := ReadReport(result, era)
	if err == nil && report.Task != t.Execution.UpstreamTask {
		err = errOtherTask()
	}
	return report, err
}

// errOtherTask says that an upstream was asked for one task and answered with another.
func errOtherTask() error {
	return invalidAnswer(errors.New("the upstream answered about another task"))
}

// pollOutcome returns how a poll that ended with err is counted. An answer of the
// upstream counts even if the time was over by then.
func pollOutcome(ctx context.Context, err error) string {
	known, ok := errors.AsType[*approval.SendError](err)
	switch {
	case err == nil:
		return metrics.Success
	case ok && known.Stage == task.StageUpstreamGone:
		return metrics.NotFound
	case ok && known.Stage == task.StageUpstreamTimeout, !ok && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return metrics.Timeout
	default:
		return metrics.Error
	}
}

// Fetch implements [approval.Sender]. Modern upstreams send the outcome when
// they are asked how the task stands.
func (c *Caller) Fetch(ctx context.Context, t task.Task) (_ approval.Outcome, err error) {
	defer recovered(&err)
	if t.Asks() && c.send == nil {
		return approval.Outcome{}, invalidAnswer(errors.New("the upstream asks for input, but no client is present to answer"))
	}
	ctx, span := c.Step(ctx, tracing.StepResult, t)
	a, era, err := c.ask(ctx, t, mcptask.MethodResult)
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
	case era == wire.Modern:
		a.close()
		return approval.Outcome{}, invalidAnswer(errors.New("the upstream's task has ended without an outcome"))
	case a.Error && t.Execution.Upstream != task.UpstreamFailed:
		return approval.Outcome{}, taskError(&a) // a call that went well is not answered with an error
	default:
		return a.Outcome, nil
	}
}

// A fetchedBody is a result that counts, and whose span ends, when it is closed.
type fetchedBody struct {
	io.Reader

	span    tracing.Span
	metrics *metrics.Metrics
	read    int64
	err     error             // of the last Read
	end     func(bytes int64) // is called at the end with how much was read
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
	a, _, err := c.ask(ctx, t, mcptask.MethodUpdate, `"inputResponses":`+string(responses))
	if err != nil {
		return err
	}
	return taskAck(&a)
}

// taskAck returns nil if a says that the upstream has heard.
func taskAck(a *answer) error {
	if a.Error {
		return taskError(a)
	}
	_, err := a.whole()
	return err
}

// Cancel implements [approval.Sender]. A modern call that is under way was
// cancelled when its request was closed.
func (c *Caller) Cancel(ctx context.Context, t task.Task) (err error) {
	defer recovered(&err)
	_, packet, err := outgoingPacket(t)
	nested := t.Execution != nil && t.Execution.UpstreamTask != ""
	if err != nil || !nested && wire.EraOf(&packet.Messages[0]) == wire.Modern {
		return err
	}
	if nested {
		err = c.cancelTask(ctx, t)
	} else {
		err = c.cancelCalls(ctx, packet)
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

func (c *Caller) cancelTask(ctx context.Context, t task.Task) error {
	a, _, err := c.ask(ctx, t, mcptask.MethodCancel)
	if err != nil {
		return err
	}
	return taskAck(&a)
}

func (c *Caller) cancelCalls(ctx context.Context, p jsonrpc.Packet) error {
	var failed error
	for i := range p.Messages {
		if p.Messages[i].Kind == jsonrpc.Request {
			failed = errors.Join(failed, c.cancelCall(ctx, &p.Messages[i]))
		}
	}
	return failed
}

func (c *Caller) cancelCall(ctx context.Context, m *jsonrpc.Message) error {
	text := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), m.ID.Bytes...)
	n, err := parsed(append(text, `}}`...))
	if err != nil {
		return err
	}
	resp, err := c.post(ctx, n, n.Raw)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.Status < http.StatusOK || resp.Status >= http.StatusMultipleChoices {
		return fmt.Errorf("the upstream answered with status %d", resp.Status)
	}
	return nil
}

// ask makes a request about the task that the upstream made of the call of t,
// in the era of that call. More are further members of its params.
func (c *Caller) ask(ctx context.Context, t task.Task, method string, more ...string) (a answer, era wire.Era, err error) {
	call, err := outgoing(t)
	if err != nil {
		return answer{}, era, err
	}
	era = wire.EraOf(call)
	members := append([]string{`"taskId":` + string(jsonrpc.AppendString(nil, t.Execution.UpstreamTask))}, more...)
	m, err := request(method, append(members, metaMember(call))...)
	if err != nil {
		return answer{}, era, err
	}
	var interim func([]byte)
	if method == mcptask.MethodResult {
		interim = c.interim(ctx, t)
	}
	a, err = c.exchange(ctx, m, interim)
	return a, era, err
}

// recovered turns a panic into an error: no exchange is there to turn it into an
// answer.
func recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = &approval.SendError{
			Stage: task.StageExecutorLost, Ran: task.RanUnknown,
			Err: fmt.Errorf("panic: %v\n%s", cause, debug.Stack()),
		}
	}
}
