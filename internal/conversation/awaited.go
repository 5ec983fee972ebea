package conversation

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Clients know an answer by its id, on whichever stream it comes. So an upstream
// could answer a call that it was never sent, while that waits for approval. What
// it answers is therefore passed on only where it was asked: on the stream, or in
// the body, that belongs to the request; and on a stream that the client has
// taken up again, if the request is one of those in [resumable] and the gate itself
// does not owe the client that answer.

// awaited are the ids of the requests that the gate itself is going to answer, by
// client.
type awaited struct {
	mu  sync.Mutex
	ids map[string][][]byte
}

// add takes ids in and returns what takes them out again.
func (a *awaited) add(peer string, ids [][]byte) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ids == nil {
		a.ids = make(map[string][][]byte)
	}
	kept := make([][]byte, len(ids))
	for i, id := range ids {
		kept[i] = bytes.Clone(id) // not the whole body that it came in
	}
	a.ids[peer] = append(a.ids[peer], kept...)
	return func() { a.remove(peer, kept) }
}

func (a *awaited) remove(peer string, ids [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.ids[peer]
	for _, id := range ids {
		if i := slices.IndexFunc(left, func(other []byte) bool { return bytes.Equal(id, other) }); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	if a.ids[peer] = left; len(left) == 0 {
		delete(a.ids, peer)
	}
}

// any reports whether the client waits for the gate at all.
func (a *awaited) any(peer string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ids[peer]) > 0
}

// has reports whether the client waits for the gate's answer to a request whose
// id it may take for the given one.
func (a *awaited) has(peer string, id []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.ids[peer], func(other []byte) bool { return alike(id, other) })
}

// alike reports whether some client takes two ids for the same: there are those
// that make a number of every id, and each reads texts in its own way. No honest
// server answers a number with a text.
func alike(a, b []byte) bool {
	one, isText := jsonrpc.Value{Bytes: a}.Text()
	other, isTextToo := jsonrpc.Value{Bytes: b}.Text()
	switch {
	case isText != isTextToo:
		return true
	case isText:
		return one == other || sameNumber(strings.TrimSpace(one), strings.TrimSpace(other))
	default:
		return bytes.Equal(a, b) || sameNumber(string(a), string(b))
	}
}

func sameNumber(a, b string) bool {
	one, err := strconv.ParseFloat(a, 64)
	other, otherErr := strconv.ParseFloat(b, 64)
	return err == nil && otherErr == nil && one == other
}

// claimAnswer notes that the gate itself is going to answer these requests, or some of
// them. Safe to repeat.
func (r *Request) claimAnswer() {
	if r.state.answered == nil {
		r.state.answered = r.hub.awaited.add(r.peer(), r.answerable())
	}
}

// answerable returns the ids of all requests of a client's message.
func (r *Request) answerable() (ids [][]byte) {
	switch {
	case r.packet.Batch:
		for i := range r.packet.Messages {
			ids = append(ids, requestIDs(&r.packet.Messages[i])...)
		}
	case len(r.ids) > 0:
		return r.ids
	case r.id != nil:
		ids = append(ids, r.id)
	}
	return ids
}

// Expects reports whether the upstream may say m to the client, where it answers
// this request or on the stream that the client opened.
func (r *Request) Expects(m *jsonrpc.Message) bool {
	switch {
	case m.Kind != jsonrpc.Response:
		return !upstream.TellsOfOwnTask(m, "")
	case r.unasked:
		return r.resumed && r.hub.resumable.has(r.peer(), m.ID.Bytes) && !r.hub.awaited.has(r.peer(), m.ID.Bytes)
	case !m.ID.Present() || m.ID.IsNull():
		return true // that the request could not be read
	default:
		return slices.ContainsFunc(r.ids, func(id []byte) bool { return jsonrpc.SameID(id, m.ID.Bytes) })
	}
}

// IsAnswer reports whether m is the response to the request.
func (r *Request) IsAnswer(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, r.id)
}

// Dropped counts and logs an answer that nobody asked for, or what is the gate's to say.
func (r *Request) Dropped() {
	r.hub.cfg.Metrics.Refused(string(wire.UpstreamUnasked))
	r.hub.cfg.Log.WarnContext(logging.Limited(r.reply.Context(), string(wire.UpstreamUnasked), r.upstream()),
		"the upstream sent an answer to no request of this client, or spoke of a task of the gate's; it was dropped", "upstream", r.upstream())
}

// A Remainder is what a client gets of a text of the upstream's.
type Remainder struct {
	All      bool     // the client gets the text as it is
	Messages [][]byte // what it gets otherwise; it may be nothing
}

// WithoutUnasked returns what the client gets of a text that holds messages: all
// but the responses that it must not be given. If the gate cannot read the text,
// and some client may take it for another answer, the text is dropped or refused
// with [upstream.ErrUnchecked].
func (r *Request) WithoutUnasked(text []byte) (Remainder, error) {
	packet, err := r.readPacket(text)
	if err != nil {
		return r.unreadable(text)
	}
	var kept [][]byte
	for i := range packet.Messages {
		if r.Expects(&packet.Messages[i]) {
			kept = append(kept, packet.Messages[i].Raw)
		} else {
			r.Dropped()
		}
	}
	return Remainder{All: len(kept) == len(packet.Messages), Messages: kept}, nil
}

func (r *Request) readPacket(text []byte) (jsonrpc.Packet, error) {
	return jsonrpc.Parse(text, jsonrpc.Limits{Depth: r.hub.cfg.Parse.Depth, Batch: upstream.MaxWhole})
}

// unreadable is WithoutUnasked for a text that the gate cannot read, and that
// another parser may take for a response or for a notification about a task.
func (r *Request) unreadable(text []byte) (Remainder, error) {
	signs := Look(text)
	switch {
	case signs.Answer && !r.unasked && r.mayDeceive(text):
		return Remainder{}, upstream.ErrUnchecked
	case signs.Answer && r.unasked, !signs.Answer && signs.Report && !r.passes(text):
		r.Dropped()
		return Remainder{}, nil
	default:
		return Remainder{All: true}, nil
	}
}

// mayDeceive reports whether the client may take a text that the gate cannot
// parse for an answer to another request.
func (r *Request) mayDeceive(text []byte) bool {
	return r.hub.awaited.any(r.peer()) || !r.passes(text)
}

// passes reports whether a text that the gate cannot parse passes its [Check].
func (r *Request) passes(text []byte) bool { return r.CheckText().PassLast(text) == nil }

// CheckAnswer reports whether a body is the answer to the request and tells of an
// error. It returns the problem of one that answers another request than it belongs
// to.
func (r *Request) CheckAnswer(body []byte) (isError bool, problem *wire.Problem) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return false, nil
	}
	packet, err := r.readPacket(body)
	switch {
	case err == nil && r.expectsAll(packet.Messages):
		return !packet.Batch && r.id != nil && r.IsAnswer(&packet.Messages[0]) && packet.Messages[0].Error.Present(), nil
	case err != nil && (Look(body) == (Signs{}) || !r.mayDeceive(body)):
		return false, nil
	default:
		return false, &wire.Problem{Type: wire.UpstreamUnasked, Cause: err}
	}
}

// expectsAll reports whether the client expects all of the messages.
func (r *Request) expectsAll(messages []jsonrpc.Message) bool {
	for i := range messages {
		if !r.Expects(&messages[i]) {
			return false
		}
	}
	return true
}
