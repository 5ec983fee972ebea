package several

import (
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A known remembers what clients have seen, by the client and a text. It drops arbitrary clients, or
// texts of one client, above its limits.
type known[V any] struct {
	maxTexts int // of one client

	mu      sync.Mutex
	clients map[string]map[string]V
	size    int // bytes of all texts, roughly
}

const (
	maxClients   = 2000
	maxURIs      = 20_000
	maxTemplates = 1000
	maxText      = 2048     // bytes
	maxKnown     = 32 << 20 // bytes
)

// sizeOf returns roughly the memory for a text.
func sizeOf(text string) int { return len(text) + 64 }

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
		texts = make(map[string]V)
		k.clients[client] = texts
	}
	old, ok := texts[text]
	if !ok {
		k.size += sizeOf(text)
		k.keepLimits(client)
	}
	texts[strings.Clone(text)] = change(old)
}

// keepLimits drops other clients, or texts of the given one, above the limits. The caller holds
// the lock.
func (k *known[V]) keepLimits(client string) {
	for other := range k.clients {
		if len(k.clients) <= maxClients && k.size <= maxKnown {
			break
		}
		if other != client {
			k.drop(other)
		}
	}
	texts := k.clients[client]
	for text := range texts {
		if len(texts) < k.maxTexts && k.size <= maxKnown {
			break
		}
		delete(texts, text)
		k.size -= sizeOf(text)
	}
}

// drop drops a client. The caller holds the lock.
func (k *known[V]) drop(client string) {
	for text := range k.clients[client] {
		k.size -= sizeOf(text)
	}
	delete(k.clients, client)
}

func (k *known[V]) forget(client string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(client)
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
	to := &e.uris
	switch method {
	case mcpname.ResourcesList:
	case mcpname.ResourcesTemplatesList:
		to = &e.templates
	default:
		return
	}
	for _, p := range parts {
		for _, result := range p.Results {
			for entry := range result.Member(lists[method]).Elements() {
				to.update(client, uriOf(entry), func(owner *Server) *Server { return e.first(owner, p.Server) })
			}
		}
	}
}

// first returns the one of two servers that comes first in the configuration. One of them may be nil.
func (e *Endpoint) first(a, b *Server) *Server {
	for _, s := range e.Servers {
		if s == a || s == b {
			return s
		}
	}
	return nil
}

// Owner returns the server that has a resource, as far as a client has seen, or nil. Of the servers that
// list it or have a template for it, that is the first in the configuration: no server takes resources of
// those before it, and all replicas of the gate agree.
func (e *Endpoint) Owner(client, uri string) *Server {
	owner, _ := e.uris.get(client, uri)
	e.templates.texts(client, func(template string, of *Server) {
		if fits(template, uri) {
			owner = e.first(owner, of)
		}
	})
	return owner
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
