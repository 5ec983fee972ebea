package mcphttp

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// listKinds are the kinds of lists whose changes a client can ask for, as in toolsListChanged.
var listKinds = [...]string{"tools", "prompts", "resources"}

// maxWishes is how many resources and tasks one request may subscribe to.
const maxWishes = 1000

// Pauses of a subscription.
const (
	minSubscribePause = time.Second // before a server is asked again, doubled with each failure
	maxSubscribePause = time.Minute
	listChangePause   = 100 * time.Millisecond // in which changes of a list are sent as one
)

// maxEarly is how many bytes of notifications wait for the acknowledgement.
const maxEarly = 1 << 20

// A listening is the request of a modern client to listen to all servers. The client gets one stream,
// with one acknowledgement. Each server is asked for its part, and asked again when its stream ends.
type listening struct {
	c      *combined
	lists  [len(listKinds)]bool // changes of lists that the client wants
	parts  []*subscribed
	cancel context.CancelFunc
	stream sharedStream

	settled sync.WaitGroup // of the first attempts of all parts
	wake    chan struct{}  // has an element if changed was set

	mu      sync.Mutex
	began   bool   // the client has got the acknowledgement
	early   []byte // events that wait for it
	changed [len(listKinds)]bool
}

// A subscribed is the part of one server in a subscription.
type subscribed struct {
	of     *listening
	server *several.Server
	uris   [][]byte // JSON strings
	tasks  [][]byte
	body   []byte

	once     sync.Once
	accepted jsonrpc.Value  // what the server has acknowledged at last, or nothing; guarded by of.mu
	refusal  *jsonrpc.Error // of the latest attempt; guarded by of.mu
	hears    bool           // the latest attempt was acknowledged; guarded by of.mu
}

// subscribe answers subscriptions/listen.
func (c *combined) subscribe() error {
	if c.x.client.era == mcp.Legacy {
		return c.unsupported()
	}
	s := &listening{c: c, wake: make(chan struct{}, 1)}
	if problem := s.divide(); problem != nil {
		return c.refuse(problem)
	}
	c.x.delegated = true
	return c.x.withSlot(c.x.h.streams, func() error {
		ctx, stop := c.x.h.endable(c.x.account.Context, c.x.client.epoch)
		defer stop()
		return s.serve(ctx)
	})
}

// divide finds out which server is asked for what.
func (s *listening) divide() *mcp.Problem {
	asked := s.c.m.Params.Member("notifications")
	uris, ids := elements(asked.Member("resourceSubscriptions")), elements(asked.Member("taskIds"))
	if len(uris)+len(ids) > maxWishes {
		return &mcp.Problem{Type: mcp.InvalidParams, Detail: "a request may subscribe to 1000 resources and tasks"}
	}
	ofURIs, ofTasks := map[*several.Server][][]byte{}, map[*several.Server][][]byte{}
	learned := false
	for _, uri := range uris {
		text, _ := uri.Text()
		owner := s.c.endpoint.Owner(s.c.client(), text)
		if owner == nil && !learned {
			s.c.learnURIs()
			learned = true
			owner = s.c.endpoint.Owner(s.c.client(), text)
		}
		if owner != nil {
			ofURIs[owner] = append(ofURIs[owner], uri.Bytes)
		}
	}
	for _, id := range ids {
		text, _ := id.Text()
		if server := s.c.taskServer(text); server != nil {
			ofTasks[server] = append(ofTasks[server], id.Bytes)
		}
	}
	var wanted []jsonrpc.Member
	for i, kind := range listKinds {
		if s.lists[i] = asked.Member(kind + "ListChanged").IsTrue(); s.lists[i] {
			wanted = append(wanted, jsonrpc.Member{Name: kind + "ListChanged", JSON: []byte("true")})
		}
	}
	for _, server := range s.c.endpoint.Servers {
		part := &subscribed{of: s, server: server, uris: ofURIs[server], tasks: ofTasks[server]}
		filter := withWishes(wanted, part.uris, part.tasks)
		if filter == nil {
			continue
		}
		part.body = s.c.newMessage(mcpname.SubscriptionsListen, jsonrpc.Member{Name: "notifications", JSON: jsonrpc.AppendObject(nil, filter...)})
		s.parts = append(s.parts, part)
	}
	return nil
}

