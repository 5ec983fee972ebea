package conversation

import (
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

// A StreamFilter decides what a client sees of messages that the upstream sends
// on a stream without being asked. The upstream speaks there of tasks too that it
// made of held calls, which the client knows by another id; and if the client has
// taken up the stream again, lists may come on it. It is for one goroutine.
type StreamFilter struct {
	*Request

	origins map[string]origin
	lookups *rate.Limiter
}

// Filter returns the filter of the stream that the client opened.
func (r *Request) Filter() *StreamFilter { return &StreamFilter{Request: r} }

// Concerns reports whether a text may hold a message that the filter has to see.
// A text with escapes may be anything.
func (f *StreamFilter) Concerns(text []byte) bool {
	return f.resumed || Look(text) != (Signs{})
}

// Shown returns what the client sees of a message that it may expect, and false if
// that is nothing.
func (f *StreamFilter) Shown(m *jsonrpc.Message) (message []byte, shown bool) {
	switch {
	case upstream.TellsOfOwnTask(m, ""), m.Method == mcptask.MethodStatus2025 && f.isOwn(m):
		return nil, false
	case m.Kind == jsonrpc.Response && f.resumed:
		return f.listIn(m), true
	case m.Params.Meta.Member(mcptask.MetaRelatedTask).Present():
		return f.renamed(m).Raw, true
	default:
		return m.Raw, true
	}
}

// listIn returns a response with the list in it as the client gets to see it. The
// gate does not know here what was asked for, so it knows a list by its form. A
// list that is too large to be held passes as it is: what is hidden is denied all
// the same.
func (f *StreamFilter) listIn(m *jsonrpc.Message) []byte {
	if method, ok := wire.ListedBy(m); ok {
		return lists{f.Request}.viewed(method, m)
	}
	return m.Raw
}

// renamed returns a message that the upstream sends because of one of its tasks,
// with the id by which the client knows that if it was made of a held call.
func (f *StreamFilter) renamed(m *jsonrpc.Message) *jsonrpc.Message {
	upstreams, _ := m.Params.Meta.Member(mcptask.MetaRelatedTask).Member("taskId").Text()
	if own := f.originOf(upstreams).id; own != "" {
		return upstream.RenameTask(m, upstreams, string(own))
	}
	return m
}

// isOwn takes note of what the upstream says of its task, and reports whether
// that is one of a held call.
func (f *StreamFilter) isOwn(m *jsonrpc.Message) bool {
	said, err := upstream.ReadReport(m.Params.Value, wire.Legacy)
	if err != nil {
		return false
	}
	from := f.originOf(said.Task)
	if from.id == "" && !from.assumed {
		return false
	}
	if from.id != "" {
		f.hub.record(f.reply.Context(), f.ref(from.id), said)
	}
	f.hub.cfg.Metrics.Notified(metrics.FromUpstream)
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
func (f *StreamFilter) originOf(upstreamTask string) origin {
	if !f.hub.Holds() {
		return origin{}
	}
	if known, ok := f.origins[upstreamTask]; ok && (known.until.IsZero() || time.Now().Before(known.until)) {
		return known
	}
	if f.lookups == nil {
		f.lookups, f.origins = rate.NewLimiter(lookupsPerSecond, lookupBurst), make(map[string]origin)
	}
	ctx := f.reply.Context()
	if f.lookups.Wait(ctx) != nil {
		return origin{assumed: true} // the client is gone
	}
	owner, _ := f.owner()
	id, assumed, err := f.hub.cfg.Desk.MadeOf(ctx, owner, upstreamTask)
	if err != nil {
		f.hub.cfg.Log.WarnContext(ctx, "cannot find the held call of an upstream's task", "cause", err)
		return origin{assumed: true}
	}
	found := origin{id: id, assumed: assumed}
	if id == "" {
		found.until = time.Now().Add(ReportInterval)
	}
	if len(upstreamTask) > maxOriginID {
		return found
	}
	if len(f.origins) >= maxOrigins {
		clear(f.origins)
	}
	f.origins[strings.Clone(upstreamTask)] = found
	return found
}
