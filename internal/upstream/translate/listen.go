package translate

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// listeners are the modern clients that listen to the notifications of a session with a legacy server.
// One stream of the server serves them all.
type listeners struct {
	mu   sync.Mutex
	all  map[*listener]bool
	uris map[string]int     // how many listeners subscribe to a resource
	stop context.CancelFunc // of the stream; nil while nobody listens
}

// A listener is the answer to subscriptions/listen.
type listener struct {
	s      *session
	id     []byte
	lists  map[string]bool // the notifications of changed lists that the client gets
	uris   []string
	texts  chan []byte   // waiting to be sent
	ended  chan struct{} // closed when the server's stream has ended, or the client is too slow
	ctx    context.Context
	closed sync.Once
}

// backlog is how many notifications a listener may leave unread.
const backlog = 64

// kindsOfLists are the members of a subscription by notification.
var kindsOfLists = map[string]struct{ member, capability string }{
	mcpname.NotifyToolsListChanged:     {"toolsListChanged", "tools"},
	mcpname.NotifyPromptsListChanged:   {"promptsListChanged", "prompts"},
	mcpname.NotifyResourcesListChanged: {"resourcesListChanged", "resources"},
}

// listen serves subscriptions/listen at a legacy server.
func (x *exchange) listen() (*http.Response, error) {
	s, refusal, err := x.t.sessions.get(x)
	if err != nil || refusal != nil {
		return refusal, err
	}
	wanted := x.m.Params.Member("notifications")
	l := &listener{
		s: s, id: x.m.ID.Clone().Bytes, lists: make(map[string]bool), texts: make(chan []byte, backlog),
		ended: make(chan struct{}), ctx: x.http.Context(),
	}
	var honoured []jsonrpc.Member
	for method, kind := range kindsOfLists {
		if wanted.Member(kind.member).IsTrue() && s.capability(kind.capability, "listChanged").IsTrue() {
			l.lists[method] = true
			honoured = append(honoured, jsonrpc.Member{Name: kind.member, JSON: []byte("true")})
		}
	}
	if uris := l.subscribe(wanted.Member("resourceSubscriptions")); uris != nil {
		honoured = append(honoured, jsonrpc.Member{Name: "resourceSubscriptions", JSON: jsonrpc.Array(uris)})
	}
	tasks := x.tasks(wanted.Member("taskIds"))
	if tasks != nil {
		var ids [][]byte
		for _, k := range tasks {
			ids = append(ids, jsonrpc.AppendString(nil, k.own))
		}
		honoured = append(honoured, jsonrpc.Member{Name: "taskIds", JSON: jsonrpc.Array(ids)})
	}
	slices.SortFunc(honoured, func(a, b jsonrpc.Member) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	l.send(mcpname.NotifySubscriptionsAcknowledged, jsonrpc.Member{Name: "notifications", JSON: jsonrpc.AppendObject(nil, honoured...)})
	s.listen(l)
	for _, k := range tasks {
		s.t.following.Go(func() { l.watch(k) })
	}
	return events(&stream{from: l}), nil
}

// subscribe subscribes to the wanted resources, and returns those to which the server agrees.
func (l *listener) subscribe(wanted jsonrpc.Value) (uris [][]byte) {
	if !l.s.capability("resources", "subscribe").IsTrue() {
		return nil
	}
	asked := 0
	for v := range wanted.Elements() {
		if asked++; asked > maxURIs {
			break // each is a request to the server
		}
		uri, ok := v.Text()
		if ok && l.s.subscribe(l.ctx, uri) == nil {
			l.uris = append(l.uris, uri)
			uris = append(uris, v.Bytes)
		}
	}
	return uris
}

// send queues a notification. A client that does not read loses its stream, and so learns that it
// must look again.
func (l *listener) send(method string, params ...jsonrpc.Member) {
	meta := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: mcpname.MetaSubscriptionID, JSON: l.id})
	params = append(slices.Clone(params), jsonrpc.Member{Name: "_meta", JSON: meta})
	m := jsonrpc.NewRequest(nil, method, jsonrpc.NewParams(params...))
	select {
	case l.texts <- m.Raw:
	default:
		l.end()
	}
}

func (l *listener) end() { l.closed.Do(func() { close(l.ended) }) }

// next implements conversion.
func (l *listener) next() (text []byte, final bool, err error) {
	select {
	case text := <-l.texts:
		return text, false, nil
	default:
	}
	select {
	case text := <-l.texts:
		return text, false, nil
	case <-l.ended:
		meta := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: mcpname.MetaSubscriptionID, JSON: l.id})
		return jsonrpc.AppendResult(nil, l.id, jsonrpc.AppendObject(nil,
			jsonrpc.Member{Name: "resultType", JSON: []byte(`"complete"`)}, jsonrpc.Member{Name: "_meta", JSON: meta})), true, nil
	case <-l.ctx.Done():
		return nil, false, context.Cause(l.ctx)
	case <-l.s.t.ctx.Done():
		return nil, false, io.ErrUnexpectedEOF
	}
}

