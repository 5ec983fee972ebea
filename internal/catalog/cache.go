package catalog

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Limits of the cache in bytes. For a tool that is not in the cache, policy assumes the worst
// hints, and the gate asks the upstream for it again when it needs the definition.
const (
	maxCache         = 32 << 20 // shared equally among the upstreams
	minUpstreamCache = 4 << 20  // minimum for each upstream
	shareOf          = 4        // one client may use 1/shareOf of its upstream's part
	maxPage          = 2 << 20  // one page of a list
	entrySize        = 256      // of a tool, page or client without its texts
)

// Limits on the stored description of a tool, in bytes.
const (
	maxToolName    = 1 << 10
	maxDescription = 8 << 10
	maxTitle       = 1 << 10
	maxMirrored    = 256 << 10
	maxText        = 1 << 20 // longer texts are not read at all
)

// A Tool is the definition of a tool by its upstream.
type Tool struct {
	Name        string
	Description string
	TaskSupport string // forbidden, optional or required; empty means forbidden
	Annotations policy.Annotations
	Digest      [sha256.Size]byte // of the definition; see DigestText
	Mirrored    []byte            // the definition, if headers must repeat some arguments

	HasOutputSchema bool // clients check structured results, even of errors

	// Change describes a change of the tool that policy depends on and that no operator has
	// accepted. Then Annotations are older than the current definition.
	Change *toolhistory.Change

	// Accepted: an operator has accepted this definition, although it is not the pinned one.
	Accepted bool

	several    bool                   // the list has other definitions of this name
	defined    toolhistory.Definition // the current definition, for its history
	incomplete bool                   // a text of it is too long to be kept
}

// A Handshake has the declarations of a client and an upstream to each other.
type Handshake struct {
	Tasks     bool // the upstream supports tasks
	Known     bool // whether Tasks is known
	ListTasks bool // the upstream lists its tasks
	Notifies  bool // the upstream sends notifications about its tasks
	OpensURLs bool // the client can ask its user to open a URL
	Session   policy.Session
}

// A Page is one page of a list by an upstream.
type Page struct {
	Method string
	Cursor string // of the request; empty for the first page
	Result []byte
}

// A cache has the lists of upstreams, for each client separately: another client may have
// other rights and see another list.
type cache struct {
	mu        sync.Mutex
	upstreams map[string]*upstreamCache // each with a limit of its own
}

// An upstreamCache is the cache for one upstream.
type upstreamCache struct {
	clients map[string]*list.Element // of *notes
	recent  list.List                // most recently used first
	budget  int
	size    int
	pages   int // the part of size for pages
}

// A clientEntry is the cache for one client of an upstream.
type clientEntry struct {
	client    string
	handshake Handshake
	tools     map[string]Tool
	pages     map[pageKey][]byte
	size      int // total
	paged     int // the part for pages
}

type pageKey struct{ method, cursor string }

// An overflow is the limit that prevented an upstream's list from being kept. Its value is a
// label of metrics.
type overflow string

// The overflows.
const (
	overflowTool     overflow = "tool"     // texts of a tool are too long
	overflowClient   overflow = "client"   // the lists of one client are too large
	overflowUpstream overflow = "upstream" // the lists of all clients are too large
	overflowHistory  overflow = "memory"   // the store cannot keep the definitions of all tools
)

// setHandshake replaces the entry of a client, because its former lists may no longer hold.
func (c *cache) setHandshake(of Client, budget int, handshake Handshake) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.upstreamCache(of.Upstream, budget)
	s.forget(of.Key)
	s.replaceHandshake(s.clientEntry(of.Key), handshake)
	s.trim()
}

// setTasks sets whether the upstream supports tasks, for a client whose handshake the gate did
// not see.
func (c *cache) setTasks(of Client, budget int, tasks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.upstreamCache(of.Upstream, budget)
	n := s.clientEntry(of.Key)
	handshake := n.handshake
	handshake.Tasks, handshake.Known = tasks, true
	s.replaceHandshake(n, handshake)
	s.trim()
}

