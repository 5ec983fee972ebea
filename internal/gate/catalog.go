package gate

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// maxCatalog is how many bytes of lists the catalog keeps. The lists of those
// who have been silent longest go first.
const maxCatalog = 32 << 20

// maxNotes is how many of them are kept for one client.
const maxNotes = maxCatalog / 4

// entrySize stands for what a tool or a client costs besides its texts.
const entrySize = 256

// A Tool is what an upstream says of one of its tools.
type Tool struct {
	Name        string
	Description string
	TaskSupport string // forbidden, optional or required; empty means forbidden
	Annotations policy.Annotations
	Digest      [sha256.Size]byte // of the definition as it was listed
	Mirrored    []byte            // the definition, if headers must repeat some of the arguments
}

// DigestText returns the digest of the definition as text, or nothing if the
// tool was never listed.
func (t Tool) DigestText() string {
	if t.Digest == ([sha256.Size]byte{}) {
		return ""
	}
	return hex.EncodeToString(t.Digest[:])
}

// Facts are what a client and an upstream said of themselves when they met.
type Facts struct {
	Tasks     bool // the upstream does tasks
	Known     bool // whether Tasks is known at all
	ListTasks bool // the upstream lists its tasks
	Session   policy.Session
}

// A Page is one page of a list as the upstream gave it.
type Page struct {
	Method string
	Cursor string // that asked for it
	Result []byte
}

// A catalog remembers what upstreams told clients, each by itself: what one
// client is shown says nothing about another one with other rights.
type catalog struct {
	mu      sync.Mutex
	clients map[string]*list.Element // of *notes
	recent  list.List                // the most recently used first
	size    int
}

// notes are what is remembered for one client.
type notes struct {
	client string
	facts  Facts
	tools  map[string]Tool
	pages  map[pageKey][]byte
	size   int
}

type pageKey struct{ method, cursor string }

// learnFacts notes what client and upstream said when they met. It begins anew
// for the client: what was listed before may no longer hold.
func (c *catalog) learnFacts(client string, facts Facts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(client)
	n := c.notes(client)
	n.facts = facts
	c.weigh(n)
	c.trim()
}

// learnTasks notes whether the upstream does tasks for a client that it met when
// nobody here was listening.
func (c *catalog) learnTasks(client string, tasks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.notes(client)
	n.facts.Tasks, n.facts.Known = tasks, true
	c.weigh(n)
	c.trim()
}

// learnPage notes a page of a list, and the tools on it.
func (c *catalog) learnPage(client string, page Page, tools []Tool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.notes(client)
	if page.Method == listTools && page.Cursor == "" {
		n.tools = nil // a list that begins anew may have lost some
	}
	if n.tools == nil {
		n.tools = make(map[string]Tool, len(tools))
	}
	for _, t := range tools {
		n.tools[t.Name] = t
	}
	if n.pages == nil || page.Cursor == "" {
		n.pages = forgetPages(n.pages, page.Method)
	}
	n.pages[pageKey{page.Method, page.Cursor}] = page.Result
	if c.weigh(n); n.size > maxNotes {
		n.pages = nil // there are servers that answer to any cursor
		c.weigh(n)
	}
	c.trim()
}

// forgetPages returns pages without those of one list.
func forgetPages(pages map[pageKey][]byte, method string) map[pageKey][]byte {
	if pages == nil {
		pages = make(map[pageKey][]byte)
	}
	maps.DeleteFunc(pages, func(k pageKey, _ []byte) bool { return k.method == method })
	return pages
}

// about returns what client and upstream said when they met.
func (c *catalog) about(client string) Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.find(client); n != nil {
		return n.facts
	}
	return Facts{}
}

// recall returns what client and upstream said when they met, and what is
// known of a tool.
func (c *catalog) recall(client, name string) (Facts, Tool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(client)
	if n == nil {
		return Facts{}, Tool{}
	}
	return n.facts, n.tools[name]
}

// tool returns what is known of a tool.
func (c *catalog) tool(client, name string) (Tool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(client)
	if n == nil {
		return Tool{}, false
	}
	t, ok := n.tools[name]
	return t, ok
}

// page returns the result that a list had when it was last given.
func (c *catalog) page(client, method, cursor string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(client)
	if n == nil {
		return nil, false
	}
	result, ok := n.pages[pageKey{method, cursor}]
	return result, ok
}

func (c *catalog) find(client string) *notes {
	element, ok := c.clients[client]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(element)
	return element.Value.(*notes)
}

func (c *catalog) notes(client string) *notes {
	if n := c.find(client); n != nil {
		return n
	}
	if c.clients == nil {
		c.clients = make(map[string]*list.Element)
	}
	n := &notes{client: client}
	c.clients[client] = c.recent.PushFront(n)
	return n
}

// weigh brings the size of what is kept up to date after n has changed.
func (c *catalog) weigh(n *notes) {
	said := n.facts.Session
	size := entrySize + len(n.client) + len(said.Client) + len(said.Version) + len(said.Protocol)
	for _, t := range n.tools {
		size += entrySize + len(t.Name) + len(t.Description) + len(t.Mirrored)
	}
	for key, result := range n.pages {
		size += entrySize + len(key.cursor) + len(result)
	}
	c.size += size - n.size
	n.size = size
}

func (c *catalog) forget(client string) {
	if element, ok := c.clients[client]; ok {
		c.size -= element.Value.(*notes).size
		c.recent.Remove(element)
		delete(c.clients, client)
	}
}

func (c *catalog) trim() {
	for c.size > maxCatalog && c.recent.Len() > 1 {
		c.forget(c.recent.Back().Value.(*notes).client)
	}
}

// ReadTool reads a tool as it is listed.
func ReadTool(entry jsonrpc.Value) Tool {
	t := Tool{Digest: sha256.Sum256(entry.Bytes)}
	if bytes.Contains(entry.Bytes, []byte("x-mcp-header")) {
		t.Mirrored = bytes.Clone(entry.Bytes)
	}
	for name, value := range entry.Members() {
		switch name {
		case "name":
			t.Name, _ = value.Text()
		case "description":
			t.Description, _ = value.Text()
		case "execution":
			t.TaskSupport, _ = value.Member("taskSupport").Text()
		case "annotations":
			t.Annotations = readAnnotations(value)
		}
	}
	return t
}

func readAnnotations(v jsonrpc.Value) policy.Annotations {
	var a policy.Annotations
	for name, value := range v.Members() {
		switch name {
		case "title":
			a.Title, _ = value.Text()
		case "readOnlyHint":
			a.ReadOnly = hint(value)
		case "destructiveHint":
			a.Destructive = hint(value)
		case "idempotentHint":
			a.Idempotent = hint(value)
		case "openWorldHint":
			a.OpenWorld = hint(value)
		}
	}
	return a
}

// hint returns a hint that is given as a boolean, and nil otherwise.
func hint(v jsonrpc.Value) *bool {
	switch string(v.Bytes) {
	case "true", "false":
		b := len(v.Bytes) == len("true")
		return &b
	default:
		return nil
	}
}
