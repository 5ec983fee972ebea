package mcphttp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// storeRest is how long a store that failed is left in peace.
const storeRest = 5 * time.Second

// hearing returns what follows the tasks of the client if its stream is one on
// which it hears of them unasked, and nil otherwise. Modern clients name the
// tasks they want to hear of. Who cannot be told from others hears of none: the
// id alone would give access. And versions before tasks have no word for them.
func (x *exchange) hearing() follower {
	owner, shared := x.owner()
	version := x.r.Header.Get("Mcp-Protocol-Version")
	if x.era != wire.Legacy || shared || x.h.cfg.Desk == nil || version != "" && version != wire.Version20251125 {
		return nil
	}
	peer := x.peer()
	return func(ctx context.Context, begun func()) { x.h.followOwner(ctx, owner, peer, begun) }
}

// followOwner tells a legacy client of all tasks of its owner, each step on one
// of its streams, until ctx ends. A store that is down is asked again.
func (h *Handler) followOwner(ctx context.Context, owner, peer string, begun func()) {
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

func (h *Handler) tellPeer(ctx context.Context, peer string, f *approval.Following) {
	defer f.Close()
	dialect := mcptask.Dialect{Era: mcptask.Legacy, PendingStatus: h.settings().Waiting.Pending}
	for {
		news, err := f.Next(ctx, time.Hour)
		if err != nil {
			return
		}
		for _, t := range news {
			var message bytes.Buffer
			text, err := dialect.StatusNotification(t, nil)
			if err == nil && text.Compose(&message, nil) == nil { // to legacy clients results are not told
				if h.tellOne(peer, t.ID, jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message.Bytes()})) {
					h.notified(ctx, t, dialect.Status(t))
				}
			}
		}
	}
}

// tellOne sends an event about a task on one stream of a legacy client, and
// reports whether there was one.
func (h *Handler) tellOne(peer string, id task.ID, event []byte) bool {
	for _, s := range h.listeners.of(peer, id) {
		if s.insert(event) {
			return true
		}
	}
	return false
}

