package stdioclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// ownRequests are the requests of the gate's own that the server has not answered
// yet, by the ids that the server knows them by.
type ownRequests struct {
	count atomic.Int64
	mu    sync.Mutex
	byID  map[string]*ownRequest
}

// An ownRequest is a request of the gate's own, or a batch that was held as a
// whole.
type ownRequest struct {
	ids     map[string][]byte // the id that the gate uses, by the one that the server knows
	child   *child            // the server that was sent it; nil before
	batch   bool
	answers [][]byte
	missing int
	problem error
	done    chan struct{} // closed when it is answered, or is not going to be
	hears   listener      // takes what the server says of the request; nil if somebody waits for the answer alone

	tokens map[string][]byte // the progress token that the client uses, by the one that the server knows
}

// A listener takes what the server says of a request, as it comes. Its methods
// never wait.
type listener interface {
	add(message []byte)
	answer(message []byte)
	end(why error) // nothing more comes
}

// newID returns an id that no client can guess.
func newID() string { return "tg-" + rand.Text() }

// any reports whether there are any.
func (o *ownRequests) any() bool { return o.count.Load() > 0 }

// add takes the requests in a packet in and returns the body to send, in which they
// have other ids.
func (o *ownRequests) add(p jsonrpc.Packet, body []byte, hears listener) (*ownRequest, []byte) {
	q := &ownRequest{ids: make(map[string][]byte), batch: p.Batch, done: make(chan struct{}), hears: hears}
	var patch jsonrpc.Patch
	for i := range p.Messages {
		if m := &p.Messages[i]; m.Kind == jsonrpc.Request {
			id := newID()
			q.ids[id] = bytes.Clone(m.ID.Bytes)
			patch.Replace(m.ID, jsonrpc.AppendString(nil, id))
			q.renameToken(&patch, m, id)
		}
	}
	q.missing = len(q.ids)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = make(map[string]*ownRequest)
	}
	for id := range q.ids {
		o.byID[id] = q
	}
	o.count.Store(int64(len(o.byID)))
	return q, patch.Apply(body)
}

// remove takes a request out.
func (o *ownRequests) remove(q *ownRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range q.ids {
		delete(o.byID, id)
	}
	o.count.Store(int64(len(o.byID)))
}

// sendBy has a request sent to a server. If that has ended, the request fails.
func (o *ownRequests) sendBy(q *ownRequest, ch *child, write func() error) error {
	o.mu.Lock()
	q.child = ch
	o.mu.Unlock()
	return write()
}

// wireID returns the id by which the server knows the request that the gate gave
// an id, if it is under way.
func (o *ownRequests) wireID(id []byte) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for known, q := range o.byID {
		if jsonrpc.SameID(q.ids[known], id) {
			return known, true
		}
	}
	return "", false
}

// find returns the request that the server knows by an id.
func (o *ownRequests) find(id []byte) (*ownRequest, string) {
	text, ok := jsonrpc.Value{Bytes: id}.Text()
	if !ok {
		return nil, ""
	}
	return o.byID[text], text
}

// fail ends the request that the server knows by an id with a problem, and reports
// whether there is one.
func (o *ownRequests) fail(id []byte, problem error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, _ := o.find(id)
	if q != nil {
		q.fail(problem)
	}
	return q != nil
}

// failAll ends the requests that a server was sent with a problem.
func (o *ownRequests) failAll(ch *child, problem error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.byID {
		if q.child == ch {
			q.fail(problem)
		}
	}
}

// fail ends the request with a problem, unless it has ended. The caller holds the
// lock of all requests.
func (q *ownRequest) fail(problem error) {
	if q.missing == 0 {
		return
	}
	q.missing, q.problem = 0, problem
	if q.hears != nil {
		q.hears.end(problem)
	}
	close(q.done)
}