// addPage adds a page of a list and its tools. It returns the limits that it has hit.
func (c *cache) addPage(of Client, budget int, page Page, tools []Tool) []overflow {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.upstreamCache(of.Upstream, budget)
	n := s.clientEntry(of.Key)
	if page.Cursor == "" {
		s.dropList(n, page.Method)
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

// lookup returns the handshake of a client, and a tool if it is known.
func (c *cache) lookup(of Client, name string) (handshake Handshake, t Tool, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.find(of); n != nil {
		handshake = n.handshake
		t, known = n.tools[name]
	}
	return handshake, t, known
}

// tools returns the tools of a client.
func (c *cache) tools(of Client) []Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(of)
	if n == nil {
		return nil
	}
	return slices.Collect(maps.Values(n.tools))
}

// page returns the last known result of a list.
func (c *cache) page(of Client, method, cursor string) (result []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.find(of); n != nil {
		result, known = n.pages[pageKey{method, cursor}]
	}
	return result, known
}

// allPages returns the last known results of all pages of a list.
func (c *cache) allPages(of Client, method string) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(of)
	if n == nil {
		return nil
	}
	var all [][]byte
	for key, result := range n.pages {
		if key.method == method {
			all = append(all, result)
		}
	}
	return all
}

func (c *cache) find(of Client) *clientEntry {
	if s := c.upstreams[of.Upstream]; s != nil {
		return s.find(of.Key)
	}
	return nil
}

func (c *cache) upstreamCache(upstream string, budget int) *upstreamCache {
	s := c.upstreams[upstream]
	if s == nil {
		s = &upstreamCache{clients: make(map[string]*list.Element)}
		c.upstreams[upstream] = s
	}
	s.budget = budget
	return s
}

func (s *upstreamCache) find(client string) *clientEntry {
	element, ok := s.clients[client]
	if !ok {
		return nil
	}
	s.recent.MoveToFront(element)
	return element.Value.(*clientEntry)
}

func (s *upstreamCache) clientEntry(client string) *clientEntry {
	if n := s.find(client); n != nil {
		return n
	}
	n := &clientEntry{client: client, tools: make(map[string]Tool), pages: make(map[pageKey][]byte)}
	s.clients[client] = s.recent.PushFront(n)
	s.grow(n, entrySize+len(client))
	return n
}

// grow adds to the size of an entry.
func (s *upstreamCache) grow(n *clientEntry, by int) {
	n.size += by
	s.size += by
}

func (s *upstreamCache) replaceHandshake(n *clientEntry, handshake Handshake) {
	size := func(said policy.Session) int { return len(said.Client) + len(said.Version) + len(said.Protocol) }
	s.grow(n, size(handshake.Session)-size(n.handshake.Session))
	n.handshake = handshake
}

