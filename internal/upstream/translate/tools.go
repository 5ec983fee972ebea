package translate

import (
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// tools remembers the definitions of tools whose arguments a modern server wants repeated in headers.
// Legacy clients do not repeat them.
type tools struct {
	mu      sync.Mutex
	byOwner map[string]map[string]jsonrpc.Value
}

const (
	maxToolOwners = 1000
	maxOwnerTools = 1000
	maxToolPages  = 100
)

// find returns the definition of the tool that m calls, if its arguments must be repeated.
func (t *tools) find(owner string, m *jsonrpc.Message) jsonrpc.Value {
	name, ok := m.Params.Name.Text()
	if !ok || m.Method != mcpname.ToolsCall {
		return jsonrpc.Value{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byOwner[owner][name]
}

// learn remembers the tools in a result of tools/list for a client.
func (t *tools) learn(x *exchange, result jsonrpc.Value) {
	for tool := range result.Member("tools").Elements() {
		mirrors, err := mcp.Mirrors(tool)
		name, ok := tool.Member("name").Text()
		if err != nil || !ok {
			continue
		}
		if len(mirrors) == 0 {
			tool = jsonrpc.Value{}
		}
		t.set(x.by.Owner, name, tool)
	}
}

// set remembers the definition of a tool, or forgets it if tool is absent.
func (t *tools) set(owner, name string, tool jsonrpc.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !tool.Present() {
		delete(t.byOwner[owner], name)
		return
	}
	if t.byOwner == nil || len(t.byOwner) >= maxToolOwners && t.byOwner[owner] == nil {
		t.byOwner = make(map[string]map[string]jsonrpc.Value)
	}
	if len(t.byOwner[owner]) >= maxOwnerTools && !t.byOwner[owner][name].Present() {
		delete(t.byOwner, owner) // a call lists the tools again
	}
	if t.byOwner[owner] == nil {
		t.byOwner[owner] = make(map[string]jsonrpc.Value)
	}
	t.byOwner[owner][name] = tool.Clone()
}

const codeHeaderMismatch = -32020

// sendAgain sends a call again, if the server refused it because its arguments are not repeated in
// headers, or because the tool needs a client that supports tasks. Such a call did not run.
func (c *modernCall) sendAgain() error {
	m, err := c.source.next()
	if err != nil {
		return brokenAnswer(err)
	}
	if !c.declares && demandsTasks(m) {
		c.declares = true
		_ = c.source.body.Close()
		if err := c.send(); err != nil || c.status.code != http.StatusBadRequest {
			return err
		}
		return c.sendAgain()
	}
	if code, _ := m.Error.Member("code").Int(); code == codeHeaderMismatch {
		if err := c.learnTools(); err == nil && c.x.t.tools.find(c.x.by.Owner, c.x.m).Present() {
			_ = c.source.body.Close()
			return c.send()
		}
	}
	c.source.again = m
	return nil
}

// learnTools lists the tools of the server.
func (c *modernCall) learnTools() error {
	var cursor []byte
	for range maxToolPages {
		result, err := c.listTools(cursor)
		if err != nil {
			return err
		}
		c.x.t.tools.learn(c.x, result)
		next := result.Member("nextCursor")
		if !next.IsString() {
			break
		}
		cursor = next.Bytes
	}
	return nil
}

// listTools returns one page of the server's tools.
func (c *modernCall) listTools(cursor []byte) (jsonrpc.Value, error) {
	ctx, stop := own(c.ctx, sessionTimeout)
	defer stop()
	members := []jsonrpc.Member{{Name: "_meta", JSON: jsonrpc.AppendObject(nil, modernMeta(c.s.capabilities, c.s.info, "")...)}}
	if cursor != nil {
		members = append(members, jsonrpc.Member{Name: "cursor", JSON: cursor})
	}
	m := jsonrpc.NewRequest(newID(), mcpname.ToolsList, jsonrpc.NewParams(members...))
	resp, err := c.x.t.post(ctx, c.x.plain(), c.x.modernHeader(&m), m.Raw)
	if err != nil {
		return jsonrpc.Value{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := newSource(resp, c.x.t.cfg.MaxMessage).response(m.ID)
	if err != nil {
		return jsonrpc.Value{}, err
	}
	return got.Result, nil
}
