package conversation

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// notifiedAtOnce is how many clients are notified at the same time. One
// that does not take it in time holds up nobody but those after it.
const notifiedAtOnce = 64

// listeners are the streams on which the gate can speak unasked, by the client
// they belong to.
type listeners struct {
	mu      sync.Mutex
	clients map[string]*audience
	closed  bool
	running sync.WaitGroup // those who follow the tasks of a client
}

// A listener is a stream on which the gate can speak unasked.
type listener struct {
	Listening

	stream Stream
	about  task.ID // the one task that the stream is about, if it is
}

// Hear takes in a stream on which the client hears of its tasks and of changed
// lists, and returns what ends that. It waits until nothing that happens to the
// client's tasks escapes the gate: from the moment a client sees its stream, it
// relies on that.
func (l Listening) Hear(ctx context.Context, s Stream) (leave func()) {
	followed, leave := l.hub.listeners.add(l.peer(), &listener{Listening: l, stream: s}, l.following())
	if followed != nil {
		select {
		case <-followed:
		case <-ctx.Done():
		}
	}
	return leave
}

// Listening returns on how many streams the gate can speak unasked, and is
// ready to.
func (h *Hub) Listening() int {
	h.listeners.mu.Lock()
	defer h.listeners.mu.Unlock()
	n := 0
	for _, a := range h.listeners.clients {
		select {
		case <-a.begun:
			n += len(a.streams)
		default:
		}
	}
	return n
}

// An audience is the streams of one client.
type audience struct {
	streams map[*listener]struct{}
	hearing int                // how many of them hear of tasks unasked
	stop    context.CancelFunc // ends the following of the client's tasks
	begun   chan struct{}      // closed when that has begun
}

// A follower follows the tasks of a client until its context ends. It calls
// begun as soon as nothing that happens escapes it.
type follower func(ctx context.Context, begun func())

// add takes a stream in and returns what takes it out again. As long as streams
// are there that hear of the client's tasks unasked, one follower runs: the
// first one begins it, the last one ends it. A stream without one hears of none.
// The channel is closed when the client's tasks are followed; it is nil if they
// are not.
func (l *listeners) add(client string, s *listener, follow follower) (followed <-chan struct{}, remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		l.clients = make(map[string]*audience)
	}
	a := l.clients[client]
	if a == nil {
		a = &audience{streams: make(map[*listener]struct{})}
		l.clients[client] = a
	}
	a.streams[s] = struct{}{}
	if follow == nil || l.closed {
		return nil, func() { l.remove(client, a, s, 0) }
	}
	if a.hearing++; a.hearing == 1 {
		var ctx context.Context
		ctx, a.stop = context.WithCancel(context.WithoutCancel(s.reply.Context())) // other streams may outlive this one
		a.begun = make(chan struct{})
		begun := sync.OnceFunc(func() { close(a.begun) })
		l.running.Go(func() {
			defer begun()
			follow(ctx, begun)
		})
	}
	return a.begun, func() { l.remove(client, a, s, 1) }
}

func (l *listeners) remove(client string, a *audience, s *listener, hearing int) {
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

// close ends all following, and waits for that.
func (l *listeners) close() {
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

// audience returns one stream of each legacy client, since the same message
// must not be sent on several, and every stream of modern ones.
func (l *listeners) audience() []*listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*listener
	for _, a := range l.clients {
		all = append(all, oneIfLegacy(a.streams)...)
	}
	return all
}

// oneIfLegacy leaves out all but one of a legacy client's streams, and those
// that are about one task only. Those of clients that cannot be distinguished may
// be somebody else's each.
func oneIfLegacy(streams map[*listener]struct{}) []*listener {
	var chosen []*listener
	notified := false
	for s := range streams {
		_, shared := s.owner()
		legacy := s.era == wire.Legacy && !shared
		if s.about != "" || legacy && notified {
			continue
		}
		notified = notified || legacy
		chosen = append(chosen, s)
	}
	return chosen
}

// of returns the streams on which a legacy client can be notified of a task, the
// best one first: one that is about nothing in particular, and else that of a
// request for the task's result.
func (l *listeners) of(client string, id task.ID) []*listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.clients[client]
	if a == nil {
		return nil
	}
	var general, particular []*listener
	for s := range a.streams {
		switch {
		case s.era != wire.Legacy:
		case s.about == "":
			general = append(general, s)
		case s.about == id:
			particular = append(particular, s)
		}
	}
	return append(general, particular...)
}

// listKinds are the kinds of lists of whose changes clients can hear.
var listKinds = []string{"tools", "prompts", "resources"}

// ListsChanged notifies clients that they may see other tools, prompts and
// resources than before, or see them otherwise.
func (h *Hub) ListsChanged() {
	var sending errgroup.Group
	sending.SetLimit(notifiedAtOnce)
	for _, s := range h.listeners.audience() {
		sending.Go(func() error {
			for _, kind := range listKinds {
				if s.wants(kind) {
					s.stream.Insert(writes(s.listChanged(kind)))
				}
			}
			return nil
		})
	}
	_ = sending.Wait()
}

// wants reports whether the listening client wants to hear of changes. Legacy
// clients cannot choose.
func (l Listening) wants(kind string) bool {
	return l.era == wire.Legacy || l.asked.Member(kind+"ListChanged").IsTrue()
}

// listChanged returns the notification of a change, in the form of the
// client's era.
func (l Listening) listChanged(kind string) []byte {
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","method":"notifications/` + kind + `/list_changed"`)
	if l.era == wire.Modern {
		b.WriteString(`,"params":{"_meta":{"` + wire.MetaSubscription + `":`)
		b.Write(l.id)
		b.WriteString(`}}`)
	}
	b.WriteString("}")
	return []byte(b.String())
}