// dropList removes one list of a client.
func (s *upstreamCache) dropList(n *clientEntry, method string) {
	if method == mcpname.ToolsList {
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

// putTool replaces a tool. If it does not fit, the tool is removed, because the former definition
// may no longer hold.
func (s *upstreamCache) putTool(n *clientEntry, t Tool) overflow {
	before, twice := n.tools[t.Name]
	//mutate:swap "twice &&" "twice && false &&" internal/app.TestToolListedTwiceIsUnpinned the last of two definitions of a tool in a list counts as pinned
	t.several = twice && (before.several || before.Digest != t.Digest)
	s.dropTool(n, t.Name)
	if !t.Complete() {
		return overflowTool
	}
	if n.size-n.paged+t.size() > s.budget/shareOf {
		return overflowClient
	}
	n.tools[t.Name] = t
	s.grow(n, t.size())
	return ""
}

func (s *upstreamCache) dropTool(n *clientEntry, name string) {
	if t, ok := n.tools[name]; ok {
		delete(n.tools, name)
		s.grow(n, -t.size())
	}
}

// putPage keeps a page for the case that the upstream fails. Some servers answer any cursor, so a
// client with too many pages keeps only the last one.
func (s *upstreamCache) putPage(n *clientEntry, page Page) {
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
	s.grow(n, size)
}

func pageSize(key pageKey, result []byte) int { return entrySize + len(key.cursor) + len(result) }

func (s *upstreamCache) dropPage(n *clientEntry, key pageKey) {
	if result, ok := n.pages[key]; ok {
		size := pageSize(key, result)
		delete(n.pages, key)
		n.paged, s.pages = n.paged-size, s.pages-size
		s.grow(n, -size)
	}
}

func (s *upstreamCache) dropPages(n *clientEntry) {
	for key := range n.pages {
		s.dropPage(n, key)
	}
}

func (s *upstreamCache) forget(client string) {
	if element, ok := s.clients[client]; ok {
		n := element.Value.(*clientEntry)
		s.size, s.pages = s.size-n.size, s.pages-n.paged
		s.recent.Remove(element)
		delete(s.clients, client)
	}
}

// trim frees space: first it drops pages, which are only a fallback, and then whole clients. It
// begins with the least recently used client. It reports whether it has dropped tools.
func (s *upstreamCache) trim() (forgot bool) {
	for element := s.recent.Back(); element != nil && s.size > s.budget && s.pages > 0; element = element.Prev() {
		s.dropPages(element.Value.(*clientEntry))
	}
	for s.size > s.budget && s.recent.Len() > 1 {
		n := s.recent.Back().Value.(*clientEntry)
		forgot = forgot || len(n.tools) > 0
		s.forget(n.client)
	}
	return forgot
}

// ReadTool reads the definition of a tool, with its digest.
func ReadTool(entry jsonrpc.Value) Tool {
	t := readTool(entry)
	t.Digest = digestOf(entry)
	t.defined = toolhistory.Definition{Shape: shapeOf(entry, t.Annotations.Title), Hints: t.Annotations.Hints()}
	return t
}

// readTool reads the definition of a tool without its digest. It copies and truncates texts. A
// tool with a title that is too long, or with a hint that is not a boolean, counts as dangerous.
func readTool(entry jsonrpc.Value) Tool {
	var t Tool
	if bytes.Contains(entry.Bytes, []byte("x-mcp-header")) {
		if t.incomplete = len(entry.Bytes) > maxMirrored; !t.incomplete {
			t.Mirrored = bytes.Clone(entry.Bytes)
		}
	}
	for name, value := range entry.Members() {
		switch name {
		case "name":
			t.Name, t.incomplete = textOf(value, maxToolName, t.incomplete)
		case "description":
			t.Description, _ = textOf(value, maxDescription, false)
		case "execution":
			t.TaskSupport = readTaskSupport(value.Member("taskSupport"))
		case "annotations":
			t.Annotations = readAnnotations(value)
		case "outputSchema":
			t.HasOutputSchema = true
		}
	}
	return t
}

// Complete reports whether t has all parts that must be known. An incomplete tool is never kept.
func (t *Tool) Complete() bool { return !t.incomplete }

// size returns the size of t in the cache.
func (t *Tool) size() int {
	return entrySize + len(t.Name) + len(t.Description) + len(t.defined.Shape) + len(t.Annotations.Title) + len(t.Mirrored)
}

// textOf returns a string of at most limit bytes, and whether it is longer or was incomplete
// before.
func textOf(v jsonrpc.Value, limit int, incomplete bool) (string, bool) {
	if len(v.Bytes) > maxText {
		return "", true
	}
	text, _ := v.Text()
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), limit)], "")), incomplete || len(text) > limit
}

// readTaskSupport returns the declared task support. Unknown values count as forbidden.
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
				return policy.Annotations{Title: a.Title}.WithHints(policy.WorstHints)
			}
		case "readOnlyHint":
			a.ReadOnly = hint(value, false)
		case "destructiveHint":
			a.Destructive = hint(value, true)
		case "idempotentHint":
			a.Idempotent = hint(value, false)
		case "openWorldHint":
			a.OpenWorld = hint(value, true)
		}
	}
	return a
}

// hint returns the value of a boolean hint. It returns nil for null, which some servers write for
// a missing hint. Any other value counts as the more dangerous one.
func hint(v jsonrpc.Value, warns bool) *bool {
	switch string(v.Bytes) {
	case "true", "false":
		warns = len(v.Bytes) == len("true")
	case "null":
		return nil
	}
	//mutate:swap "return &warns" "calm := !warns; return &calm" internal/app.TestLooserDefinitionIsHeld a hint that is text counts as a boolean
	return &warns
}
