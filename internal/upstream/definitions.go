package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// learnTimeout limits a request for the upstream's capabilities, or for its tools before a call is
// held. A server that must be started first has more time.
const learnTimeout = 5 * time.Second

func (u *Upstream) learnTimeout() time.Duration { return learnTimeout + u.cfg.StartTimeout }

// takesTask reports whether a call is made as an upstream task. If the tool or the upstream's
// capabilities are unknown, it asks the upstream. It returns an error if it cannot find out whether
// the tool requires a task; then the call must not be made.
func (c *Caller) takesTask(ctx context.Context, out approval.UpstreamRequest) (bool, error) {
	m := &out.Messages[0]
	if m.Method != mcpname.ToolsCall {
		return false, nil
	}
	facts := c.catalog.Handshake(c.client)
	if mcp.EraOf(m) == mcp.Modern {
		return facts.Tasks || !facts.Known && c.mayDoTasks(ctx, m), nil
	}
	if facts.Known && !facts.Tasks {
		return false, nil
	}
	support, err := c.taskSupport(ctx, m, facts)
	return support == policy.TaskRequired || support == policy.TaskOptional && out.WantsTask, err
}

// taskSupport returns the task support that the upstream declares for the tool of a legacy call.
func (c *Caller) taskSupport(ctx context.Context, m *jsonrpc.Message, facts catalog.Handshake) (policy.TaskSupport, error) {
	name, _ := m.Params.Name.Text()
	tool, listed := c.catalog.Tool(c.client, name)
	if listed {
		return policy.TaskSupport(tool.TaskSupport), nil
	}
	tool, err := c.findTool(ctx, m, c.upstream.cfg.ToolsTimeout)
	switch {
	case errors.Is(err, errNoToolsList) && !facts.Tasks:
		return policy.TaskForbidden, nil // without a tool list, no tool requires a task
	case err != nil:
		return "", unlisted(err)
	default:
		return policy.TaskSupport(tool.TaskSupport), nil
	}
}

// unlisted reports a call that was not made because listing the tools failed with err.
func unlisted(err error) error {
	failure := &approval.SendError{
		Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanNo, Err: fmt.Errorf("the upstream's tools could not be listed: %w", err),
	}
	if known, ok := errors.AsType[*approval.SendError](err); ok && known.Stage != lifecycle.StageExecutorLost {
		failure.Stage = known.Stage
	}
	if errors.Is(err, context.DeadlineExceeded) {
		failure.Stage = lifecycle.StageUpstreamTimeout
	}
	return failure
}

// mayDoTasks asks a modern upstream whether it supports tasks. It returns true if the upstream does
// not answer: an upstream without tasks ignores that the gate understands them.
func (c *Caller) mayDoTasks(ctx context.Context, call *jsonrpc.Message) bool {
	ctx, stop := context.WithTimeout(ctx, c.upstream.learnTimeout())
	defer stop()
	a, err := c.exchange(ctx, request(call, mcpname.ServerDiscover), nil)
	if err != nil {
		return true
	}
	failed := a.Error
	said, err := a.readAll()
	if err != nil {
		return true
	}
	if code, _ := said.Member("code").Int(); failed && code != jsonrpc.CodeMethodNotFound {
		return true
	}
	tasks := !failed && schema.DetectServer(said.Member("capabilities").Bytes).Extension
	c.catalog.LearnTaskSupport(c.client, tasks)
	return tasks
}

// Definitions implements [approval.Definer].
func (c *Caller) Definitions(ctx context.Context, m approval.UpstreamRequest) []string {
	var digests []string
	lookup := NewLookup(c)
	for _, tool := range lookup.FindAll(ctx, m.Messages) {
		digests = append(digests, tool.DigestText())
	}
	return digests
}

// A Lookup finds tool definitions, and asks the upstream for unknown ones. After the first failure
// it does not ask again: each call of a batch would wait as long.
type Lookup struct {
	caller *Caller
	failed bool // the upstream was asked for a tool and sent no definition
}

// NewLookup returns a lookup that asks with the credentials of c.
func NewLookup(c *Caller) *Lookup { return &Lookup{caller: c} }

// Find returns the tool that m calls, or the zero Tool if its definition is not known in time.
func (l *Lookup) Find(ctx context.Context, m *jsonrpc.Message) catalog.Tool {
	name, _ := m.Params.Name.Text()
	tool, listed := l.caller.catalog.Tool(l.caller.client, name)
	if listed || l.failed {
		return l.caller.catalog.Trusted(l.caller.client, tool)
	}
	tool = l.caller.define(ctx, m)
	l.failed = tool.DigestText() == ""
	return tool
}

