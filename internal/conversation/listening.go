package conversation

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// methodListen is the method of a modern client that subscribes.
const methodListen = "subscriptions/listen"

// A Listening is a request whose answer is a stream without an end of its own: the
// client hears there of its tasks and of changed lists.
type Listening struct{ *Request }

// Listening returns the request as one whose client listens.
func (r *Request) Listening() Listening { return Listening{r} }

// plan returns the plan of a modern client that wants to hear of tasks of the
// gate's own, together with the upstream if it wants to hear of anything else. It
// returns nil for other clients.
func (l Listening) plan(m *jsonrpc.Message) *Plan {
	if l.era != wire.Modern || !l.listens {
		return nil
	}
	own, rest := ownTasks(l.asked)
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

// ownTasks returns the tasks of the gate's own among what a modern client has asked to
// hear of, and the rest of its wishes, which is nil if there are none.
func ownTasks(asked jsonrpc.Value) (own []task.ID, rest []byte) {
	var foreign [][]byte
	named := make(map[task.ID]bool)
	ids := asked.Member("taskIds")
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
	others := jsonrpc.Value{Bytes: asked.Without("taskIds")}
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

// alone notifies a modern client of the gate's own tasks only.
func (l Listening) alone(ctx context.Context, own []task.ID) error {
	leave, err := l.EnterWaiting()
	if err != nil {
		return l.reply.Fail(err)
	}
	defer leave()
	return l.ListenAlone(ctx, &Plan{Own: own}, l.reply.Listen())
}

// ListenAlone notifies a modern client of the gate's own tasks, and of lists that
// the gate changes, until it leaves. The upstream takes no part.
func (l Listening) ListenAlone(ctx context.Context, p *Plan, s Stream) error {
	l.hub.cfg.Metrics.StreamOpened(metrics.StreamPost)
	defer l.hub.cfg.Metrics.StreamClosed(metrics.StreamPost)
	defer s.Close()
	_, leave := l.hub.listeners.add(l.peer(), &listener{Listening: l, stream: s}, nil)
	defer leave()
	known := l.Known(ctx, p.Own)
	if err := s.Send(join(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"`+wire.MetaSubscription+`":`, string(l.id),
		`},"notifications":`, string(l.ownPart(p, known)), `}}`)); err != nil {
		return err
	}
	if p.Own == nil {
		l.keepAlive(ctx, s)
	} else {
		l.FollowTasks(ctx, s, known)
	}
	if l.gone() {
		return ErrGone
	}
	// It is the gate that ends the stream.
	return s.Send(jsonrpc.AppendResult(nil, l.id, join(`{"resultType":"complete","_meta":{"`+wire.MetaSubscription+`":`, string(l.id), `}}`)))
}

// StreamAlone serves a legacy client with a stream of the gate's own, because its
// upstream has none.
func (l Listening) StreamAlone(ctx context.Context) error {
	l.hub.cfg.Metrics.StreamOpened(metrics.StreamGet)
	defer l.hub.cfg.Metrics.StreamClosed(metrics.StreamGet)
	s := l.reply.Listen()
	defer s.Close()
	defer l.Hear(ctx, s)()
	if err := s.Send(nil); err != nil {
		return err
	}
	l.keepAlive(ctx, s)
	if l.gone() {
		return ErrGone
	}
	return s.Send(nil)
}

// keepAlive sends a comment now and then, until ctx ends or the client is lost.
func (l Listening) keepAlive(ctx context.Context, s Stream) {
	beat := time.NewTicker(l.hub.Beat())
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !s.Beat(listeningText) {
				return
			}
			beat.Reset(l.hub.Beat()) // it may have been changed
		}
	}
}

const listeningText = "listening"

// WantsLists reports whether a modern client wants to hear of changed lists that
// the gate may change.
func (l Listening) WantsLists() bool {
	return l.era == wire.Modern && l.listens && l.hub.Governs() && len(l.listWishes()) > 0
}

// listWishes returns the kinds of lists of whose changes a modern client wants to
// hear, as it asks for them.
func (l Listening) listWishes() []string {
	var wishes []string
	for _, kind := range listKinds {
		if l.wants(kind) {
			wishes = append(wishes, kind+"ListChanged")
		}
	}
	return wishes
}

// ownPart returns what the gate alone can send a modern client of what it asked
// for.
func (l Listening) ownPart(p *Plan, known []task.ID) []byte {
	part := []byte("{")
	for _, wish := range l.listWishes() {
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

// IsAcknowledgement reports whether m acknowledges to a modern client that it is subscribed.
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
func (l Listening) Known(ctx context.Context, own []task.ID) []task.ID {
	var found []task.ID
	for _, id := range own {
		if _, err := l.hub.cfg.Desk.Get(ctx, l.ref(id)); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// FollowTasks sends a modern client how its tasks stand, and then of every step,
// until ctx ends or the client is lost. The open stream shows that the owner is
// there, so an approved call begins.
func (l Listening) FollowTasks(ctx context.Context, s Stream, ids []task.ID) {
	owner, _ := l.owner()
	f, err := l.hub.cfg.Desk.Follow(ctx, owner, ids)
	if err != nil {
		l.hub.cfg.Log.WarnContext(ctx, "task notifications to a client failed", "cause", err)
		return
	}
	defer f.Close()
	defer l.connect(ctx, ids)()
	upstreams := followedUpstreams{r: l.Request}
	defer upstreams.leave()
	l.touch(ctx, ids)
	defer func() { l.noteLeft(ctx, f.Open()) }()
	for {
		news, err := f.Next(ctx, l.hub.Beat())
		if err != nil {
			return
		}
		if len(news) == 0 {
			if !s.Beat(listeningText) {
				return
			}
			l.touch(ctx, f.Open())
		}
		told := true
		ownstack.Do(func() { told = l.sendNews(ctx, s, &upstreams, news) })
		if !told {
			return
		}
	}
}

// sendNews tells a modern client what has happened to its tasks, and reports false if
// the client is lost.
func (l Listening) sendNews(ctx context.Context, s Stream, upstreams *followedUpstreams, news []task.Task) bool {
	for _, t := range news {
		upstreams.hear(&t)
		if !l.sendStatus(ctx, s, t) {
			return false
		}
		if t.State == task.Approved {
			l.touch(ctx, []task.ID{t.ID})
		}
	}
	return true
}

// sendStatus sends a modern client how a task stands, one that has ended with
// its result, and reports false if the client is lost. A status that cannot be
// read is left out: the client will see for itself when it asks.
func (l Listening) sendStatus(ctx context.Context, s Stream, t task.Task) bool {
	text, err := l.dialect().StatusNotification(t, l.id)
	if err != nil {
		return true
	}
	sent := s.Insert(func(to io.Writer) error { return text.Compose(to, l.hub.cfg.Desk.Open(ctx, t)) })
	if sent {
		l.hub.notified(ctx, t, l.dialect().Status(t))
	}
	return sent
}

// touch shows that the owner of tasks is there, which lets approved ones begin.
func (l Listening) touch(ctx context.Context, ids []task.ID) {
	for _, id := range ids {
		if l.gone() {
			return
		}
		_, err := l.hub.cfg.Desk.Attend(ctx, l.ref(id), l.send())
		if err != nil && ctx.Err() == nil {
			l.hub.cfg.Log.DebugContext(ctx, "task not touched", "task_id", id, "cause", err)
		}
	}
}

// storeRest is how long a store that failed is left in peace.
const storeRest = 5 * time.Second

// following returns what follows the tasks of the client if its stream is one on
// which it hears of them unasked, and nil otherwise. Modern clients name the
// tasks they want to hear of. A client that cannot be distinguished from others hears of
// none: the id alone would give access. Versions before tasks have no word for
// them.
func (l Listening) following() follower {
	owner, shared := l.owner()
	version := l.client.Transport().Version
	if l.era != wire.Legacy || shared || !l.hub.Holds() || version != "" && version != wire.Version20251125 {
		return nil
	}
	peer := l.peer()
	return func(ctx context.Context, begun func()) { l.hub.followOwner(ctx, owner, peer, begun) }
}

// followOwner notifies a legacy client of all tasks of its owner, each step on one
// of its streams, until ctx ends. A store that is down is asked again.
func (h *Hub) followOwner(ctx context.Context, owner, peer string, begun func()) {
	for ctx.Err() == nil {
		f, err := h.cfg.Desk.FollowAll(ctx, owner)
		begun()
		if err == nil {
			h.notifyPeer(ctx, peer, f)
			return
		}
		h.cfg.Log.WarnContext(ctx, "task notifications to a client are interrupted", "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(storeRest):
		}
	}
}

func (h *Hub) notifyPeer(ctx context.Context, peer string, f *approval.Following) {
	defer f.Close()
	for {
		news, err := f.Next(ctx, time.Hour)
		if err != nil {
			return
		}
		ownstack.Do(func() { h.notifyAll(ctx, peer, news) })
	}
}

// notifyAll tells a legacy client what has happened to its tasks.
func (h *Hub) notifyAll(ctx context.Context, peer string, news []task.Task) {
	dialect := h.dialect(wire.Legacy)
	for _, t := range news {
		var message bytes.Buffer
		text, err := dialect.StatusNotification(t, nil)
		if err == nil && text.Compose(&message, nil) == nil && // legacy clients do not get results
			h.notifyOne(peer, t.ID, message.Bytes()) {
			h.notified(ctx, t, dialect.Status(t))
		}
	}
}

// notifyOne sends a message about a task on one stream of a legacy client, and
// reports whether there was one.
func (h *Hub) notifyOne(peer string, id task.ID, message []byte) bool {
	for _, l := range h.listeners.of(peer, id) {
		if l.stream.Insert(writes(message)) {
			return true
		}
	}
	return false
}
