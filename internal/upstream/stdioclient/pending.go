package stdioclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// pendingRequests are the gate's requests that the server has not answered. They are keyed by the
// id that the server got.
type pendingRequests struct {
	count atomic.Int64
	mu    sync.Mutex
	byID  map[string]*pendingRequest

	past     map[string]bool // answered ids of requests that were removed
	pastIDs  []string        // the same ids as a ring
	pastNext int             // index of the oldest id
}

// maxPast is how many answered ids are remembered.
const maxPast = 1024

// A pendingRequest is a request of the gate, or a batch that was held as a whole.
type pendingRequest struct {
	ids     map[string][]byte // original ids, by the ids that the server got
	child   *child            // the child that it was sent to; nil before
	batch   bool
	answers [][]byte
	missing int
	problem error
	done    chan struct{} // closed when it was answered or has failed
	queue   *Queue        // gets all messages about the request; nil if only the answer is wanted

	answered []string          // the answered ids, as the server got them
	tokens   map[string][]byte // original progress tokens, by the id that replaces them
}

// idPrefix begins every id that the gate gives a request.
const idPrefix = "tg-"

// newID returns an id that cannot be guessed.
func newID() string { return idPrefix + rand.Text() }

// any reports whether any request is pending.
func (o *pendingRequests) any() bool { return o.count.Load() > 0 }

// add registers the requests in a packet and returns the body to send, with new ids.
func (o *pendingRequests) add(p jsonrpc.Packet, queue *Queue) (*pendingRequest, []byte) {
	q := &pendingRequest{ids: make(map[string][]byte), batch: p.Batch, done: make(chan struct{}), queue: queue}
	messages := make([][]byte, len(p.Messages))
	for i := range p.Messages {
		m := &p.Messages[i]
		var patch jsonrpc.Patch
		if m.Kind == jsonrpc.Request {
			id := newID()
			q.ids[id] = bytes.Clone(m.ID.Bytes)
			patch.Replace(m.ID, jsonrpc.AppendString(nil, id))
			q.renameToken(&patch, m, id)
		}
		messages[i] = patch.Apply(m.Raw)
	}
	q.missing = len(q.ids)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = make(map[string]*pendingRequest)
	}
	for id := range q.ids {
		o.byID[id] = q
	}
	o.count.Store(int64(len(o.byID)))
	if p.Batch {
		return q, jsonrpc.Array(messages)
	}
	return q, messages[0]
}

// remove removes a request.
func (o *pendingRequests) remove(q *pendingRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range q.ids {
		delete(o.byID, id)
		if q.isAnswered(id) {
			o.remember(id)
		}
	}
	o.count.Store(int64(len(o.byID)))
}

// remember notes that the server has answered an id. The caller holds the lock.
func (o *pendingRequests) remember(id string) {
	if o.past == nil {
		o.past = make(map[string]bool)
	}
	if len(o.pastIDs) < maxPast {
		o.pastIDs = append(o.pastIDs, id)
	} else {
		delete(o.past, o.pastIDs[o.pastNext])
		o.pastIDs[o.pastNext] = id
		o.pastNext = (o.pastNext + 1) % maxPast
	}
	o.past[id] = true
}

// isStray reports whether an answer with this id shows that the server confuses its answers: the
// gate never sent the id, or it was answered before. An answer to an abandoned request is only
// late, and an answer without an id belongs to no request.
func (o *pendingRequests) isStray(id []byte) bool {
	if len(id) == 0 || string(id) == "null" {
		return false
	}
	text, _ := jsonrpc.Value{Bytes: id}.Text()
	o.mu.Lock()
	defer o.mu.Unlock()
	//mutate:swap "!strings.HasPrefix(text, idPrefix) || o.past[text] || o.byID[text] != nil" "strings.HasPrefix(text, idPrefix) && o.past[text]" internal/upstream/bridge.TestSharedProcessEndsAtStrayAnswer a shared process goes on after a stray answer
	//mutate:swap " || o.past[text] || o.byID[text] != nil" "" internal/upstream/bridge.TestSharedProcessEndsAtStrayAnswer a shared process goes on after a second answer
	return !strings.HasPrefix(text, idPrefix) || o.past[text] || o.byID[text] != nil
}

// sendBy sends a request with write to a child. If the child ends, the request fails.
func (o *pendingRequests) sendBy(q *pendingRequest, ch *child, write func() error) error {
	o.mu.Lock()
	q.child = ch
	o.mu.Unlock()
	return write()
}

// wireID returns the id that the server got for a pending request with this original id.
func (o *pendingRequests) wireID(id []byte) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for known, q := range o.byID {
		if jsonrpc.SameID(q.ids[known], id) {
			return known, true
		}
	}
	return "", false
}