// take takes the answers to own requests out of a line, and returns the rest.
func (o *ownRequests) take(line upstream.Line, depth int) []upstream.Line {
	if line.Err != nil {
		return o.takeUnread(line)
	}
	var rest []upstream.Line
	taken := false
	for i := range line.Packet.Messages {
		m := &line.Packet.Messages[i]
		if o.takeMessage(m) {
			taken = true
		} else if line.Packet.Batch {
			rest = append(rest, upstream.ReadLine(m.Raw, depth))
		}
	}
	if !taken {
		return []upstream.Line{line}
	}
	return rest
}

// takeUnread is take for a line that the gate cannot read.
func (o *ownRequests) takeUnread(line upstream.Line) []upstream.Line {
	var scan jsonrpc.AnswerScanner
	_ = scan.Scan(line.Text) // what it has found by then counts
	taken := false
	for _, id := range scan.IDs() {
		problem := &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the server's answer cannot be read", Cause: line.Err}
		taken = o.fail(id, problem) || taken
	}
	if taken {
		return nil
	}
	return []upstream.Line{line}
}

// takeMessage reports whether a message is for the gate itself, and takes it.
func (o *ownRequests) takeMessage(m *jsonrpc.Message) bool {
	id := m.ID.Bytes
	switch m.Kind {
	case jsonrpc.Request:
		return false
	case jsonrpc.Notification:
		id = m.Params.Meta.Member(wire.MetaSubscription).Bytes
		if m.Method == methodProgress {
			id = m.Params.Member(memberToken).Bytes
		}
	case jsonrpc.Response:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	q, known := o.find(id)
	switch {
	case q == nil:
		return false
	case q.missing == 0:
	case m.Kind == jsonrpc.Notification:
		q.notified(m, known)
	default:
		q.answered(m, known)
	}
	return true
}

// answered takes the server's answer to what the server knows by an id.
func (q *ownRequest) answered(m *jsonrpc.Message, known string) {
	answer, err := q.renamed(m, known)
	if err != nil {
		q.fail(&wire.Problem{Type: wire.UpstreamInvalid, Cause: err})
		return
	}
	if q.hears == nil {
		q.answers = append(q.answers, answer)
	} else {
		q.hears.answer(answer)
	}
	if q.missing--; q.missing > 0 {
		return
	}
	if q.hears != nil {
		q.hears.end(io.EOF)
	}
	close(q.done)
}

// wait waits for the answer, which is an array for a batch.
func (q *ownRequest) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-q.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case q.problem != nil:
		return nil, q.problem
	case q.batch:
		return jsonrpc.Array(q.answers), nil
	default:
		return q.answers[0], nil
	}
}

// Send implements [upstream.Server].
func (c *Client) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	r.Body = upstream.ContinueTrace(ctx, r.Message, r.Body)
	packet, err := jsonrpc.Parse(r.Body, jsonrpc.Limits{})
	if err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	if r.Message.Kind == jsonrpc.Notification && !packet.Batch {
		return c.notify(ctx, r.Message, r.Body)
	}
	sent := time.Now()
	resp, err := c.ask(ctx, r, packet)
	outcome := metrics.Success
	if err != nil {
		outcome = metrics.Error
	}
	c.cfg.Metrics.UpstreamDone(outcome, time.Since(sent))
	return resp, err
}

// ask sends a request of the gate's own and waits for the answer.
func (c *Client) ask(ctx context.Context, r upstream.Request, p jsonrpc.Packet) (*upstream.Response, error) {
	var stream *subscription
	s := sending{packet: p, body: r.Body, greet: c.greet}
	if r.Stream {
		stream = newSubscription()
		s.hears = stream
	}
	q, ch, err := c.send(ctx, s)
	if err != nil {
		return nil, err
	}
	if stream != nil {
		ended := context.AfterFunc(ctx, func() { stream.end(context.Cause(ctx)) })
		stream.onClose = func() {
			ended()
			c.abandon(ctx, ch, q)
		}
		return &upstream.Response{Status: http.StatusOK, Events: true, Body: stream}, nil
	}
	answer, err := q.wait(ctx)
	if err != nil {
		c.abandon(ctx, ch, q)
		return nil, err
	}
	c.own.remove(q)
	return &upstream.Response{Status: http.StatusOK, Body: io.NopCloser(bytes.NewReader(answer))}, nil
}

