package mcphttp

import (
	"bytes"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// resumes reports whether the client takes up a stream that may have been
// another request's, so that the answer to that may come on this one.
func (x *exchange) resumes() bool {
	return x.r.Method == http.MethodGet && x.r.Header.Get("Last-Event-Id") != ""
}

// overheard returns what a client is to see of an event on its GET stream. There
// the upstream also speaks of tasks that it made of held calls, which the client
// knows by another id; and if the stream is one that the client has taken up
// again, lists may come on it.
func (s *eventRelay) overheard(raw []byte) ([]byte, error) {
	resumed := s.x.resumes()
	if !resumed && !aboutTask(raw) && !mayAnswer(raw) {
		return raw, nil
	}
	event := eventOf(raw)
	m, err := s.x.readMessage(event.Data)
	switch {
	case err != nil || !s.x.expects(m):
		return s.withoutUnasked(raw, event)
	case m.Method == mcptask.MethodLegacyStatus && s.x.isOwn(m):
		return placeOf(event), nil
	case m.Kind == jsonrpc.Response && resumed:
		return s.resumedList(raw, event, m), nil
	case m.Params.Meta.Member(mcptask.MetaRelatedTask).Present():
		event.Data = s.x.asKnown(m).Raw
		return jsonrpc.AppendEvent(nil, event), nil
	default:
		return raw, nil
	}
}

// aboutTask reports whether an event may be about a task. What is escaped may be
// anything.
func aboutTask(raw []byte) bool {
	return bytes.Contains(raw, []byte("tasks/status")) || bytes.Contains(raw, []byte("related-task")) || bytes.IndexByte(raw, '\\') >= 0
}

// asKnown returns a message that the upstream sends because of one of its tasks,
// with the id by which the client knows that if it was made of a held call.
func (x *exchange) asKnown(m *jsonrpc.Message) *jsonrpc.Message {
	if x.h.cfg.Desk == nil {
		return m
	}
	owner, _ := x.owner()
	ids, err := x.h.cfg.Desk.UpstreamTasks(x.r.Context(), owner)
	if err != nil {
		x.h.cfg.Log.WarnContext(x.r.Context(), "which task an upstream speaks of is not known", "cause", err)
	}
	upstreams, _ := m.Params.Meta.Member(mcptask.MetaRelatedTask).Member("taskId").Text()
	if own, ok := ids[upstreams]; ok {
		return renamed(m, upstreams, string(own))
	}
	return m
}

// isOwn takes note of what the upstream says of its task, and reports whether
// that is one of a held call.
func (x *exchange) isOwn(m *jsonrpc.Message) bool {
	owner, _ := x.owner()
	report, err := readReport(m.Params.Value, wire.Legacy)
	if err != nil || x.h.cfg.Desk == nil {
		return false
	}
	ours, err := x.h.cfg.Desk.Overheard(x.r.Context(), owner, report)
	if err != nil {
		x.h.cfg.Log.WarnContext(x.r.Context(), "what an upstream said of its task is not noted", "cause", err)
	}
	if ours {
		x.h.cfg.Metrics.Notified(metrics.FromUpstream)
	}
	return ours
}

// resumedList returns an event with its message changed if that is a list. What
// was asked for is not known here, so a list is known by its looks. One that is
// too large to be held passes as it is: what is hidden is denied all the same.
func (s *eventRelay) resumedList(raw []byte, event jsonrpc.Event, m *jsonrpc.Message) []byte {
	method, ok := wire.ListedBy(m)
	if !ok {
		return raw
	}
	data := s.x.viewed(method, m)
	if bytes.Equal(data, event.Data) {
		return raw
	}
	event.Data = data
	return jsonrpc.AppendEvent(nil, event)
}
