package conversation

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Subscriber is a client whose request is answered with a stream without an end. On the stream
// it gets notifications of its tasks and of changed lists.
type Subscriber struct {
	sender *sender
	out    responder
	asked  jsonrpc.Value // the notifications that a modern client asks for
}

// Subscriber returns the subscriber of the request.
func (r *Request) Subscriber() Subscriber {
	return Subscriber{sender: &r.sender, out: r.out, asked: r.asked}
}

// plan returns the plan for a modern client that subscribes to tasks of the gate. Its other
// subscriptions are forwarded. It returns nil for other clients.
func (l Subscriber) plan(m *jsonrpc.Message) *Plan {
	if l.out.era != mcp.Modern {
		return nil
	}
	own, rest := ownTasks(l.asked)
	switch {
	case len(own) == 0:
		return nil
	case !declaresTasks(m):
		return answers(func(context.Context) error { return l.out.answerError(mcptask.MissingExtension()) })
	case rest == nil:
		return answers(func(ctx context.Context) error { return l.alone(ctx, own) })
	}
	var patch jsonrpc.Patch
	patch.Set(m.Params.Value, "notifications", rest)
	return &Plan{Kind: Forward, OwnTasks: own, Body: patch.Apply(m.Raw)}
}

// ownTasks returns the tasks of the gate among the wanted notifications, and the rest of them,
// which is nil if there is none.
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
	if others.IsEmptyObject() {
		return own, nil
	}
	return own, others.Bytes
}

// alone serves a modern client that subscribes only to tasks of the gate.
func (l Subscriber) alone(ctx context.Context, own []task.ID) error {
	leave, err := enterWaiting(l.sender)
	if err != nil {
		return l.out.reply.Fail(err)
	}
	defer leave()
	return l.ServeSubscription(ctx, &Plan{OwnTasks: own}, l.out.reply.Listen())
}

// ServeSubscription notifies a modern client of tasks of the gate, and of lists that the gate
// changes, until the client leaves. The upstream is not involved.
func (l Subscriber) ServeSubscription(ctx context.Context, p *Plan, s Stream) error {
	l.out.gateway.cfg.Metrics.StreamOpened(metrics.StreamPost)
	defer l.out.gateway.cfg.Metrics.StreamClosed(metrics.StreamPost)
	defer s.Close()
	_, leave := l.out.gateway.streams.add(l.sender.peer(), &openStream{listening: l, stream: s}, nil)
	defer leave()
	known := l.ExistingTasks(ctx, p.OwnTasks)
	if err := s.Send(join(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"`+mcpname.MetaSubscriptionID+`":`, string(l.out.id),
		`},"notifications":`, string(l.ownPart(p, known)), `}}`)); err != nil {
		return err
	}
	if p.OwnTasks == nil {
		l.keepAlive(ctx, s)
	} else {
		l.FollowTasks(ctx, s, known)
	}
	if l.sender.gone() {
		return ErrGone
	}
	// The client is still there, so the gate ends the stream.
	return s.Send(jsonrpc.AppendResult(nil, l.out.id, join(`{"resultType":"complete","_meta":{"`+mcpname.MetaSubscriptionID+`":`, string(l.out.id), `}}`)))
}

// ownPart returns the part of the wanted notifications that the gate itself sends.
func (l Subscriber) ownPart(p *Plan, known []task.ID) []byte {
	part := []byte("{")
	for _, wish := range l.wantedLists() {
		part = append(part, `"`+wish+`":true,`...)
	}
	if p.OwnTasks != nil {
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

// WantsLists reports whether a modern client wants notifications of lists that the gate may
// change.
func (l Subscriber) WantsLists() bool {
	return l.out.era == mcp.Modern && l.out.gateway.Governs() && len(l.wantedLists()) > 0
}

// wantedLists returns the names of the wanted list notifications.
func (l Subscriber) wantedLists() []string {
	var wishes []string
	for _, kind := range listKinds {
		if l.wants(kind) {
			wishes = append(wishes, kind+"ListChanged")
		}
	}
	return wishes
}

// wants reports whether the client wants notifications of a kind of list. Legacy clients get all
// of them.
func (l Subscriber) wants(kind string) bool {
	return l.out.era == mcp.Legacy || l.asked.Member(kind+"ListChanged").IsTrue()
}

// listKinds are the kinds of lists with notifications of changes.
var listKinds = []string{"tools", "prompts", "resources"}

// listChanged returns the notification of a changed list, in the form of the client's era.
func (l Subscriber) listChanged(kind string) []byte {
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","method":"notifications/` + kind + `/list_changed"`)
	if l.out.era == mcp.Modern {
		b.WriteString(`,"params":{"_meta":{"` + mcpname.MetaSubscriptionID + `":`)
		b.Write(l.out.id)
		b.WriteString(`}}`)
	}
	b.WriteString("}")
	return []byte(b.String())
}

