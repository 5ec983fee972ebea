package mcphttp

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
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
	case m.Method == mcptask.MethodLegacyStatus && s.isOwn(m):
		return placeOf(event), nil
	case m.Kind == jsonrpc.Response && resumed:
		return s.resumedList(raw, event, m), nil
	case m.Params.Meta.Member(mcptask.MetaRelatedTask).Present():
		event.Data = s.asKnown(m).Raw
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
func (s *eventRelay) asKnown(m *jsonrpc.Message) *jsonrpc.Message {
	upstreams, _ := m.Params.Meta.Member(mcptask.MetaRelatedTask).Member("taskId").Text()
	if own := s.originOf(upstreams).id; own != "" {
		return upstream.RenameTask(m, upstreams, string(own))
	}
	return m
}

// isOwn takes note of what the upstream says of its task, and reports whether
// that is one of a held call.
func (s *eventRelay) isOwn(m *jsonrpc.Message) bool {
	said, err := upstream.ReadReport(m.Params.Value, wire.Legacy)
	if err != nil {
		return false
	}
	from := s.originOf(said.Task)
	if from.id == "" && !from.assumed {
		return false
	}
	h := s.x.h
	h.cfg.Metrics.Notified(metrics.FromUpstream)
	if from.id != "" {
		owner, _ := s.x.owner()
		h.note(s.x.ctx, task.OwnedBy(owner).Ref(from.id), said)
	}
	return true
}

// An origin says of which held call an upstream made a task.
type origin struct {
	id      task.ID   // empty if of none that is known
	assumed bool      // it may be one whose task is not known yet
	until   time.Time // when to look again; zero means never
}

// How often, and for how many tasks of the upstream's, one stream looks up their
// origin. An upstream that names others all the time is read more slowly.
const (
	lookupsPerSecond = 20
	lookupBurst      = 100
	maxOrigins       = 1000
	maxOriginID      = 256 // bytes of an id whose origin is remembered
)

// originOf returns of which held call the upstream made a task.
func (s *eventRelay) originOf(upstreamTask string) origin {
	x := s.x
	if x.h.cfg.Desk == nil {
		return origin{}
	}
	if known, ok := s.origins[upstreamTask]; ok && (known.until.IsZero() || time.Now().Before(known.until)) {
		return known
	}
	if s.lookups == nil {
		s.lookups, s.origins = rate.NewLimiter(lookupsPerSecond, lookupBurst), make(map[string]origin)
	}
	ctx := x.ctx
	if s.lookups.Wait(ctx) != nil {
		return origin{assumed: true} // the client is gone
	}
	owner, _ := x.owner()
	id, assumed, err := x.h.cfg.Desk.MadeOf(ctx, owner, upstreamTask)
	if err != nil {
		x.h.cfg.Log.WarnContext(ctx, "cannot find the held call of an upstream's task", "cause", err)
		return origin{assumed: true}
	}
	found := origin{id: id, assumed: assumed}
	if id == "" {
		found.until = time.Now().Add(reportInterval)
	}
	if len(upstreamTask) > maxOriginID {
		return found
	}
	if len(s.origins) >= maxOrigins {
		clear(s.origins)
	}
	s.origins[strings.Clone(upstreamTask)] = found
	return found
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
