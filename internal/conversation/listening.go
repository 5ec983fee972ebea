package conversation

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A listening is a request of a modern client that wants to hear of things.
type listening struct{ *Request }

// plan returns the plan of a modern client that wants to hear of tasks of the
// gate's own, together with the upstream if it wants to hear of anything else. It
// returns nil for other clients.
func (l listening) plan(m *jsonrpc.Message) *Plan {
	if l.era != wire.Modern || !l.listens {
		return nil
	}
	own, rest := l.ownTasks()
	switch {
	case len(own) == 0:
		return nil
	case !declaresTasks(m):
		return answers(func(context.Context) error { return l.AnswerError(mcptask.MissingExtension()) })
	case rest == nil:
		return answers(func(ctx context.Context) error { return l.alone(ctx, own) })
	}
	asked, err := l.read(m.Raw) // whose places count from its own start, not from that of the body
	if err != nil {
		return answers(func(context.Context) error { return l.reply.Fail(err) })
	}
	var patch jsonrpc.Patch
	patch.Set(asked.Params.Value, "notifications", rest)
	return &Plan{Kind: Forward, Own: own, Body: patch.Apply(asked.Raw)}
}

// ownTasks returns the tasks of the gate's own that a modern client wants to
// hear of, and the rest of its wishes, which is nil if there are none.
func (l listening) ownTasks() (own []task.ID, rest []byte) {
	var foreign [][]byte
	named := make(map[task.ID]bool)
	ids := l.asked.Member("taskIds")
	for element := range ids.Elements() {
		text, _ := element.Text()
		id := task.ID(text)
		switch {
		case !id.Own():
			foreign = append(foreign, element.Bytes)
		case !named[id]:
			named[id] = true
			own = append(own, id)
		}
	}
	others := jsonrpc.Value{Bytes: l.asked.Without("taskIds")}
	if foreign != nil {
		var patch jsonrpc.Patch
		patch.Insert(others, "taskIds", jsonrpc.Array(foreign))
		return own, patch.Apply(others.Bytes)
	}
	for range others.Members() {
		return own, others.Bytes
	}
	return own, nil
}

// alone tells a modern client of the gate's own tasks only.
func (l listening) alone(ctx context.Context, own []task.ID) error {
	leave, err := l.EnterWaiting()
	if err != nil {
		return l.reply.Fail(err)
	}
	defer leave()
	return l.ListenAlone(ctx, &Plan{Own: own}, l.reply.Listen())
}