// elements returns the elements of an array.
func elements(array jsonrpc.Value) (all []jsonrpc.Value) {
	for e := range array.Elements() {
		all = append(all, e)
	}
	return all
}

// withWishes returns the members of a filter.
func withWishes(lists []jsonrpc.Member, uris, tasks [][]byte) []jsonrpc.Member {
	filter := slices.Clip(lists)
	if uris != nil {
		filter = append(filter, jsonrpc.Member{Name: "resourceSubscriptions", JSON: jsonrpc.Array(uris)})
	}
	if tasks != nil {
		filter = append(filter, jsonrpc.Member{Name: "taskIds", JSON: jsonrpc.Array(tasks)})
	}
	return filter
}

// serve serves the subscription until ctx ends or the client leaves.
func (s *listening) serve(ctx context.Context) error {
	x := s.c.x
	s.stream.out = &x.reply.out
	var running sync.WaitGroup
	defer running.Wait()
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	s.settled.Add(len(s.parts))
	for _, p := range s.parts {
		running.Go(func() { p.follow(ctx) })
	}
	s.awaitParts(ctx)
	if problem := s.refusal(); problem != nil {
		return s.refuse(problem)
	}
	s.c.beginStream()
	if err := s.acknowledge(); err != nil {
		return err
	}
	if err := s.notify(ctx); err != nil || x.account.Context.Err() != nil {
		return err
	}
	_, err := s.stream.send(event(jsonrpc.AppendResult(nil, s.c.m.ID.Bytes, []byte(`{"resultType":"complete","_meta":`+s.meta()+`}`))))
	return err
}

// awaitParts waits until all servers have answered, or for the time of an answer of all.
func (s *listening) awaitParts(ctx context.Context) {
	all := make(chan struct{})
	go func() { s.settled.Wait(); close(all) }()
	ctx, cancel := context.WithTimeout(ctx, s.c.endpoint.ListLimit())
	defer cancel()
	several.Wait(ctx, all)
}

// refusal returns an error if the request must be refused: a server misses a capability of the
// client, or all servers have refused it.
func (s *listening) refusal() *jsonrpc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *jsonrpc.Error
	refused := 0
	for _, p := range s.parts {
		if p.refusal == nil {
			continue
		}
		if refused++; first == nil || p.refusal.Code == mcp.CodeMissingCapability {
			first = p.refusal
		}
	}
	if first != nil && (refused == len(s.parts) || first.Code == mcp.CodeMissingCapability) {
		return first
	}
	return nil
}

func (s *listening) refuse(problem *jsonrpc.Error) error {
	status := conversation.Answered
	switch problem.Code {
	case mcp.CodeMissingCapability:
		status = conversation.BadRequest
	case jsonrpc.CodeMethodNotFound:
		status = conversation.UnknownMethod
	}
	return s.c.x.reply.Answer(status, jsonrpc.AppendErrorResponse(nil, s.c.m.ID.Bytes, problem))
}

// meta returns the _meta of a message of the subscription.
func (s *listening) meta() string {
	return `{"` + mcpname.MetaSubscriptionID + `":` + string(s.c.m.ID.Bytes) + `}`
}

// acknowledge sends what the subscription has: all changes of lists, because the gate sends them when
// a server returns, and of the rest what servers have accepted. Those that are away are asked later.
func (s *listening) acknowledge() error {
	var lists []jsonrpc.Member
	for i, kind := range listKinds {
		if s.lists[i] {
			lists = append(lists, jsonrpc.Member{Name: kind + "ListChanged", JSON: []byte("true")})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var uris, tasks [][]byte
	for _, p := range s.parts {
		switch {
		case p.refusal != nil:
		case p.hears:
			uris = append(uris, common(p.uris, p.accepted.Member("resourceSubscriptions"))...)
			tasks = append(tasks, common(p.tasks, p.accepted.Member("taskIds"))...)
		default:
			uris, tasks = append(uris, p.uris...), append(tasks, p.tasks...)
		}
	}
	filter := jsonrpc.AppendObject(nil, withWishes(lists, uris, tasks)...)
	_, err := s.stream.send(append(event([]byte(`{"jsonrpc":"2.0","method":"`+mcpname.NotifySubscriptionsAcknowledged+`","params":{"_meta":`+s.meta()+`,"notifications":`+string(filter)+`}}`)), s.early...))
	s.began, s.early = true, nil
	return err
}

// common returns the JSON strings that are in an array, too.
func common(texts [][]byte, array jsonrpc.Value) (all [][]byte) {
	accepted := make(map[string]bool)
	for e := range array.Elements() {
		text, _ := e.Text()
		accepted[text] = true
	}
	for _, t := range texts {
		if text, _ := (jsonrpc.Value{Bytes: t}).Text(); accepted[text] {
			all = append(all, t)
		}
	}
	return all
}

// event returns the event with a message.
func event(message []byte) []byte {
	return jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message})
}