// FindAll returns the tools that messages call, at the indexes of the messages.
func (l *Lookup) FindAll(ctx context.Context, messages []jsonrpc.Message) []catalog.Tool {
	tools := make([]catalog.Tool, len(messages))
	for i := range messages {
		if messages[i].Method == mcpname.ToolsCall {
			tools[i] = l.Find(ctx, &messages[i])
		}
	}
	return tools
}

// define returns the definition of the tool that m calls, or the zero Tool if
// the upstream does not list it in time.
func (c *Caller) define(ctx context.Context, m *jsonrpc.Message) catalog.Tool {
	tool, err := c.findTool(ctx, m, min(c.upstream.learnTimeout(), c.upstream.cfg.ToolsTimeout))
	if err != nil {
		c.upstream.cfg.Log.DebugContext(ctx, "tools not listed", "upstream", c.upstream.cfg.Name, "cause", err)
	}
	return tool
}

// Definition returns the whole definition of the tool that m calls, or the zero Tool if the
// upstream does not list it. The error says why the definition cannot be known.
func (c *Caller) Definition(ctx context.Context, m *jsonrpc.Message) (catalog.Tool, error) {
	tool, err := c.findTool(ctx, m, min(c.upstream.learnTimeout(), c.upstream.cfg.ToolsTimeout))
	switch {
	case errors.Is(err, errNoToolsList):
		return catalog.Tool{}, nil
	case err == nil && !tool.Complete():
		return catalog.Tool{}, errors.New("the definition is too large")
	default:
		return tool, err
	}
}

// errNoToolsList reports an upstream without the method tools/list.
var errNoToolsList = errors.New("the upstream does not list its tools")

// findTool reads the upstream's tool list in the era of call and notes all tools in the catalog. It
// returns the tool that is called, or the zero Tool if the list does not have it.
func (c *Caller) findTool(ctx context.Context, call *jsonrpc.Message, timeout time.Duration) (catalog.Tool, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	name, _ := call.Params.Name.Text()
	cursor := ""
	for range c.upstream.cfg.ToolsPages {
		tools, next, err := c.learnTools(ctx, call, cursor)
		if err != nil {
			return catalog.Tool{}, cmp.Or(ctx.Err(), err)
		}
		if tool, listed := toolIn(tools, name); listed || next == "" {
			return c.catalog.Trusted(c.client, tool), nil
		}
		cursor = next
	}
	return catalog.Tool{}, errors.New("the list has too many pages")
}

// toolIn returns the tool with the given name in a list.
func toolIn(tools jsonrpc.Value, name string) (catalog.Tool, bool) {
	for entry := range tools.Elements() {
		if other, _ := entry.Member("name").Text(); other == name {
			return catalog.ReadTool(entry), true
		}
	}
	return catalog.Tool{}, false
}

// learnTools reads one page of the tool list in the era of call and notes it in the catalog. It
// returns the page and the cursor of the next one.
func (c *Caller) learnTools(ctx context.Context, call *jsonrpc.Message, cursor string) (tools jsonrpc.Value, next string, err error) {
	defer recovered(&err)
	at := jsonrpc.Member{Name: "cursor"}
	if cursor != "" {
		at.JSON = jsonrpc.AppendString(nil, cursor)
	}
	m := request(call, mcpname.ToolsList, at)
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	if a.Error {
		return jsonrpc.Value{}, "", listError(&a)
	}
	result, err := a.readList(ctx, c.upstream.cfg.AnswerLimit)
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	if tools = result.Member("tools"); !tools.IsArray() {
		return jsonrpc.Value{}, "", invalidAnswer(errors.New("the upstream's list of tools is not a list"))
	}
	c.catalog.LearnPage(ctx, c.client, catalog.Page{Method: m.Method, Cursor: cursor, Result: result.Bytes}, tools)
	next, _ = result.Member("nextCursor").Text()
	return tools, next, nil
}

// listError returns the meaning of an error in answer to a request for a list.
func listError(a *answer) error {
	failure, err := a.readAll()
	if err != nil {
		return err
	}
	code, _ := failure.Member("code").Int()
	if code == jsonrpc.CodeMethodNotFound {
		return errNoToolsList
	}
	return invalidAnswer(fmt.Errorf("the upstream answered with error %d", code))
}