// Close implements conversion.
func (l *listener) Close() error {
	s := l.s
	s.stream.mu.Lock()
	if s.stream.all[l] {
		delete(s.stream.all, l)
		if len(s.stream.all) == 0 {
			s.stream.stop()
			s.stream.stop = nil
		}
		s.stream.mu.Unlock()
		s.unsubscribe(l.uris)
		s.release()
		return nil
	}
	s.stream.mu.Unlock()
	return nil
}

// listen adds a listener, and opens the stream of the server for the first one.
func (s *session) listen(l *listener) {
	s.stream.mu.Lock()
	defer s.stream.mu.Unlock()
	if s.stream.all == nil {
		s.stream.all = make(map[*listener]bool)
	}
	s.stream.all[l] = true
	if s.stream.stop == nil {
		var ctx context.Context
		ctx, s.stream.stop = context.WithCancel(s.t.ctx)
		s.t.following.Go(func() { s.follow(ctx) })
	}
}

// subscribe subscribes to a resource, unless the session does.
func (s *session) subscribe(ctx context.Context, uri string) error {
	s.stream.mu.Lock()
	if s.stream.uris == nil {
		s.stream.uris = make(map[string]int)
	}
	s.stream.uris[uri]++
	first := s.stream.uris[uri] == 1
	s.stream.mu.Unlock()
	if !first {
		return nil
	}
	_, err := s.ask(ctx, mcpname.ResourcesSubscribe, jsonrpc.Member{Name: "uri", JSON: jsonrpc.AppendString(nil, uri)})
	if err != nil {
		s.forgetURI(uri)
	}
	return err
}

// forgetURI reports whether nobody subscribes to a resource any more.
func (s *session) forgetURI(uri string) bool {
	s.stream.mu.Lock()
	defer s.stream.mu.Unlock()
	s.stream.uris[uri]--
	if s.stream.uris[uri] > 0 {
		return false
	}
	delete(s.stream.uris, uri)
	return true
}

func (s *session) unsubscribe(uris []string) {
	for _, uri := range uris {
		if s.forgetURI(uri) {
			_, _ = s.ask(s.t.ctx, mcpname.ResourcesUnsubscribe, jsonrpc.Member{Name: "uri", JSON: jsonrpc.AppendString(nil, uri)})
		}
	}
}

// streamPauses are the pauses before the server's stream is opened again. The last one is repeated.
var streamPauses = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// follow reads the server's stream of notifications until nobody listens, or the server offers none.
func (s *session) follow(ctx context.Context) {
	for attempt := 0; ; attempt++ {
		opened, refused := s.followOnce(ctx)
		if opened {
			attempt = 0
		}
		if refused {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(streamPauses[min(attempt, len(streamPauses)-1)]):
		}
	}
}

// followOnce reads one stream. It reports whether it was opened, and whether it is of no use to try
// again.
func (s *session) followOnce(ctx context.Context) (opened, refused bool) {
	header := s.header.Clone()
	header.Set("Accept", "text/event-stream")
	by := s.by
	by.Use = httpclient.Stream
	resp, err := s.t.cfg.Client.Do(ctx, by, &http.Request{Method: http.MethodGet, URL: newURL(), Header: header}, nil)
	if err != nil {
		return false, false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotFound {
		s.t.sessions.lose(s)
		s.endListeners()
		return false, true
	}
	if resp.StatusCode != http.StatusOK {
		return false, resp.StatusCode < http.StatusInternalServerError
	}
	source := newSource(resp, s.t.cfg.MaxMessage)
	for {
		m, err := source.next()
		if err != nil {
			return true, false
		}
		s.heard(ctx, m)
	}
}

// heard handles a message of the server's stream. Requests without a request of a client cannot be
// translated.
func (s *session) heard(ctx context.Context, m *jsonrpc.Message) {
	switch {
	case m.Kind == jsonrpc.Notification:
		s.announce(m)
	case m.Kind == jsonrpc.Request && m.Method == mcpname.Ping:
		_ = s.send(ctx, jsonrpc.AppendResult(nil, m.ID.Bytes, []byte("{}")))
	case m.Kind == jsonrpc.Request:
		unknown := &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "The client cannot be asked without a request of its own"}
		_ = s.send(ctx, jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, unknown))
	}
}

// announce passes a notification on to those who listen to it.
func (s *session) announce(m *jsonrpc.Message) {
	if m.Method == mcpname.NotifyToolsListChanged {
		s.support.forget()
	}
	uri, _ := m.Params.URI.Text()
	s.stream.mu.Lock()
	defer s.stream.mu.Unlock()
	for l := range s.stream.all {
		switch {
		case l.lists[m.Method]:
			l.send(m.Method)
		case m.Method == mcpname.NotifyResourcesUpdated && slices.Contains(l.uris, uri):
			l.send(m.Method, jsonrpc.Member{Name: "uri", JSON: m.Params.URI.Bytes})
		}
	}
}

func (s *session) endListeners() {
	s.stream.mu.Lock()
	defer s.stream.mu.Unlock()
	for l := range s.stream.all {
		l.end()
	}
}