// notify sends changes of lists and signs of life until ctx ends. The other notifications are sent as they
// come.
func (s *listening) notify(ctx context.Context) error {
	heartbeat := time.NewTicker(s.c.x.h.cfg.Gateway.HeartbeatInterval())
	defer heartbeat.Stop()
	var due <-chan time.Time
	for {
		returned := s.c.endpoint.Returned()
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-returned:
			s.listsChanged(s.lists)
		case <-s.wake:
			if due == nil {
				due = time.After(listChangePause)
			}
		case <-due:
			due, err = nil, s.sendChanges()
		case <-heartbeat.C:
			_, err = s.stream.send(jsonrpc.AppendComment(nil, "listening"))
		}
		if err != nil {
			return err
		}
	}
}

// listsChanged notes changes that the client gets soon.
func (s *listening) listsChanged(which [len(listKinds)]bool) {
	s.mu.Lock()
	for i, changed := range which {
		s.changed[i] = s.changed[i] || changed && s.lists[i]
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sendChanges sends the noted changes.
func (s *listening) sendChanges() error {
	s.mu.Lock()
	changed := s.changed
	s.changed = [len(listKinds)]bool{}
	s.mu.Unlock()
	var events []byte
	for i, kind := range listKinds {
		if changed[i] {
			events = append(events, event([]byte(`{"jsonrpc":"2.0","method":"notifications/`+kind+`/list_changed","params":{"_meta":`+s.meta()+`}}`))...)
		}
	}
	if events == nil {
		return nil
	}
	_, err := s.stream.send(events)
	return err
}

// send sends a message of a server, after the acknowledgement.
func (s *listening) send(message []byte) error {
	s.mu.Lock()
	if !s.began {
		defer s.mu.Unlock()
		if len(s.early)+len(message) > maxEarly {
			return jsonrpc.ErrTooLarge
		}
		s.early = append(s.early, event(message)...)
		return nil
	}
	s.mu.Unlock()
	_, err := s.stream.send(event(message))
	if err != nil {
		s.cancel()
	}
	return err
}

// follow subscribes to the server whenever it is not subscribed to, until ctx ends.
func (p *subscribed) follow(ctx context.Context) {
	defer p.settle()
	pause := minSubscribePause
	for ctx.Err() == nil {
		returned := p.of.c.endpoint.Returned()
		heard, refused := p.attempt(ctx)
		p.settle()
		var wait <-chan struct{} // a server that refuses is asked again after an outage only
		if !refused {
			wait = after(pause/2 + rand.N(pause/2))
		}
		if pause = min(2*pause, maxSubscribePause); heard {
			pause = minSubscribePause
		}
		select {
		case <-ctx.Done():
		case <-wait:
		case <-returned:
			several.Wait(ctx, after(p.of.c.endpoint.Spread())) // not all clients at once
		}
	}
}

// settle notes that the first attempt has an outcome.
func (p *subscribed) settle() { p.once.Do(p.of.settled.Done) }

// attempt subscribes to the server, and passes its notifications on until its stream ends. Heard
// reports whether it began, and refused whether the server will not begin it.
func (p *subscribed) attempt(ctx context.Context) (heard, refused bool) {
	c := p.of.c
	if !p.server.Admit() {
		return false, false
	}
	p.of.mu.Lock()
	p.hears, p.refusal = false, nil
	p.of.mu.Unlock()
	to := &streamWriter{head: make(http.Header), events: eventWrapper{whole: true, pass: p.pass}}
	x := c.x.part(ctx, to, c.to(p.server, nil, mcpname.SubscriptionsListen, "", p.body))
	x.run()
	p.of.mu.Lock()
	heard, p.hears = p.hears, false
	switch {
	case heard:
	case ctx.Err() != nil || to.status >= http.StatusInternalServerError || passes(x.account.Problem):
		p.refusal = nil
	default:
		refused = true
		p.refusal = cmp.Or(p.refusal, to.refusal())
	}
	p.of.mu.Unlock()
	switch problem := x.account.Problem; {
	case problem != nil && problem.Type == mcp.UpstreamDown:
		c.endpoint.Failed(p.server, "it cannot be reached")
	case !x.client.reached: // a server may be slow to begin a stream and well otherwise
		p.server.Untried()
	case refused:
		c.endpoint.Succeeded(p.server)
	}
	return heard, refused
}

// passes reports whether a server that could not be asked because of a problem is to be asked again.
func passes(problem *mcp.Problem) bool {
	if problem == nil {
		return false
	}
	switch problem.Type {
	case mcp.Overloaded, mcp.ClientLimit, mcp.ShuttingDown, mcp.IdentityDown, mcp.StoreUnavailable:
		return true
	default:
		return problem.Type.Upstream()
	}
}

// pass passes an event of the server on, if it is of this subscription.
func (p *subscribed) pass(text []byte) error {
	e, _ := jsonrpc.EventIn(text)
	m, err := jsonrpc.ParseMessage(e.Data, jsonrpc.Limits{})
	if err != nil {
		m = &jsonrpc.Message{} // such as a comment
	}
	of := m.Params.Meta.Member(mcpname.MetaSubscriptionID)
	if m.Kind == jsonrpc.Response {
		of = m.ID
	}
	if m.Kind == jsonrpc.Request || !of.Present() || !jsonrpc.SameID(of.Bytes, p.of.c.m.ID.Bytes) {
		return nil
	}
	if m.Kind == jsonrpc.Response {
		p.ended(m)
		return nil
	}
	return p.notified(m)
}

// notified passes a notification of the server on, if the client has asked for it.
func (p *subscribed) notified(m *jsonrpc.Message) error {
	switch m.Method {
	case mcpname.NotifySubscriptionsAcknowledged:
		return p.acknowledged(m.Params.Member("notifications").Clone())
	case mcpname.NotifyResourcesUpdated:
		if p.wantsURI(m.Params.URI) {
			return p.of.send(m.Raw)
		}
	case mcpname.NotifyTasks:
		if has(p.tasks, m.Params.TaskID) {
			return p.of.send(m.Raw)
		}
	default:
		var which [len(listKinds)]bool
		for i, kind := range listKinds {
			which[i] = m.Method == "notifications/"+kind+"/list_changed"
		}
		p.of.listsChanged(which)
	}
	return nil
}

// ended notes the end of the stream, which is an error if the server refuses the subscription.
func (p *subscribed) ended(m *jsonrpc.Message) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.hears {
		p.refusal = errorIn(m)
	}
}

// acknowledged notes that the server has begun the stream. If the client has its acknowledgement
// already, it may have missed something.
func (p *subscribed) acknowledged(accepted jsonrpc.Value) error {
	s := p.of
	s.c.endpoint.Succeeded(p.server)
	s.mu.Lock()
	p.accepted, p.hears = accepted, true
	began := s.began
	s.mu.Unlock()
	p.settle()
	if !began {
		return nil
	}
	s.listsChanged(s.lists)
	for _, uri := range common(p.uris, accepted.Member("resourceSubscriptions")) {
		if err := s.send([]byte(`{"jsonrpc":"2.0","method":"` + mcpname.NotifyResourcesUpdated + `","params":{"_meta":` + s.meta() + `,"uri":` + string(uri) + `}}`)); err != nil {
			return err
		}
	}
	return nil
}

// wantsURI reports whether the client has subscribed to a resource of the server, or to one of which
// it is a part.
func (p *subscribed) wantsURI(uri jsonrpc.Value) bool {
	text, ok := uri.Text()
	for _, u := range p.uris {
		if whole, _ := (jsonrpc.Value{Bytes: u}).Text(); ok && strings.HasPrefix(text, whole) {
			return true
		}
	}
	return false
}

// has reports whether a JSON string is among others.
func has(texts [][]byte, text jsonrpc.Value) bool {
	wanted, ok := text.Text()
	return ok && slices.ContainsFunc(texts, func(t []byte) bool {
		one, _ := (jsonrpc.Value{Bytes: t}).Text()
		return one == wanted
	})
}