// ServeStream serves a legacy client with a stream of the gate, because its upstream has none.
func (l Subscriber) ServeStream(ctx context.Context) error {
	l.out.gateway.cfg.Metrics.StreamOpened(metrics.StreamGet)
	defer l.out.gateway.cfg.Metrics.StreamClosed(metrics.StreamGet)
	s := l.out.reply.Listen()
	defer s.Close()
	defer l.Join(ctx, s)()
	if err := s.Send(nil); err != nil {
		return err
	}
	l.keepAlive(ctx, s)
	if l.sender.gone() {
		return ErrGone
	}
	return s.Send(nil)
}

// keepAlive sends heartbeats until ctx ends or the client is gone.
func (l Subscriber) keepAlive(ctx context.Context, s Stream) {
	beat := time.NewTicker(l.out.gateway.HeartbeatInterval())
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !s.Heartbeat(heartbeatText) {
				return
			}
			beat.Reset(l.out.gateway.HeartbeatInterval()) // the setting may have changed
		}
	}
}

const heartbeatText = "listening"

// Join registers a stream for notifications to the client, and returns a function that removes
// it. Join waits until the gate follows the client's tasks, because the client relies on
// notifications from the moment that it sees its stream.
func (l Subscriber) Join(ctx context.Context, s Stream) (leave func()) {
	followed, leave := l.out.gateway.streams.add(l.sender.peer(), &openStream{listening: l, stream: s}, l.following())
	if followed != nil {
		select {
		case <-followed:
		case <-ctx.Done():
		}
	}
	return leave
}

// IsAcknowledgement reports whether m acknowledges the subscription of a modern client.
func IsAcknowledgement(m *jsonrpc.Message) bool {
	return m.Method == mcpname.NotifySubscriptionsAcknowledged
}

