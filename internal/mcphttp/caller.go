package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A caller reaches an upstream for held calls, in somebody's name. It makes a
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
// a plain call. A modern upstream that has tasks is always told that the gate
// understands them, and decides itself.
type caller struct {
	upstream *Upstream
	as       guise
	gate     *gate.Gate
	from     gate.Client
	hears    func(message []byte) // tells the client something meanwhile; nil if it cannot be told
}

// send returns what makes a held call in the name of this request: with its
// session and its credentials, which are those of a client that is there now.
func (x *exchange) send() approval.Sender { return x.caller() }

func (x *exchange) caller() *caller {
	return newCaller(x.upstream, x.h.cfg.Gate, x.from(), credentialsOf(x.r.Header, x.upstream.credentials()))
}

func newCaller(u *Upstream, g *gate.Gate, from gate.Client, header http.Header) *caller {
	return &caller{upstream: u, gate: g, from: from, as: guise{header: header, definition: func(name string) []byte {
		tool, _ := g.Tool(from, name)
		return tool.Mirrored
	}}}
}

// Name returns the name of the upstream.
func (u *Upstream) Name() string { return u.cfg.Name }

// Sender returns what makes the call of t with the gate's own credentials, in
// the name of no client. What is kept of t's owner is no more than its session.
func (u *Upstream) Sender(t task.Task, g *gate.Gate) approval.Sender {
	from := gate.Client{Upstream: u.cfg.Name, Key: cmp.Or(approval.PeerOf(t), strings.TrimPrefix(t.Owner, u.cfg.Name+" "))}
	header := make(http.Header)
	if session, ok := sessionIn(from.Key); ok {
		header.Set("Mcp-Session-Id", session)
		header.Set("Mcp-Protocol-Version", wire.Version20251125) // the only one that has both sessions and tasks
	}
	return newCaller(u, g, from, header)
}

// sessionIn returns the session in the key of a client, if it has one.
func sessionIn(key string) (string, bool) {
	if rest, ok := strings.CutPrefix(key, principalKey); ok {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return "", false
		}
		key = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return strings.CutPrefix(key, sessionKey)
}

// Call implements [approval.Sender].
func (c *caller) Call(ctx context.Context, t task.Task) (_ approval.Outcome, err error) {
	defer recovered(&err)
	if t.Call.Method == approval.MethodBatch {
		return c.callBatch(ctx, t)
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
		path, message = metrics.PathTask, taskCall(m, t.Remaining(time.Now()))
	}
	if t.Execution != nil && t.Execution.Answers != nil {
		message = continued(message, t.Execution)
	}
	c.upstream.cfg.Log.DebugContext(ctx, "upstream execution", "task", t.ID, "tool", t.Call.Name, "path", path)
	ctx, span := c.upstream.cfg.Tracing.StartStep(ctx, tracing.StepExecution)
	defer endStep(span, &err)
	span.SetStep(tracing.StepAttrs{Tool: t.Call.Name, Path: path})
	outcome, err := c.call(ctx, message)
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
		span.Fail(string(wire.Internal))
	}
	span.End()
}