// ListenAlone tells a modern client of the gate's own tasks, and of lists that
// the gate changes, until it leaves. The upstream takes no part.
func (r *Request) ListenAlone(ctx context.Context, p *Plan, s Stream) error {
	r.hub.cfg.Metrics.StreamOpened(metrics.StreamPost)
	defer r.hub.cfg.Metrics.StreamClosed(metrics.StreamPost)
	defer s.Close()
	_, leave := r.hub.listeners.add(r.peer(), &listener{Request: r, stream: s}, nil)
	defer leave()
	known := r.Known(ctx, p.Own)
	if err := s.Send(join(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"`+wire.MetaSubscription+`":`, string(r.id),
		`},"notifications":`, string(r.ownPart(p, known)), `}}`)); err != nil {
		return err
	}
	if p.Own == nil {
		r.keepAlive(ctx, s)
	} else {
		r.FollowTasks(ctx, s, known)
	}
	if r.gone() {
		return ErrGone
	}
	// It is the gate that ends the stream.
	return s.Send(jsonrpc.AppendResult(nil, r.id, join(`{"resultType":"complete","_meta":{"`+wire.MetaSubscription+`":`, string(r.id), `}}`)))
}

// StreamAlone serves a legacy client with a stream of the gate's own, because its
// upstream has none.
func (r *Request) StreamAlone(ctx context.Context) error {
	r.hub.cfg.Metrics.StreamOpened(metrics.StreamGet)
	defer r.hub.cfg.Metrics.StreamClosed(metrics.StreamGet)
	s := r.reply.Listen()
	defer s.Close()
	defer r.Hear(ctx, s)()
	if err := s.Send(nil); err != nil {
		return err
	}
	r.keepAlive(ctx, s)
	if r.gone() {
		return ErrGone
	}
	return s.Send(nil)
}

// keepAlive sends a comment now and then, until ctx ends or the client is lost.
func (r *Request) keepAlive(ctx context.Context, s Stream) {
	beat := time.NewTicker(r.hub.Beat())
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !s.Beat(listeningText) {
				return
			}
			beat.Reset(r.hub.Beat()) // it may have been changed
		}
	}
}

const listeningText = "listening"

// WantsLists reports whether a modern client wants to hear of changed lists that
// the gate may change.
func (r *Request) WantsLists() bool {
	return r.era == wire.Modern && r.listens && r.hub.Governs() && len(r.listWishes()) > 0
}

// listWishes returns the kinds of lists of whose changes a modern client wants to
// hear, as it asks for them.
func (r *Request) listWishes() []string {
	var wishes []string
	for _, kind := range listKinds {
		if r.wants(kind) {
			wishes = append(wishes, kind+"ListChanged")
		}
	}
	return wishes
}

// ownPart returns what the gate alone can tell a modern client of what it asked
// for.
func (r *Request) ownPart(p *Plan, known []task.ID) []byte {
	part := []byte("{")
	for _, wish := range r.listWishes() {
		part = append(part, `"`+wish+`":true,`...)
	}
	if p.Own != nil {
		return append(append(append(part, `"taskIds":`...), jsonrpc.Array(idTexts(known))...), '}')
	}
	return append(part[:len(part)-1], '}')
}

func idTexts(ids []task.ID) [][]byte {
	var elements [][]byte
	for _, id := range ids {
		elements = append(elements, jsonrpc.AppendString(nil, string(id)))
	}
	return elements
}

// IsAcknowledgement reports whether m tells a modern client that it is listened to.
func IsAcknowledgement(m *jsonrpc.Message) bool {
	return m.Method == "notifications/subscriptions/acknowledged"
}

// Acknowledged returns the upstream's acknowledgement m with tasks of the gate's
// own added.
func Acknowledged(m *jsonrpc.Message, known []task.ID) []byte {
	accepted := m.Params.Member("notifications")
	var ids [][]byte
	for element := range accepted.Member("taskIds").Elements() {
		ids = append(ids, element.Bytes)
	}
	ids = append(ids, idTexts(known)...)
	var patch jsonrpc.Patch
	switch {
	case accepted.IsObject():
		patch.Set(accepted, "taskIds", jsonrpc.Array(ids))
	case m.Params.IsObject():
		patch.Set(m.Params.Value, "notifications", join(`{"taskIds":`, string(jsonrpc.Array(ids)), `}`))
	}
	return patch.Apply(m.Raw)
}

// Known returns those of the tasks that a client wants to hear of that exist and
// are its own. No upstream is asked for that: it may take its time.
func (r *Request) Known(ctx context.Context, own []task.ID) []task.ID {
	var found []task.ID
	for _, id := range own {
		if _, err := r.hub.cfg.Desk.Get(ctx, r.ref(id)); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// FollowTasks tells a modern client how its tasks stand, and then of every step,
// until ctx ends or the client is lost. The open stream shows that the owner is
// there, so an approved call begins.
func (r *Request) FollowTasks(ctx context.Context, s Stream, ids []task.ID) {
	owner, _ := r.owner()
	f, err := r.hub.cfg.Desk.Follow(ctx, owner, ids)
	if err != nil {
		r.hub.cfg.Log.WarnContext(ctx, "task notifications to a client failed", "cause", err)
		return
	}
	defer f.Close()
	defer r.connect(ctx, ids)()
	upstreams := followedUpstreams{r: r}
	defer upstreams.leave()
	r.touch(ctx, ids)
	defer func() { r.leave(ctx, f.Open()) }()
	for {
		news, err := f.Next(ctx, r.hub.Beat())
		if err != nil {
			return
		}
		if len(news) == 0 {
			if !s.Beat(listeningText) {
				return
			}
			r.touch(ctx, f.Open())
		}
		for _, t := range news {
			upstreams.hear(t)
			if !r.tellStatus(ctx, s, t) {
				return
			}
			if t.State == task.Approved {
				r.touch(ctx, []task.ID{t.ID})
			}
		}
	}
}

// tellStatus tells a modern client how a task stands, one that has ended with
// its result, and reports false if the client is lost. A status that cannot be
// read is left out: the client will see for itself when it asks.
func (r *Request) tellStatus(ctx context.Context, s Stream, t task.Task) bool {
	text, err := r.dialect().StatusNotification(t, r.id)
	if err != nil {
		return true
	}
	told := s.Insert(func(to io.Writer) error { return text.Compose(to, r.hub.cfg.Desk.Open(ctx, t)) })
	if told {
		r.hub.notified(ctx, t, r.dialect().Status(t))
	}
	return told
}

// touch shows that the owner of tasks is there, which lets approved ones begin.
func (r *Request) touch(ctx context.Context, ids []task.ID) {
	for _, id := range ids {
		_, err := r.hub.cfg.Desk.Attend(ctx, r.ref(id), r.send())
		if err != nil && ctx.Err() == nil {
			r.hub.cfg.Log.DebugContext(ctx, "task not touched", "task_id", id, "cause", err)
		}
	}
}

// maxLeave is how long it may take to note that a client no longer waits.
const maxLeave = 5 * time.Second

// leave notes that the owner of tasks no longer waits for them on this stream.
func (r *Request) leave(ctx context.Context, ids []task.ID) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), maxLeave)
	defer stop()
	for _, id := range ids {
		if err := r.hub.cfg.Desk.Leave(ctx, r.ref(id)); err != nil {
			r.hub.cfg.Log.DebugContext(ctx, "the end of a stream was not noted", "task_id", id, "cause", err)
		}
	}
}

// storeRest is how long a store that failed is left in peace.
const storeRest = 5 * time.Second

// following returns what follows the tasks of the client if its stream is one on
// which it hears of them unasked, and nil otherwise. Modern clients name the
// tasks they want to hear of. A client that cannot be told from others hears of
// none: the id alone would give access. Versions before tasks have no word for
// them.
func (r *Request) following() follower {
	owner, shared := r.owner()
	version := r.client.Transport().Version
	if r.era != wire.Legacy || shared || !r.hub.Holds() || version != "" && version != wire.Version20251125 {
		return nil
	}
	peer := r.peer()
	return func(ctx context.Context, begun func()) { r.hub.followOwner(ctx, owner, peer, begun) }
}

// followOwner tells a legacy client of all tasks of its owner, each step on one
// of its streams, until ctx ends. A store that is down is asked again.
func (h *Hub) followOwner(ctx context.Context, owner, peer string, begun func()) {
	for ctx.Err() == nil {
		f, err := h.cfg.Desk.FollowAll(ctx, owner)
		begun()
		if err == nil {
			h.tellPeer(ctx, peer, f)
			return
		}
		h.cfg.Log.WarnContext(ctx, "task notifications to a client are interrupted", "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(storeRest):
		}
	}
}

func (h *Hub) tellPeer(ctx context.Context, peer string, f *approval.Following) {
	defer f.Close()
	for {
		news, err := f.Next(ctx, time.Hour)
		if err != nil {
			return
		}
		dialect := h.dialect(wire.Legacy)
		for _, t := range news {
			var message bytes.Buffer
			text, err := dialect.StatusNotification(t, nil)
			if err == nil && text.Compose(&message, nil) == nil && // to legacy clients results are not told
				h.tellOne(peer, t.ID, message.Bytes()) {
				h.notified(ctx, t, dialect.Status(t))
			}
		}
	}
}

// tellOne sends a message about a task on one stream of a legacy client, and
// reports whether there was one.
func (h *Hub) tellOne(peer string, id task.ID, message []byte) bool {
	for _, l := range h.listeners.of(peer, id) {
		if l.stream.Insert(writes(message)) {
			return true
		}
	}
	return false
}
