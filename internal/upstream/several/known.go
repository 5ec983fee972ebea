package several

import (
	"slices"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A known remembers what clients have seen, by the client and a text. It drops arbitrary clients, or
// texts of one client, above its limits.
type known[V any] struct {
	mu      sync.Mutex
	clients map[string]map[string]V
}

const (
	maxClients = 2000
	maxTexts   = 20_000
	maxText    = 2048 // bytes
)

func (k *known[V]) get(client, text string) (v V, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok = k.clients[client][text]
	return v, ok
}

func (k *known[V]) update(client, text string, change func(V) V) {
	if len(text) > maxText {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	texts := k.clients[client]
	if texts == nil {
		if k.clients == nil {
			k.clients = make(map[string]map[string]V)
		}
		dropOne(k.clients, maxClients)
		texts = make(map[string]V)
		k.clients[client] = texts
	}
	old, ok := texts[text]
	if !ok {
		dropOne(texts, maxTexts)
	}
	texts[strings.Clone(text)] = change(old)
}

func dropOne[V any](m map[string]V, limit int) {
	for key := range m {
		if len(m) < limit {
			return
		}
		delete(m, key)
	}
}

func (k *known[V]) forget(client string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.clients, client)
}

// texts calls f for the texts of a client.
func (k *known[V]) texts(client string, f func(text string, v V)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for text, v := range k.clients[client] {
		f(text, v)
	}
}

// LearnURIs remembers the resources and templates that a client may see.
func (e *Endpoint) LearnURIs(client, method string, parts []Part) {
	if method != mcpname.ResourcesList && method != mcpname.ResourcesTemplatesList {
		return
	}
	for _, p := range parts {
		for _, result := range p.Results {
			for entry := range result.Member(lists[method]).Elements() {
				e.uris.update(client, uriOf(entry), func(owners []*Server) []*Server { return with(owners, p.Server) })
			}
		}
	}
}

func with(owners []*Server, s *Server) []*Server {
	if slices.Contains(owners, s) {
		return owners
	}
	return append(slices.Clip(owners), s)
}

// Owners returns the servers that have a resource, as far as a client has seen: those that list its
// URI, or else those with a template that it matches.
func (e *Endpoint) Owners(client, uri string) []*Server {
	if owners, ok := e.uris.get(client, uri); ok {
		return owners
	}
	var owners []*Server
	e.uris.texts(client, func(template string, of []*Server) {
		if fits(template, uri) {
			for _, s := range of {
				owners = with(owners, s)
			}
		}
	})
	return owners
}

// fits reports whether a URI may come from a template: it has the literal parts in their order.
func fits(template, uri string) bool {
	start, rest, ok := strings.Cut(template, "{")
	if !ok || !strings.HasPrefix(uri, start) {
		return false
	}
	uri = uri[len(start):]
	for {
		_, after, closed := strings.Cut(rest, "}")
		if !closed {
			return false
		}
		literal, next, more := strings.Cut(after, "{")
		if !more {
			return strings.HasSuffix(uri, literal)
		}
		var found bool
		if _, uri, found = strings.Cut(uri, literal); !found {
			return false
		}
		rest = next
	}
}

// LearnTask remembers the server of a task that a client was told of. Two servers with the same id
// make it useless, so it then has none.
func (e *Endpoint) LearnTask(client string, s *Server, result jsonrpc.Value) {
	id, ok := result.Member("task").Member("taskId").Text()
	if !ok {
		id, ok = result.Member("taskId").Text()
	}
	if ok {
		e.NoteTask(client, id, s)
	}
}

// NoteTask is [Endpoint.LearnTask] for an id.
func (e *Endpoint) NoteTask(client, id string, s *Server) {
	first := true
	e.tasks.update(client, id, func(old *Server) *Server {
		first = old == nil || old == s
		if !first {
			return old
		}
		return s
	})
	if !first {
		e.log.Warn("two servers of the endpoint use the same id for a task: the later one cannot be reached", "upstream", s.Name())
	}
}

// TaskServer returns the server of a task, if a client was told of it.
func (e *Endpoint) TaskServer(client, id string) (*Server, bool) { return e.tasks.get(client, id) }