func (c *caller) call(ctx context.Context, message []byte) (approval.Outcome, error) {
	m, err := parsed(message)
	if err != nil {
		return approval.Outcome{}, unsendable(err)
	}
	a, err := c.exchange(ctx, m, c.aside(task.Task{}))
	if err != nil {
		return approval.Outcome{}, err
	}
	if err := a.clear(); err != nil {
		return approval.Outcome{}, err
	}
	era := eraOf(m)
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
func (c *caller) callBatch(ctx context.Context, t task.Task) (approval.Outcome, error) {
	message, packet, err := outgoingPacket(t)
	if err != nil {
		return approval.Outcome{}, unsendable(err)
	}
	resp, err := c.post(ctx, &packet.Messages[0], message) //nolint:bodyclose // closed where it is read
	if err != nil {
		return approval.Outcome{}, sendError(err)
	}
	return readBatchOutcome(resp, packet)
}

// exchange sends a request and returns the answer to it. Aside is given what the
// upstream says before; it may be nil.
func (c *caller) exchange(ctx context.Context, m *jsonrpc.Message, aside func([]byte)) (answer, error) {
	resp, err := c.post(ctx, m, m.Raw)
	if err != nil {
		return answer{}, sendError(err)
	}
	return readAnswer(resp, m, aside)
}

// post sends a body with the headers that belong to m. The error is an
// [*unsentError] if no byte was sent.
func (c *caller) post(ctx context.Context, m *jsonrpc.Message, body []byte) (*http.Response, error) {
	header, err := c.as.headerOf(m)
	if err != nil {
		return nil, &unsentError{err}
	}
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	count := c.upstream.sending()
	resp, err := c.upstream.sendBy(traced, c.upstream.patient, &http.Request{
		Method: http.MethodPost,
		URL:    new(url.URL),
		Header: header,
	}, body)
	if err != nil {
		count(outcomeOf(err))
		if !connected.Load() {
			err = &unsentError{err}
		}
		return nil, err
	}
	resp.Body = &countedBody{ReadCloser: resp.Body, status: resp.StatusCode, count: count}
	return resp, nil
}

// Poll implements [approval.Sender].
func (c *caller) Poll(ctx context.Context, t task.Task) (_ approval.Report, err error) {
	defer func() { c.upstream.cfg.Metrics.LazyPoll(pollOutcome(ctx, err)) }()
	ctx, span := c.upstream.cfg.Tracing.StartStep(ctx, tracing.StepPoll)
	defer endStep(span, &err)
	span.SetStep(tracing.StepAttrs{UpstreamTask: t.Execution.UpstreamTask})
	defer recovered(&err)
	a, era, err := c.ask(ctx, t, mcptask.MethodGet, nil)
	if err != nil {
		return approval.Report{}, err
	}
	if a.Error {
		return approval.Report{}, taskError(&a)
	}
	if id, told := a.member("taskId").Text(); told && id != t.Execution.UpstreamTask {
		a.close()
		return approval.Report{}, errOtherTask()
	}
	status, _ := a.member("status").Text()
	if era == wire.Modern && (status == string(mcptask.Completed) || status == string(mcptask.Failed)) {
		return readEnd(&a)
	}
	result, err := a.whole()
	if err != nil {
		return approval.Report{}, err
	}
	report, err := readReport(result, era)
	if err == nil && report.Task != t.Execution.UpstreamTask {
		err = errOtherTask()
	}
	return report, err
}

// errOtherTask says that an upstream was asked for one task and told of another.
func errOtherTask() error { return invalidAnswer(errors.New("the upstream told of another task")) }

func pollOutcome(ctx context.Context, err error) string {
	known, ok := errors.AsType[*approval.SendError](err)
	switch {
	case err == nil:
		return metrics.Success
	case ok && known.Stage == task.StageUpstreamGone:
		return metrics.NotFound
	case ok && known.Stage == task.StageUpstreamTimeout, errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return metrics.Timeout
	default:
		return metrics.Error
	}
}

// Fetch implements [approval.Sender]. Modern upstreams tell the outcome when
// they are asked how the task stands.
func (c *caller) Fetch(ctx context.Context, t task.Task) (_ approval.Outcome, err error) {
	defer recovered(&err)
	if t.Asks() && c.hears == nil {
		return approval.Outcome{}, invalidAnswer(errors.New("the upstream asks something, and nobody is there to answer"))
	}
	ctx, span := c.upstream.cfg.Tracing.StartStep(ctx, tracing.StepResult)
	span.SetStep(tracing.StepAttrs{UpstreamTask: t.Execution.UpstreamTask})
	a, era, err := c.ask(ctx, t, mcptask.MethodResult, nil)
	if a.Body != nil {
		a.Body = &fetchedBody{Reader: a.Body, span: span, metrics: c.upstream.cfg.Metrics}
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
	end     error
}

// Read implements [io.Reader].
func (b *fetchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	b.end = err
	return n, err
}

// Close implements [io.Closer].
func (b *fetchedBody) Close() error {
	status := metrics.Error
	if errors.Is(b.end, io.EOF) {
		status = metrics.Success
	}
	b.metrics.ResultStreamed(status)
	b.span.SetStep(tracing.StepAttrs{Bytes: b.read})
	b.span.End()
	if c, ok := b.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Answer implements [approval.Sender].
func (c *caller) Answer(ctx context.Context, t task.Task, responses jsontext.Value) (err error) {
	defer recovered(&err)
	a, _, err := c.ask(ctx, t, mcptask.MethodUpdate, append([]byte(`,"inputResponses":`), responses...))
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
func (c *caller) Cancel(ctx context.Context, t task.Task) (err error) {
	defer recovered(&err)
	_, packet, err := outgoingPacket(t)
	nested := t.Execution != nil && t.Execution.UpstreamTask != ""
	if err != nil || !nested && eraOf(&packet.Messages[0]) == wire.Modern {
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

func (c *caller) cancelTask(ctx context.Context, t task.Task) error {
	a, _, err := c.ask(ctx, t, mcptask.MethodCancel, nil)
	if err != nil {
		return err
	}
	return taskAck(&a)
}

func (c *caller) cancelCalls(ctx context.Context, p jsonrpc.Packet) error {
	var failed error
	for i := range p.Messages {
		if p.Messages[i].Kind == jsonrpc.Request {
			failed = errors.Join(failed, c.cancelCall(ctx, &p.Messages[i]))
		}
	}
	return failed
}

func (c *caller) cancelCall(ctx context.Context, m *jsonrpc.Message) error {
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
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the upstream answered with status %d", resp.StatusCode)
	}
	return nil
}

// ask makes a request about the task that the upstream made of the call of t,
// in the era of that call. More are further members of its params.
func (c *caller) ask(ctx context.Context, t task.Task, method string, more []byte) (a answer, era wire.Era, err error) {
	call, err := outgoing(t)
	if err != nil {
		return answer{}, era, err
	}
	era = eraOf(call)
	text := append([]byte(`{"jsonrpc":"2.0","id":`), newRequestID()...)
	text = append(text, `,"method":"`+method+`","params":{"taskId":`...)
	text = append(jsonrpc.AppendString(text, t.Execution.UpstreamTask), more...)
	if era == wire.Modern {
		text = append(append(text, `,"_meta":`...), requestMeta(call)...)
	}
	m, err := parsed(append(text, `}}`...))
	if err != nil {
		return answer{}, era, err
	}
	var aside func([]byte)
	if method == mcptask.MethodResult {
		aside = c.aside(t)
	}
	a, err = c.exchange(ctx, m, aside)
	return a, era, err
}

// newRequestID returns the id of a request of the gate's own, which must not be
// one of the client's in whose session it is made.
func newRequestID() []byte { return jsonrpc.AppendString(nil, "tg-"+rand.Text()) }

// requestMeta returns the metadata of a modern request about a task: what the
// client of the call said of itself then, and that the gate knows tasks.
func requestMeta(call *jsonrpc.Message) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, name := range []string{wire.MetaVersion, wire.MetaClientInfo, wire.MetaCapabilities} {
		if value := call.Params.Meta.Member(name); value.Present() {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			b.Write(jsonrpc.AppendString(nil, name))
			b.WriteByte(':')
			b.Write(value.Bytes)
		}
	}
	b.WriteByte('}')
	probe := append([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"_meta":`), b.Bytes()...)
	m, err := parsed(append(probe, `}}`...))
	if err != nil {
		return b.Bytes()
	}
	declared, err := parsed(wire.DeclareTasks(m))
	if err != nil {
		return b.Bytes()
	}
	return declared.Params.Meta.Bytes
}

// parsed returns the one message in text. Its values' places count from the
// start of its Raw.
func parsed(text []byte) (*jsonrpc.Message, error) {
	packet, err := jsonrpc.Parse(text, jsonrpc.Limits{})
	if err != nil {
		return nil, err
	}
	if packet.Batch {
		return nil, errUnchecked
	}
	return &packet.Messages[0], nil
}

// eraOf returns the era of a request that was checked before.
func eraOf(m *jsonrpc.Message) wire.Era {
	if m.Params.Meta.Member(wire.MetaVersion).Present() {
		return wire.Modern
	}
	return wire.Legacy
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