// find returns the pending request that has an id at the server.
func (o *pendingRequests) find(id []byte) (*pendingRequest, string) {
	text, ok := jsonrpc.Value{Bytes: id}.Text()
	if !ok {
		return nil, ""
	}
	return o.byID[text], text
}

// fail ends the request with this id with a problem. It returns false if none is pending.
func (o *pendingRequests) fail(id []byte, problem error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, known := o.find(id)
	if q == nil || q.isAnswered(known) {
		return false
	}
	q.fail(problem)
	return true
}

// isAnswered reports whether the server has answered the request with this id.
func (q *pendingRequest) isAnswered(known string) bool { return slices.Contains(q.answered, known) }

// failAll ends the requests that a child was sent with a problem.
func (o *pendingRequests) failAll(ch *child, problem error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.byID {
		if q.child == ch {
			q.fail(problem)
		}
	}
}

// fail ends the request with a problem, unless it has ended. The caller holds the lock of
// pendingRequests.
func (q *pendingRequest) fail(problem error) {
	if q.missing == 0 {
		return
	}
	q.missing, q.problem = 0, problem
	if q.queue != nil {
		q.queue.End(problem)
	}
	close(q.done)
}

// take removes the answers to the gate's requests from a line and returns the rest.
func (o *pendingRequests) take(line upstream.Line, depth int) []upstream.Line {
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

// takeUnread is take for a line that is not valid.
func (o *pendingRequests) takeUnread(line upstream.Line) []upstream.Line {
	var scan jsonrpc.AnswerScanner
	_ = scan.Scan(line.Text) // the ids before the error count
	taken := false
	for _, id := range scan.IDs() {
		problem := &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server's answer cannot be read", Cause: line.Err}
		taken = o.fail(id, problem) || taken
	}
	if taken {
		return nil
	}
	return []upstream.Line{line}
}

// takeMessage handles a message about a request of the gate. It returns false for other messages.
func (o *pendingRequests) takeMessage(m *jsonrpc.Message) bool {
	id := m.ID.Bytes
	switch m.Kind {
	case jsonrpc.Request:
		return false
	case jsonrpc.Notification:
		id = m.Params.Meta.Member(mcpname.MetaSubscriptionID).Bytes
		if m.Method == mcpname.NotifyProgress {
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
	//mutate:false internal/upstream/bridge.TestSecondAnswerIsDropped two answers to one request of a batch count for two requests
	case m.Kind == jsonrpc.Response && q.isAnswered(known):
		return false // the request was already answered
	case q.missing == 0:
	case m.Kind == jsonrpc.Response:
		q.take(m, known)
	case q.queue != nil:
		q.queue.add(q.renamed(m, known))
	}
	return true
}

// take handles the server's answer to the request with this id.
func (q *pendingRequest) take(m *jsonrpc.Message, known string) {
	q.answered = append(q.answered, known)
	answer := q.renamed(m, known)
	if q.queue == nil {
		q.answers = append(q.answers, answer)
	} else {
		q.queue.answer(answer)
	}
	if q.missing--; q.missing == 0 {
		close(q.done)
	}
}

// wait waits for the answer. A batch is answered with an array.
func (q *pendingRequest) wait(ctx context.Context) ([]byte, error) {
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

// renameToken replaces the progress token of m with id: other clients of the server may use the
// same token.
func (q *pendingRequest) renameToken(patch *jsonrpc.Patch, m *jsonrpc.Message, id string) {
	token := m.Params.Meta.Member(memberToken)
	if q.queue == nil || !token.Present() {
		return
	}
	if q.tokens == nil {
		q.tokens = make(map[string][]byte)
	}
	q.tokens[id] = token.Clone().Bytes
	//mutate:drop internal/upstream/bridge.TestSharedProcessKeepsClientsApart progress of one client is sent to another
	patch.Replace(token, jsonrpc.AppendString(nil, id))
}

// renamed returns a message about the request with the original id and progress token.
func (q *pendingRequest) renamed(m *jsonrpc.Message, known string) []byte {
	var patch jsonrpc.Patch
	meta := m.Params.Meta
	if m.Kind == jsonrpc.Response {
		patch.Replace(m.ID, q.ids[known])
		meta = m.Result.Member("_meta")
	}
	if id, ok := meta.Member(mcpname.MetaSubscriptionID).Text(); ok && id == known {
		patch.Replace(meta.Member(mcpname.MetaSubscriptionID), q.ids[known])
	}
	if m.Method == mcpname.NotifyProgress && q.tokens[known] != nil {
		patch.Replace(m.Params.Member(memberToken), q.tokens[known])
	}
	return patch.Apply(m.Raw)
}