// AddToAcknowledgement returns the upstream's acknowledgement m with tasks of the gate added.
func AddToAcknowledgement(m *jsonrpc.Message, known []task.ID) []byte {
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

// ExistingTasks returns the tasks among own that exist and belong to the client. It asks no
// upstream.
func (l Subscriber) ExistingTasks(ctx context.Context, own []task.ID) []task.ID {
	var found []task.ID
	for _, id := range own {
		if _, err := l.out.gateway.cfg.Approvals.Get(ctx, l.sender.ref(id)); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// FollowTasks sends a modern client the current status of its tasks, and then of every step,
// until ctx ends or the client is gone. The open stream shows that the owner is present, so
// approved calls run.
func (l Subscriber) FollowTasks(ctx context.Context, s Stream, ids []task.ID) {
	owner, _ := l.sender.owner()
	f, err := l.out.gateway.cfg.Approvals.Follow(ctx, owner, ids)
	if err != nil {
		l.out.gateway.cfg.Log.WarnContext(ctx, "task notifications to a client failed", "err", err)
		return
	}
	defer f.Close()
	defer l.out.gateway.connect(ctx, ids)()
	upstreams := followedUpstreams{gateway: l.out.gateway, client: l.sender.client}
	defer upstreams.leave()
	l.attend(ctx, ids)
	defer func() { l.sender.noteLeft(ctx, f.Unfinished()) }()
	for {
		news, err := f.Next(ctx, l.out.gateway.HeartbeatInterval())
		if err != nil {
			return
		}
		if len(news) == 0 {
			if !s.Heartbeat(heartbeatText) {
				return
			}
			l.attend(ctx, f.Unfinished())
		}
		told := true
		ownstack.Do(func() { told = l.sendNews(ctx, s, &upstreams, news) })
		if !told {
			return
		}
	}
}

// sendNews sends a modern client the news of its tasks. It reports false if the client is gone.
func (l Subscriber) sendNews(ctx context.Context, s Stream, upstreams *followedUpstreams, news []task.Task) bool {
	for _, t := range news {
		upstreams.hear(&t)
		if !l.sendStatus(ctx, s, t) {
			return false
		}
		if t.State == task.Approved {
			l.attend(ctx, []task.ID{t.ID})
		}
	}
	return true
}

// sendStatus sends a modern client the status of a task, including the result at its end. It
// reports false if the client is gone. A status that cannot be read is skipped; the client sees
// it when it asks for the task.
func (l Subscriber) sendStatus(ctx context.Context, s Stream, t task.Task) bool {
	text, err := l.out.dialect().StatusNotification(t, l.out.id)
	if err != nil {
		return true
	}
	sent := s.Insert(func(to io.Writer) error { return text.Compose(to, l.out.gateway.cfg.Approvals.Open(ctx, t)) })
	if sent {
		l.out.gateway.notified(ctx, t, l.out.dialect().Status(t))
	}
	return sent
}

// attend shows that the owner of tasks is present, so that approved calls run.
func (l Subscriber) attend(ctx context.Context, ids []task.ID) {
	for _, id := range ids {
		//mutate:false internal/app.TestNothingRunsForListenerThatLeft a stream that is gone lets an approved call begin
		if l.sender.gone() {
			return
		}
		_, err := l.out.gateway.cfg.Approvals.Attend(ctx, l.sender.ref(id), l.sender.send())
		if err != nil && ctx.Err() == nil {
			l.out.gateway.cfg.Log.DebugContext(ctx, "presence not recorded", "task_id", id, "err", err)
		}
	}
}

// following returns the function that follows the tasks of a legacy client, which gets
// notifications without asking for them. It returns nil for modern clients, which name the tasks;
// for clients that cannot be told apart, because a task id gives access; and for protocol
// versions without tasks.
func (l Subscriber) following() follower {
	owner, shared := l.sender.owner()
	version := l.sender.client.Transport().Version
	if l.out.era != mcp.Legacy || shared || !l.out.gateway.Holds() || version != "" && version != mcp.Version20251125 {
		return nil
	}
	return ownerFollower{gateway: l.out.gateway, owner: owner, peer: l.sender.peer()}.run
}

// storeRetryDelay is the time between two attempts to follow tasks in a failing store.
const storeRetryDelay = 5 * time.Second

// An ownerFollower notifies a legacy client of all tasks of its owner, on one of its streams.
type ownerFollower struct {
	gateway *Gateway
	owner   string
	peer    string
}

// run notifies the client until ctx ends. It tries again while the store fails.
func (f ownerFollower) run(ctx context.Context, begun func()) {
	for ctx.Err() == nil {
		steps, err := f.gateway.cfg.Approvals.FollowAll(ctx, f.owner)
		begun()
		if err == nil {
			f.notify(ctx, steps)
			return
		}
		if ctx.Err() != nil {
			return
		}
		f.gateway.cfg.Log.WarnContext(ctx, "task notifications to a client are interrupted", "err", err)
		pause.For(ctx, storeRetryDelay)
	}
}

func (f ownerFollower) notify(ctx context.Context, steps *approval.Follower) {
	defer steps.Close()
	for {
		news, err := steps.Next(ctx, time.Hour)
		if err != nil {
			return
		}
		ownstack.Do(func() {
			for _, t := range news {
				f.notifyOf(ctx, t)
			}
		})
	}
}

// notifyOf sends the client the status of a task, on one of its streams.
func (f ownerFollower) notifyOf(ctx context.Context, t task.Task) {
	dialect := f.gateway.dialect(mcp.Legacy)
	var message bytes.Buffer
	text, err := dialect.StatusNotification(t, nil)
	if err != nil || text.Compose(&message, nil) != nil { // without the result
		return
	}
	for _, l := range f.gateway.streams.of(f.peer, t.ID) {
		if l.stream.Insert(writes(message.Bytes())) {
			f.gateway.notified(ctx, t, dialect.Status(t))
			return
		}
	}
}

// ListsChanged notifies clients that their lists of tools, prompts and resources may have
// changed.
func (g *Gateway) ListsChanged() {
	var sending errgroup.Group
	sending.SetLimit(maxConcurrentNotifications)
	for _, s := range g.streams.broadcast() {
		sending.Go(func() error {
			for _, kind := range listKinds {
				if s.listening.wants(kind) {
					s.stream.Insert(writes(s.listening.listChanged(kind)))
				}
			}
			return nil
		})
	}
	_ = sending.Wait()
}

// maxConcurrentNotifications bounds the clients that are notified at the same time, so that a
// slow client delays few others.
const maxConcurrentNotifications = 64

// OpenStreams returns the number of streams on which the gate is ready to notify.
func (g *Gateway) OpenStreams() int {
	g.streams.mu.Lock()
	defer g.streams.mu.Unlock()
	n := 0
	for _, a := range g.streams.clients {
		select {
		case <-a.begun:
			n += len(a.streams)
		default:
		}
	}
	return n
}

// openStreams has the streams for notifications, by client.
type openStreams struct {
	mu      sync.Mutex
	clients map[string]*clientStreams
	closed  bool
	running sync.WaitGroup // followers
}

// An openStream is a stream for notifications.
type openStream struct {
	listening Subscriber
	stream    Stream
	about     task.ID // the task for whose result the client waits; empty for a general stream
}

// clientStreams are the streams of one client.
type clientStreams struct {
	streams map[*openStream]struct{}
	hearing int                // how many of them get notifications of all tasks
	stop    context.CancelFunc // ends the follower
	begun   chan struct{}      // closed when the follower has begun
}

// A follower follows the tasks of a client until ctx ends. It calls begun when it misses no
// further step.
type follower func(ctx context.Context, begun func())

// add adds a stream, and returns a function that removes it. While a client has streams with a
// follower, one follower runs for all of them. The channel is closed when it follows the client's
// tasks; it is nil without a follower.
func (l *openStreams) add(client string, s *openStream, follow follower) (followed <-chan struct{}, remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		l.clients = make(map[string]*clientStreams)
	}
	a := l.clients[client]
	if a == nil {
		a = &clientStreams{streams: make(map[*openStream]struct{})}
		l.clients[client] = a
	}
	a.streams[s] = struct{}{}
	if follow == nil || l.closed {
		return nil, func() { l.remove(client, a, s, 0) }
	}
	if a.hearing++; a.hearing == 1 {
		var ctx context.Context
		ctx, a.stop = context.WithCancel(context.WithoutCancel(s.listening.out.reply.Context())) // other streams may use the follower longer than this one
		a.begun = make(chan struct{})
		begun := sync.OnceFunc(func() { close(a.begun) })
		l.running.Go(func() {
			defer begun()
			follow(ctx, begun)
		})
	}
	return a.begun, func() { l.remove(client, a, s, 1) }
}

func (l *openStreams) remove(client string, a *clientStreams, s *openStream, hearing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(a.streams, s)
	if hearing > 0 {
		if a.hearing -= hearing; a.hearing == 0 {
			a.stop()
		}
	}
	if len(a.streams) == 0 {
		delete(l.clients, client)
	}
}

// close ends all followers, and waits for their end.
func (l *openStreams) close() {
	l.mu.Lock()
	l.closed = true
	for _, a := range l.clients {
		if a.hearing > 0 {
			a.stop()
		}
	}
	l.mu.Unlock()
	l.running.Wait()
}

// broadcast returns the streams for a notification to all clients: one stream of each legacy
// client, because a message must not be sent on several, and every stream of modern clients.
func (l *openStreams) broadcast() []*openStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*openStream
	for _, a := range l.clients {
		all = append(all, forBroadcast(a.streams)...)
	}
	return all
}

// forBroadcast returns the streams of one client for a notification: one if it is a legacy
// client. Streams for the result of one task are left out. If clients cannot be told apart, each
// stream may belong to another client, so all are returned.
func forBroadcast(streams map[*openStream]struct{}) []*openStream {
	var chosen []*openStream
	notified := false
	for s := range streams {
		_, shared := s.listening.sender.owner()
		legacy := s.listening.out.era == mcp.Legacy && !shared
		if s.about != "" || legacy && notified {
			continue
		}
		notified = notified || legacy
		chosen = append(chosen, s)
	}
	return chosen
}

// of returns the streams on which a legacy client can be notified of a task: first general
// streams, then streams for the result of the task.
func (l *openStreams) of(client string, id task.ID) []*openStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.clients[client]
	if a == nil {
		return nil
	}
	var general, particular []*openStream
	for s := range a.streams {
		switch {
		case s.listening.out.era != mcp.Legacy:
		case s.about == "":
			general = append(general, s)
		case s.about == id:
			particular = append(particular, s)
		}
	}
	return append(general, particular...)
}
