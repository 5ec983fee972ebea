package mcphttp

import (
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// tellingAtOnce is how many clients are told something at the same time. One
// that does not take it in time holds up nobody but those after it.
const tellingAtOnce = 64

// listeners are the streams on which the gate can speak unasked, by the client
// they belong to.
type listeners struct {
	mu      sync.Mutex
	streams map[string]map[*eventRelay]struct{}
}

// add takes a stream in and returns what takes it out again.
func (l *listeners) add(client string, s *eventRelay) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == nil {
		l.streams = make(map[string]map[*eventRelay]struct{})
	}
	if l.streams[client] == nil {
		l.streams[client] = make(map[*eventRelay]struct{})
	}
	l.streams[client][s] = struct{}{}
	return func() { l.remove(client, s) }
}

func (l *listeners) remove(client string, s *eventRelay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams[client], s)
	if len(l.streams[client]) == 0 {
		delete(l.streams, client)
	}
}

// audience returns one stream of each legacy client, since the same message
// must not be sent on several, and every stream of modern ones.
func (l *listeners) audience() []*eventRelay {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*eventRelay
	for _, streams := range l.streams {
		all = append(all, oneIfLegacy(streams)...)
	}
	return all
}

// of returns the streams on which an owner is told of its tasks: one of a
// legacy client's, and every one of a modern client's.
func (l *listeners) of(owner string) []*eventRelay {
	l.mu.Lock()
	defer l.mu.Unlock()
	return oneIfLegacy(l.streams[owner])
}

// oneIfLegacy leaves out all but one of a legacy client's streams. Those of
// clients that cannot be told apart may be somebody else's each.
func oneIfLegacy(streams map[*eventRelay]struct{}) []*eventRelay {
	var chosen []*eventRelay
	told := false
	for s := range streams {
		_, shared := s.x.owner()
		legacy := s.x.era == wire.Legacy && !shared
		if legacy && told {
			continue
		}
		told = told || legacy
		chosen = append(chosen, s)
	}
	return chosen
}

// ListsChanged tells clients that they may see other tools, prompts and
// resources than before, or see them otherwise.
func (h *Handler) ListsChanged() {
	var telling errgroup.Group
	telling.SetLimit(tellingAtOnce)
	for _, s := range h.listeners.audience() {
		telling.Go(func() error {
			for _, kind := range []string{"tools", "prompts", "resources"} {
				if s.x.wants(kind) {
					s.insert(s.x.listChanged(kind))
				}
			}
			return nil
		})
	}
	_ = telling.Wait()
}

// wants reports whether the listening client wants to hear of changes. Legacy
// clients cannot choose.
func (x *exchange) wants(kind string) bool {
	return x.era == wire.Legacy || x.asked.Member(kind+"ListChanged").IsTrue()
}

// listChanged returns the event that tells of a change, in the form of the
// client's era.
func (x *exchange) listChanged(kind string) []byte {
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","method":"notifications/` + kind + `/list_changed"`)
	if x.era == wire.Modern {
		b.WriteString(`,"params":{"_meta":{"` + wire.MetaSubscription + `":`)
		b.Write(x.id)
		b.WriteString(`}}`)
	}
	b.WriteString("}")
	return jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: []byte(b.String())})
}
