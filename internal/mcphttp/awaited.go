package mcphttp

import (
	"bytes"
	"net/http"
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
// taken up again, unless the gate itself owes the client that answer.

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
	a.ids[peer] = append(a.ids[peer], ids...)
	return func() { a.remove(peer, ids) }
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
// that make a number of every id.
func alike(a, b []byte) bool {
	if jsonrpc.SameID(a, b) {
		return true
	}
	one, err := strconv.ParseFloat(idText(a), 64)
	other, otherErr := strconv.ParseFloat(idText(b), 64)
	return err == nil && otherErr == nil && one == other
}

func idText(id []byte) string {
	if text, ok := (jsonrpc.Value{Bytes: id}).Text(); ok {
		return strings.TrimSpace(text)
	}
	return string(id)
}

// await notes that the gate itself is going to answer this exchange's requests.
func (x *exchange) await() {
	if x.answered != nil {
		return
	}
	ids := x.ids
	if len(ids) == 0 && x.id != nil {
		ids = [][]byte{x.id}
	}
	x.answered = x.h.awaited.add(x.peer(), ids)
}

// expects reports whether the upstream may say m to the client on this exchange.
func (x *exchange) expects(m *jsonrpc.Message) bool {
	switch {
	case m.Kind != jsonrpc.Response:
		return true
	case x.r.Method == http.MethodGet:
		return x.resumes() && !x.h.awaited.has(x.peer(), m.ID.Bytes)
	case !m.ID.Present() || m.ID.IsNull():
		return true // that the request could not be read
	default:
		return slices.ContainsFunc(x.ids, func(id []byte) bool { return jsonrpc.SameID(id, m.ID.Bytes) })
	}
}

// mayAnswer reports whether an event may hold a response, for a client that may
// ignore the case of names. What is escaped may be anything.
func mayAnswer(raw []byte) bool {
	return containsFold(raw, "result") || containsFold(raw, "error") ||
		bytes.IndexByte(raw, '\\') >= 0 || bytes.Contains(raw, []byte("\u017f")) // which is an s in another case
}

// containsFold reports whether text contains an ASCII word in lower case, or the
// same in another case.
func containsFold(text []byte, word string) bool {
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i]|0x20 == word[0] && strings.EqualFold(string(text[i:i+len(word)]), word) {
			return true
		}
	}
	return false
}

// dropped counts and logs an answer that nobody asked for.
func (x *exchange) dropped() {
	x.h.cfg.Metrics.Refused(string(wire.UpstreamUnasked))
	x.h.cfg.Log.WarnContext(logging.Limited(x.ctx, string(wire.UpstreamUnasked), x.upstream.Name()), "the upstream sent an answer to no request of this client; it was dropped",
		"upstream", x.upstream.Name())
}

// answersOnly returns an event on the stream that answers a request without
// responses to any other request.
func (s *eventRelay) answersOnly(raw []byte) ([]byte, error) {
	if !mayAnswer(raw) {
		return raw, nil
	}
	return s.withoutUnasked(raw, eventOf(raw))
}

// withoutUnasked returns an event without the responses in it that the client
// must not be given.
func (s *eventRelay) withoutUnasked(raw []byte, event jsonrpc.Event) ([]byte, error) {
	text := bytes.TrimSpace(event.Data)
	if len(text) == 0 {
		return raw, nil
	}
	packet, err := jsonrpc.Parse(text, jsonrpc.Limits{Depth: s.x.h.cfg.Limits.Parse.Depth, Batch: upstream.MaxWhole})
	if err != nil {
		return s.unread(raw, event)
	}
	var kept [][]byte
	for i := range packet.Messages {
		if s.x.expects(&packet.Messages[i]) {
			kept = append(kept, packet.Messages[i].Raw)
		} else {
			s.x.dropped()
		}
	}
	switch {
	case len(kept) == len(packet.Messages):
		return raw, nil
	case len(kept) == 0:
		return placeOf(event), nil
	default:
		event.Data = jsonrpc.Array(kept)
		return jsonrpc.AppendEvent(nil, event), nil
	}
}

// unread returns what the client gets of an event that the gate cannot read, and
// that another parser may take for a response: nothing on a GET stream, and the
// event itself elsewhere unless the client waits for the gate, or some client may
// take it for another answer.
func (s *eventRelay) unread(raw []byte, event jsonrpc.Event) ([]byte, error) {
	switch {
	case s.x.r.Method == http.MethodGet && mayAnswer(raw):
		s.x.dropped()
		return placeOf(event), nil
	case s.x.r.Method != http.MethodGet && (s.x.h.awaited.any(s.x.peer()) || s.x.deceives(event.Data)):
		return nil, upstream.ErrUnchecked
	default:
		return raw, nil
	}
}

// placeOf returns an event without its message. The place to resume from stays.
func placeOf(event jsonrpc.Event) []byte {
	event.Data, event.Name = nil, ""
	return jsonrpc.AppendEvent(nil, event)
}

// unasked returns the problem of a body that answers another request than it
// belongs to.
func (x *exchange) unasked(body []byte) *wire.Problem {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return nil
	}
	packet, err := jsonrpc.Parse(body, jsonrpc.Limits{Depth: x.h.cfg.Limits.Parse.Depth, Batch: upstream.MaxWhole})
	if !mayAnswer(body) || err != nil && !x.h.awaited.any(x.peer()) && !x.deceives(body) {
		return nil
	}
	if err == nil && !slices.ContainsFunc(packet.Messages, func(m jsonrpc.Message) bool { return !x.expects(&m) }) {
		return nil
	}
	return &wire.Problem{Type: wire.UpstreamUnasked, Cause: err}
}