// A sending is a packet with requests that the server knows by ids of the gate's.
type sending struct {
	packet jsonrpc.Packet
	body   []byte
	hears  listener // see ownRequest
	greet  greeter  // nil if the packet is the greeting
	begin  func()   // is called before the first byte is sent; may be nil
}

// send sends a packet to the server, and returns which run of the server that was.
// If the server is just ending, the packet waits for the next run of it.
func (c *Client) send(ctx context.Context, s sending) (*ownRequest, *child, error) {
	q, ch, err := c.sendOnce(ctx, s)
	if unwritten := new(unwrittenError); errors.As(err, &unwritten) {
		select {
		case <-ch.ended:
			return c.sendOnce(ctx, s)
		case <-ctx.Done():
		}
	}
	return q, ch, err
}

// sendOnce is send to the present run of the server.
func (c *Client) sendOnce(ctx context.Context, s sending) (*ownRequest, *child, error) {
	ch, err := c.ready(ctx, s.greet)
	if err != nil {
		return nil, nil, &upstream.UnsentError{Cause: unreachable(err)}
	}
	c.mu.Lock()
	c.greeting.note(s.packet, s.body)
	c.mu.Unlock()
	q, body := c.own.add(s.packet, s.body, s.hears)
	begin := func() error { //nolint:unparam // others may have nothing sent
		if s.begin != nil {
			s.begin()
		}
		return nil
	}
	if err := c.own.sendBy(q, ch, func() error { return ch.writeAfter(ctx, begin, body) }); err != nil {
		c.own.remove(q)
		return nil, ch, unsent(ctx, err)
	}
	return q, ch, nil
}

// An unwrittenError says that nothing of a message could be written, since the
// server has ended or is about to.
type unwrittenError struct{ error }

// unsent returns the error of a request that could not be written.
func unsent(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInterrupted):
		return lostProblem(err)
	case ctx.Err() != nil:
		return &upstream.UnsentError{Cause: ctx.Err()}
	default:
		return &upstream.UnsentError{Cause: unreachable(&unwrittenError{err})}
	}
}

// cancelTime is how long it may take to tell the server that nobody waits for its
// answer any more.
const cancelTime = 5 * time.Second

// abandon takes out a request for whose answer nobody waits any more, and tells
// the server so.
func (c *Client) abandon(ctx context.Context, ch *child, q *ownRequest) {
	c.own.remove(q)
	select {
	case <-q.done:
		return
	default:
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	for id := range q.ids {
		_ = ch.write(ctx, cancellation(id)) // the server may be gone as well
	}
}

func cancellation(id string) []byte {
	text := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","method":"`+methodCancelled+`","params":{"requestId":`), id)
	return append(text, `}}`...)
}

// notify sends a notification of the gate's own. One that cancels a request names
// it as the server knows it.
func (c *Client) notify(ctx context.Context, m *jsonrpc.Message, body []byte) (*upstream.Response, error) {
	accepted := &upstream.Response{Status: http.StatusAccepted, Body: http.NoBody}
	ch := c.current.Load()
	if ch == nil {
		return accepted, nil // the server that it was meant for is gone
	}
	if m.Method == methodCancelled {
		id, underWay := c.own.wireID(m.Params.Member("requestId").Bytes)
		if !underWay {
			return accepted, nil
		}
		body = cancellation(id)
	}
	if err := ch.write(ctx, body); err != nil {
		return nil, unsent(ctx, err)
	}
	return accepted, nil
}
