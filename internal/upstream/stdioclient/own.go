package stdioclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"slices"
	"sync"
	"sync/atomic"

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

	answered []string          // the ids, as the server knows them, of what it has answered
	tokens   map[string][]byte // the progress token that the client uses, by the one that the server knows
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
	q, known := o.find(id)
	if q == nil || q.isAnswered(known) {
		return false
	}
	q.fail(problem)
	return true
}

// isAnswered reports whether the server has answered the request that it knows by an id.
func (q *ownRequest) isAnswered(known string) bool { return slices.Contains(q.answered, known) }

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
	case m.Kind == jsonrpc.Response && q.isAnswered(known):
		return false // a second answer to a request is an answer to nobody
	case q.missing == 0:
	case m.Kind == jsonrpc.Notification:
		q.notified(m, known)
	default:
		q.take(m, known)
	}
	return true
}

// take takes the server's answer to what the server knows by an id.
func (q *ownRequest) take(m *jsonrpc.Message, known string) {
	q.answered = append(q.answered, known)
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

const memberToken = "progressToken"

// renameToken gives the progress token of m, if there is one, the name id: other
// clients of the server may use the same one.
func (q *ownRequest) renameToken(patch *jsonrpc.Patch, m *jsonrpc.Message, id string) {
	token := m.Params.Meta.Member(memberToken)
	if _, relays := q.hears.(*Answers); !relays || !token.Present() {
		return
	}
	if q.tokens == nil {
		q.tokens = make(map[string][]byte)
	}
	q.tokens[id] = token.Clone().Bytes
	patch.Replace(token, jsonrpc.AppendString(nil, id))
}

// renamed returns a message about the request that the server knows by an id, with
// the id and the progress token that the client uses.
func (q *ownRequest) renamed(m *jsonrpc.Message, known string) ([]byte, error) {
	own, err := jsonrpc.ParseMessage(m.Raw, jsonrpc.Limits{}) // whose places count from its own start
	if err != nil {
		return nil, err
	}
	var patch jsonrpc.Patch
	meta := own.Params.Meta
	if own.Kind == jsonrpc.Response {
		patch.Replace(own.ID, q.ids[known])
		meta = own.Result.Member("_meta")
	}
	if id, ok := meta.Member(wire.MetaSubscription).Text(); ok && id == known {
		patch.Replace(meta.Member(wire.MetaSubscription), q.ids[known])
	}
	if own.Method == methodProgress && q.tokens[known] != nil {
		patch.Replace(own.Params.Member(memberToken), q.tokens[known])
	}
	return patch.Apply(own.Raw), nil
}

// notified takes what the server says of a request before it answers.
func (q *ownRequest) notified(m *jsonrpc.Message, known string) {
	if q.hears == nil {
		return
	}
	if text, err := q.renamed(m, known); err == nil {
		q.hears.add(text)
	}
}