// ownTasks returns the tasks of the gate's own that a modern client wants to
// hear of, and the rest of its wishes, which is empty if there are none.
func (x *exchange) ownTasks() (own []task.ID, rest []byte) {
	var foreign [][]byte
	named := make(map[task.ID]bool)
	ids := x.asked.Member("taskIds")
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
	others := jsonrpc.Value{Bytes: x.asked.Without("taskIds")}
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

// planListen returns the plan of a modern client that wants to hear of tasks of the
// gate's own, together with the upstream if it wants to hear of anything else. It
// returns nil for other clients.
func (x *exchange) planListen(m *jsonrpc.Message, body []byte) *plan {
	if x.era != wire.Modern || !x.listens {
		return nil
	}
	own, rest := x.ownTasks()
	switch {
	case len(own) == 0:
		return nil
	case !declaresTasks(m):
		return answered(func(context.Context) error { return x.answerError(mcptask.MissingExtension()) })
	default:
		return answered(func(ctx context.Context) error { return x.listen(ctx, m, body, own, rest) })
	}
}

// listen tells a modern client of its own tasks, and of the rest of its wishes
// what the upstream tells.
func (x *exchange) listen(ctx context.Context, m *jsonrpc.Message, body []byte, own []task.ID, rest []byte) error {
	leave, err := x.enterWaiting()
	if err != nil {
		return x.refuseCrowded(err)
	}
	defer leave()
	if rest == nil {
		if err := x.beginEvents(); err != nil {
			return err
		}
		return x.listenAlone(ctx, &plan{own: own}, &eventRelay{x: x})
	}
	asked, err := x.readMessage(m.Raw) // whose places count from its own start, not from that of the body
	if err != nil {
		return x.fail(err)
	}
	var patch jsonrpc.Patch
	patch.Set(asked.Params.Value, "notifications", rest)
	return x.forwardTraced(ctx, jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, body, &plan{own: own, body: patch.Apply(asked.Raw)})
}

// beginEvents begins an answer that is a stream of the gate's own events.
func (x *exchange) beginEvents() error {
	header := x.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no")
	x.begin(http.StatusOK)
	return x.flush()
}

// listenWithout serves a modern client that wants to hear of the gate as well as
// of the upstream, if the upstream does not answer with a stream.
func (x *exchange) listenWithout(ctx context.Context, p *plan) error {
	if p.own == nil {
		leave, err := x.enterWaiting()
		if err != nil {
			return x.refuseCrowded(err)
		}
		defer leave()
	}
	x.h.cfg.Log.InfoContext(ctx, "no notifications from the upstream: the client gets only those about held calls")
	if err := x.beginEvents(); err != nil {
		return err
	}
	return x.listenAlone(ctx, p, &eventRelay{x: x})
}

// hearsGateOnly reports whether a client that listens gets the gate's own events
// instead of the upstream's answer, which is nil if there is none. One that must
// identify itself better to be let in has to see that. A client that only wants
// to hear of changed lists, which the gate declares to tell of, is served if the
// upstream has no such method.
func (x *exchange) hearsGateOnly(p *plan, resp *http.Response) bool {
	if p.own == nil {
		return x.wantsLists() && resp != nil && resp.StatusCode == http.StatusNotFound
	}
	if resp == nil {
		return true
	}
	streams := httpclient.MediaType(resp.Header.Get("Content-Type")) == "text/event-stream" && resp.StatusCode < http.StatusMultipleChoices
	return !streams && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden
}

// wantsLists reports whether a modern client wants to hear of changed lists that
// the gate may change.
func (x *exchange) wantsLists() bool {
	return x.era == wire.Modern && x.listens && x.h.cfg.Gate.Governs() && len(x.listWishes()) > 0
}

// listWishes returns the kinds of lists of whose changes a modern client wants to
// hear, as it asks for them.
func (x *exchange) listWishes() []string {
	var wishes []string
	for _, kind := range listKinds {
		if x.wants(kind) {
			wishes = append(wishes, kind+"ListChanged")
		}
	}
	return wishes
}

// listenAlone tells a modern client of the gate's own tasks, and of lists that
// the gate changes, until it leaves.
func (x *exchange) listenAlone(ctx context.Context, p *plan, s *eventRelay) error {
	defer s.close()
	x.h.cfg.Metrics.StreamOpened(metrics.StreamPost)
	defer x.h.cfg.Metrics.StreamClosed(metrics.StreamPost)
	s.torn = true // nothing comes before the acknowledgement
	defer x.h.listeners.add(x.peer(), s, nil)()
	known := x.known(ctx, p.own)
	message := join(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"`+wire.MetaSubscription+`":`, string(x.id),
		`},"notifications":`, string(x.ownPart(p, known)), `}}`)
	if err := s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message})); err != nil {
		return err
	}
	if p.own == nil {
		s.keepAlive(ctx)
	} else {
		x.followNamed(ctx, s, known)
	}
	if x.ctx.Err() != nil || s.isLost() {
		return errGone
	}
	// It is the gate that ends the stream.
	message = jsonrpc.AppendResult(nil, x.id, join(`{"resultType":"complete","_meta":{"`+wire.MetaSubscription+`":`, string(x.id), `}}`))
	return s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message}))
}

// hasOwnStream reports whether a legacy client whose upstream has no GET stream
// gets one of the gate's own: the gate has declared that it tells of tasks, and of
// changed lists.
func (x *exchange) hasOwnStream(resp *http.Response) bool {
	version := x.r.Header.Get("Mcp-Protocol-Version")
	takesEvents := strings.Contains(strings.Join(x.r.Header["Accept"], ","), "text/event-stream")
	return x.r.Method == http.MethodGet && resp.StatusCode == http.StatusMethodNotAllowed && x.h.cfg.Gate.Governs() &&
		!x.resumes() && takesEvents && version < wire.Version20260728
}

// streamAlone serves a legacy client with a stream of the gate's own.
func (x *exchange) streamAlone(ctx context.Context) error {
	x.h.cfg.Metrics.StreamOpened(metrics.StreamGet)
	defer x.h.cfg.Metrics.StreamClosed(metrics.StreamGet)
	s := &eventRelay{x: x, torn: true}
	defer s.close()
	defer x.h.listeners.add(x.peer(), s, x.hearing())()
	s.awaitFollower(ctx)
	if err := x.beginEvents(); err != nil {
		return err
	}
	if err := s.send(nil); err != nil {
		return err
	}
	s.keepAlive(ctx)
	if x.ctx.Err() != nil || s.isLost() {
		return errGone
	}
	return nil
}

// defaultBeat is how often a stream shows that it is alive if nothing else is set.
const defaultBeat = 15 * time.Second

// beat returns how often a client gets a sign of life.
func (h *Handler) beat() time.Duration { return cmp.Or(h.settings().Waiting.Beat, defaultBeat) }

// keepAlive sends a comment now and then, until ctx ends or the client is lost.
func (s *eventRelay) keepAlive(ctx context.Context) {
	beat := time.NewTicker(s.x.h.beat())
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !s.insert(jsonrpc.AppendComment(nil, "listening")) {
				return
			}
			beat.Reset(s.x.h.beat()) // it may have been changed
		}
	}
}

// ownPart returns what the gate alone can tell a modern client of what it asked
// for.
func (x *exchange) ownPart(p *plan, known []task.ID) []byte {
	part := []byte("{")
	for _, wish := range x.listWishes() {
		part = append(part, `"`+wish+`":true,`...)
	}
	if p.own != nil {
		return append(append(append(part, `"taskIds":`...), idArray(known)...), '}')
	}
	return append(part[:len(part)-1], '}')
}

// join returns the texts one after the other.
func join(texts ...string) []byte {
	var b []byte
	for _, text := range texts {
		b = append(b, text...)
	}
	return b
}

func idArray(ids []task.ID) []byte {
	var elements [][]byte
	for _, id := range ids {
		elements = append(elements, jsonrpc.AppendString(nil, string(id)))
	}
	return jsonrpc.Array(elements)
}

// merge has the events of the gate's own inserted into the upstream's stream,
// once that has told what it acknowledges. It returns what ends that.
func (x *exchange) merge(ctx context.Context, s *eventRelay, own []task.ID) (end func()) {
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	s.change = func(raw []byte) ([]byte, error) {
		event := eventOf(raw)
		m, err := x.readMessage(event.Data)
		switch {
		case err == nil && x.answeredBy(m) && m.Error.Present():
			return nil, upstream.ErrRefused
		case err == nil && m.Method == "notifications/subscriptions/acknowledged":
			known := x.known(ctx, own)
			s.change, s.after = s.answersOnly, func() {
				following.Go(func() { x.followNamed(ctx, s, known) })
			}
			event.Data = acknowledged(m, known)
			return jsonrpc.AppendEvent(nil, event), nil
		default:
			return s.answersOnly(raw)
		}
	}
	return func() {
		cancel()
		following.Wait()
	}
}

// acknowledged returns the upstream's acknowledgement m with tasks of the
// gate's own added.
func acknowledged(m *jsonrpc.Message, known []task.ID) []byte {
	accepted := m.Params.Member("notifications")
	var ids [][]byte
	for element := range accepted.Member("taskIds").Elements() {
		ids = append(ids, element.Bytes)
	}
	for _, id := range known {
		ids = append(ids, jsonrpc.AppendString(nil, string(id)))
	}
	var patch jsonrpc.Patch
	switch {
	case accepted.IsObject():
		patch.Set(accepted, "taskIds", jsonrpc.Array(ids))
	case m.Params.IsObject():
		patch.Set(m.Params.Value, "notifications", join(`{"taskIds":`, string(jsonrpc.Array(ids)), `}`))
	}
	return patch.Apply(m.Raw)
}

// followNamed tells a modern client how its tasks stand, and then of every step,
// until ctx ends or the client is lost. The open stream shows that the owner is
// there, so an approved call begins.
func (x *exchange) followNamed(ctx context.Context, s *eventRelay, ids []task.ID) {
	owner, _ := x.owner()
	f, err := x.h.cfg.Desk.Follow(ctx, owner, ids)
	if err != nil {
		x.h.cfg.Log.WarnContext(ctx, "task notifications to a client failed", "cause", err)
		return
	}
	defer f.Close()
	defer x.connect(ctx, ids)()
	upstreams := followedUpstreams{x: x}
	defer upstreams.leave()
	x.touch(ctx, ids)
	for {
		news, err := f.Next(ctx, x.h.beat())
		if err != nil {
			return
		}
		if len(news) == 0 {
			if !s.insert(jsonrpc.AppendComment(nil, "listening")) {
				return
			}
			x.touch(ctx, f.Open())
		}
		for _, t := range news {
			upstreams.hear(t)
			if !x.tellStatus(ctx, s, t) {
				return
			}
			if t.State == task.Approved {
				x.touch(ctx, []task.ID{t.ID})
			}
		}
	}
}

// tellStatus tells a modern client how a task stands, one that has ended with
// its result, and reports false if the client is lost. What cannot be read is
// left out: the client will see for itself when it asks.
func (x *exchange) tellStatus(ctx context.Context, s *eventRelay, t task.Task) bool {
	text, err := x.dialect().StatusNotification(t, x.id)
	if err != nil {
		return true
	}
	told := s.insertWith(func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, upstream.PieceSize/2)
		event := jsonrpc.NewDataWriter(buffered)
		if err := text.Compose(event, x.h.cfg.Desk.Open(ctx, t)); err != nil {
			return err
		}
		return errors.Join(event.Close(), buffered.Flush())
	})
	if told {
		x.h.notified(ctx, t, x.dialect().Status(t))
	}
	return told
}

// known returns those of the tasks that a client wants to hear of that exist and
// are its own. No upstream is asked for that: it may take its time.
func (x *exchange) known(ctx context.Context, own []task.ID) []task.ID {
	owner, _ := x.owner()
	var found []task.ID
	for _, id := range own {
		if _, err := x.h.cfg.Desk.Get(ctx, task.OwnedBy(owner).Ref(id)); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// touch shows that the owner of tasks is there, which lets approved ones begin.
func (x *exchange) touch(ctx context.Context, ids []task.ID) {
	owner, _ := x.owner()
	for _, id := range ids {
		_, err := x.h.cfg.Desk.Contact(ctx, task.OwnedBy(owner).Ref(id), x.send())
		if err != nil && ctx.Err() == nil {
			x.h.cfg.Log.DebugContext(ctx, "task not touched", "task_id", id, "cause", err)
		}
	}
}
