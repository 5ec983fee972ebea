package gate

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// How much the catalog keeps, in bytes. Policy assumes the worst of a tool that
// does not fit, and the gate asks the upstream for it again when it is needed.
const (
	maxCatalog = 32 << 20 // shared equally among the upstreams
	minShelf   = 4 << 20  // the least that an upstream gets of it
	shareOf    = 4        // one client may have this part of its upstream's
	maxPage    = 2 << 20  // of one page of a list
	entrySize  = 256      // what a tool, a page or a client costs besides its texts
)

// Limits on the stored description of a tool, in bytes.
const (
	maxToolName    = 1 << 10
	maxDescription = 8 << 10
	maxTitle       = 1 << 10
	maxMirrored    = 256 << 10
	maxText        = 1 << 20 // nothing is kept of a text that is longer
)

// A Tool is what an upstream says of one of its tools.
type Tool struct {
	Name        string
	Description string
	TaskSupport string // forbidden, optional or required; empty means forbidden
	Annotations policy.Annotations
	Digest      [sha256.Size]byte // of the definition; see DigestText
	Mirrored    []byte            // the definition, if headers must repeat some of the arguments

	unfit bool // it has texts that are too long to be kept, and must be known whole
}

// Facts are what a client and an upstream said of themselves when they met.
type Facts struct {
	Tasks     bool // the upstream does tasks
	Known     bool // whether Tasks is known at all
	ListTasks bool // the upstream lists its tasks
	Notifies  bool // the upstream says that it sends notifications about its tasks
	OpensURLs bool // the client says that it can ask its user to open a URL
	Session   policy.Session
}

// A Page is one page of a list as the upstream gave it.
type Page struct {
	Method string
	Cursor string // that asked for it
	Result []byte
}

// A catalog remembers what upstreams listed for clients, each by itself: what one
// client is shown says nothing about another one with other rights.
type catalog struct {
	mu      sync.Mutex
	shelves map[string]*shelf // by upstream, so that none pushes out what is known of another's tools
}

// A shelf is what is remembered of one upstream.
type shelf struct {
	clients map[string]*list.Element // of *notes
	recent  list.List                // the most recently used first
	budget  int
	size    int
	pages   int // the part of size that pages have
}

// notes are what is remembered for one client.
type notes struct {
	client string
	facts  Facts
	tools  map[string]Tool
	pages  map[pageKey][]byte
	size   int // of everything
	paged  int // of pages
}

type pageKey struct{ method, cursor string }

// An overflow is something that the catalog had no room for.
type overflow string

// The overflows.
const (
	overflowTool     overflow = "tool"     // a tool has texts that are too long
	overflowClient   overflow = "client"   // one client was listed too much
	overflowUpstream overflow = "upstream" // all clients of an upstream were listed too much
)

// learnFacts notes what client and upstream said when they met. It begins anew
// for the client: what was listed before may no longer hold.
func (c *catalog) learnFacts(of Client, budget int, facts Facts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelf(of.Upstream, budget)
	s.forget(of.Key)
	s.setFacts(s.notes(of.Key), facts)
	s.trim()
}

// learnTasks notes whether the upstream does tasks for a client that it met when
// nobody here was listening.
func (c *catalog) learnTasks(of Client, budget int, tasks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelf(of.Upstream, budget)
	n := s.notes(of.Key)
	facts := n.facts
	facts.Tasks, facts.Known = tasks, true
	s.setFacts(n, facts)
	s.trim()
}

// learnPage notes a page of a list, and the tools on it, and returns for what
// there was no room.
func (c *catalog) learnPage(of Client, budget int, page Page, tools []Tool) []overflow {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelf(of.Upstream, budget)
	n := s.notes(of.Key)
	if page.Cursor == "" {
		s.beginAnew(n, page.Method)
	}
	var lacked []overflow
	for _, t := range tools {
		if what := s.putTool(n, t); what != "" && !slices.Contains(lacked, what) {
			lacked = append(lacked, what)
		}
	}
	s.putPage(n, page)
	if s.trim() {
		lacked = append(lacked, overflowUpstream)
	}
	return lacked
}

// about returns what client and upstream said when they met.
func (c *catalog) about(of Client) Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.find(of); n != nil {
		return n.facts
	}
	return Facts{}
}

// recall returns what client and upstream said when they met, and what is
// known of a tool.
func (c *catalog) recall(of Client, name string) (Facts, Tool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(of)
	if n == nil {
		return Facts{}, Tool{}
	}
	return n.facts, n.tools[name]
}

// tool returns what is known of a tool.
func (c *catalog) tool(of Client, name string) (Tool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(of)
	if n == nil {
		return Tool{}, false
	}
	t, ok := n.tools[name]
	return t, ok
}

// page returns the result that a list had when it was last given.
func (c *catalog) page(of Client, method, cursor string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(of)
	if n == nil {
		return nil, false
	}
	result, ok := n.pages[pageKey{method, cursor}]
	return result, ok
}

func (c *catalog) find(of Client) *notes {
	if s := c.shelves[of.Upstream]; s != nil {
		return s.find(of.Key)
	}
	return nil
}

func (c *catalog) shelf(upstream string, budget int) *shelf {
	if c.shelves == nil {
		c.shelves = make(map[string]*shelf)
	}
	s := c.shelves[upstream]
	if s == nil {
		s = &shelf{clients: make(map[string]*list.Element)}
		c.shelves[upstream] = s
	}
	s.budget = budget
	return s
}

func (s *shelf) find(client string) *notes {
	element, ok := s.clients[client]
	if !ok {
		return nil
	}
	s.recent.MoveToFront(element)
	return element.Value.(*notes)
}

func (s *shelf) notes(client string) *notes {
	if n := s.find(client); n != nil {
		return n
	}
	n := &notes{client: client, tools: make(map[string]Tool), pages: make(map[pageKey][]byte)}
	s.clients[client] = s.recent.PushFront(n)
	s.weigh(n, entrySize+len(client))
	return n
}

// weigh notes that n has become larger, or smaller.
func (s *shelf) weigh(n *notes, by int) {
	n.size += by
	s.size += by
}

func (s *shelf) setFacts(n *notes, facts Facts) {
	size := func(said policy.Session) int { return len(said.Client) + len(said.Version) + len(said.Protocol) }
	s.weigh(n, size(facts.Session)-size(n.facts.Session))
	n.facts = facts
}

// beginAnew forgets one list of a client, which may have lost some entries.
func (s *shelf) beginAnew(n *notes, method string) {
	if method == listTools {
		for name := range n.tools {
			s.dropTool(n, name)
		}
	}
	for key := range n.pages {
		if key.method == method {
			s.dropPage(n, key)
		}
	}
}

// putTool notes a tool, unless there is no room for it. Then nothing is known of
// it any more: what was known may no longer hold.
func (s *shelf) putTool(n *notes, t Tool) overflow {
	s.dropTool(n, t.Name)
	if !t.Whole() {
		return overflowTool
	}
	if n.size-n.paged+t.size() > s.budget/shareOf {
		return overflowClient
	}
	n.tools[t.Name] = t
	s.weigh(n, t.size())
	return ""
}

func (s *shelf) dropTool(n *notes, name string) {
	if t, ok := n.tools[name]; ok {
		delete(n.tools, name)
		s.weigh(n, -t.size())
	}
}

// putPage notes a page, to be given again when the upstream fails to. There are
// servers that answer to any cursor, so a client that has been given too many
// keeps none but the last.
func (s *shelf) putPage(n *notes, page Page) {
	key := pageKey{page.Method, strings.Clone(page.Cursor)}
	s.dropPage(n, key)
	size := pageSize(key, page.Result)
	if len(page.Result) > maxPage {
		return
	}
	if n.size+size > s.budget/shareOf {
		s.dropPages(n)
	}
	if n.size+size > s.budget/shareOf {
		return
	}
	n.pages[key] = bytes.Clone(page.Result)
	n.paged, s.pages = n.paged+size, s.pages+size
	s.weigh(n, size)
}

func pageSize(key pageKey, result []byte) int { return entrySize + len(key.cursor) + len(result) }

func (s *shelf) dropPage(n *notes, key pageKey) {
	if result, ok := n.pages[key]; ok {
		size := pageSize(key, result)
		delete(n.pages, key)
		n.paged, s.pages = n.paged-size, s.pages-size
		s.weigh(n, -size)
	}
}

func (s *shelf) dropPages(n *notes) {
	for key := range n.pages {
		s.dropPage(n, key)
	}
}

func (s *shelf) forget(client string) {
	if element, ok := s.clients[client]; ok {
		n := element.Value.(*notes)
		s.size, s.pages = s.size-n.size, s.pages-n.paged
		s.recent.Remove(element)
		delete(s.clients, client)
	}
}

// trim makes room: first by forgetting pages, which serve no more than comfort,
// and then all that is known of clients, in both cases of those first who have
// been silent longest. It reports whether it had to forget any tool.
func (s *shelf) trim() (forgot bool) {
	for element := s.recent.Back(); element != nil && s.size > s.budget && s.pages > 0; element = element.Prev() {
		s.dropPages(element.Value.(*notes))
	}
	for s.size > s.budget && s.recent.Len() > 1 {
		n := s.recent.Back().Value.(*notes)
		forgot = forgot || len(n.tools) > 0
		s.forget(n.client)
	}
	return forgot
}

// ReadTool reads a tool as it is listed, with its digest.
func ReadTool(entry jsonrpc.Value) Tool {
	t := readTool(entry)
	t.Digest = digestOf(entry)
	return t
}

// readTool reads a tool as it is listed, without its digest. Texts that are
// longer than any tool needs are cut, in memory of their own. Annotations with
// such a title count for nothing, so that policy takes the worse for true.
func readTool(entry jsonrpc.Value) Tool {
	var t Tool
	if bytes.Contains(entry.Bytes, []byte("x-mcp-header")) {
		if t.unfit = len(entry.Bytes) > maxMirrored; !t.unfit {
			t.Mirrored = bytes.Clone(entry.Bytes)
		}
	}
	for name, value := range entry.Members() {
		switch name {
		case "name":
			t.Name, t.unfit = textOf(value, maxToolName, t.unfit)
		case "description":
			t.Description, _ = textOf(value, maxDescription, false)
		case "execution":
			t.TaskSupport = readTaskSupport(value.Member("taskSupport"))
		case "annotations":
			t.Annotations = readAnnotations(value)
		}
	}
	return t
}

// Whole reports whether t has all that must be known of it. A tool that has not
// is never kept.
func (t *Tool) Whole() bool { return !t.unfit }

// size returns what it costs to keep t.
func (t *Tool) size() int {
	return entrySize + len(t.Name) + len(t.Description) + len(t.Annotations.Title) + len(t.Mirrored)
}

// textOf returns at most limit bytes of a text, and whether it is longer or was
// unfit before.
func textOf(v jsonrpc.Value, limit int, unfit bool) (string, bool) {
	if len(v.Bytes) > maxText {
		return "", true
	}
	text, _ := v.Text()
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), limit)], "")), unfit || len(text) > limit
}

// readTaskSupport returns the task support that a tool declares. An unknown value
// counts as forbidden.
func readTaskSupport(v jsonrpc.Value) string {
	if !v.Present() {
		return ""
	}
	text, _ := textOf(v, len(policy.TaskForbidden), false)
	switch policy.TaskSupport(text) {
	case policy.TaskRequired, policy.TaskOptional:
		return text
	default:
		return string(policy.TaskForbidden)
	}
}

func readAnnotations(v jsonrpc.Value) policy.Annotations {
	var a policy.Annotations
	for name, value := range v.Members() {
		switch name {
		case "title":
			var long bool
			if a.Title, long = textOf(value, maxTitle, false); long {
				return policy.Annotations{Title: a.Title}
			}
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
