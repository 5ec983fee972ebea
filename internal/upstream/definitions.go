package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// learnTimeout is how long an upstream may take to say what it can do.
const learnTimeout = 5 * time.Second

// takesTask reports whether a call is made as a task of the upstream's. If
// nobody has asked the upstream yet what it says of the tool, or of itself, the
// gate asks. The error says that it cannot be known whether the tool requires a
// task; then the call must not be made.
func (c *Caller) takesTask(ctx context.Context, t task.Task, m *jsonrpc.Message) (bool, error) {
	if m.Method != "tools/call" {
		return false, nil
	}
	facts := c.gate.About(c.from)
	if wire.EraOf(m) == wire.Modern {
		return facts.Tasks || !facts.Known && c.mayDoTasks(ctx, m), nil
	}
	if facts.Known && !facts.Tasks {
		return false, nil
	}
	support, err := c.taskSupport(ctx, m, facts)
	return support == policy.TaskRequired || support == policy.TaskOptional && asksForTask(t), err
}

// taskSupport returns what the upstream, of which facts are known, declares of
// the tool that a legacy request calls.
func (c *Caller) taskSupport(ctx context.Context, m *jsonrpc.Message, facts gate.Facts) (policy.TaskSupport, error) {
	name, _ := m.Params.Name.Text()
	tool, listed := c.gate.Tool(c.from, name)
	if listed {
		return policy.TaskSupport(tool.TaskSupport), nil
	}
	tool, err := c.findTool(ctx, m, c.upstream.cfg.ToolsTimeout)
	switch {
	case errors.Is(err, errNoToolsList) && !facts.Tasks:
		return policy.TaskForbidden, nil // it declares nothing, so it requires nothing
	case err != nil:
		return "", unlisted(err)
	default:
		return policy.TaskSupport(tool.TaskSupport), nil
	}
}

// unlisted says that a call was not made because the upstream's tools could not
// be listed, because of err.
func unlisted(err error) error {
	failure := &approval.SendError{
		Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: fmt.Errorf("the upstream's tools could not be listed: %w", err),
	}
	if known, ok := errors.AsType[*approval.SendError](err); ok && known.Stage != task.StageExecutorLost {
		failure.Stage = known.Stage
	}
	if errors.Is(err, context.DeadlineExceeded) {
		failure.Stage = task.StageUpstreamTimeout
	}
	return failure
}

// mayDoTasks asks a modern upstream whether it does tasks, and reports false if
// it says that it does not. An upstream that fails to answer may do tasks: it is
// sent that the gate understands them, which an upstream without tasks ignores.
func (c *Caller) mayDoTasks(ctx context.Context, call *jsonrpc.Message) bool {
	ctx, stop := context.WithTimeout(ctx, learnTimeout)
	defer stop()
	m, err := request("server/discover", metaMember(call))
	if err != nil {
		return true
	}
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return true
	}
	failed := a.Error
	said, err := a.whole()
	if err != nil {
		return true
	}
	if code, _ := said.Member("code").Int(); failed && code != jsonrpc.CodeMethodNotFound {
		return true
	}
	tasks := !failed && mcptask.DetectServer(said.Member("capabilities").Bytes).Extension
	c.gate.NoteTasks(c.from, tasks)
	return tasks
}

// Definitions implements [approval.Definer].
func (c *Caller) Definitions(ctx context.Context, t task.Task) []string {
	_, packet, err := outgoingPacket(t)
	if err != nil {
		return nil
	}
	var digests []string
	lookup := NewLookup(c)
	for _, tool := range lookup.FindAll(ctx, packet.Messages) {
		digests = append(digests, tool.DigestText())
	}
	return digests
}

// A Lookup asks an upstream for tools that it has not described yet. Once it
// does not describe one it is not asked again: each call of a batch would wait
// as long, in vain.
type Lookup struct {
	caller *Caller
	untold bool // the upstream was asked for a tool and did not describe it
}

// NewLookup returns a lookup in the name in which c reaches its upstream.
func NewLookup(c *Caller) *Lookup { return &Lookup{caller: c} }

// Find returns what the upstream says of the tool that m calls, or the zero Tool
// if it does not say that soon.
func (l *Lookup) Find(ctx context.Context, m *jsonrpc.Message) gate.Tool {
	name, _ := m.Params.Name.Text()
	tool, listed := l.caller.gate.Tool(l.caller.from, name)
	if listed || l.untold {
		return tool
	}
	tool = l.caller.define(ctx, m)
	l.untold = tool.DigestText() == ""
	return tool
}

// FindAll returns what the upstream says of the tools that messages call, in the
// places of the messages.
func (l *Lookup) FindAll(ctx context.Context, messages []jsonrpc.Message) []gate.Tool {
	tools := make([]gate.Tool, len(messages))
	for i := range messages {
		if messages[i].Method == "tools/call" {
			tools[i] = l.Find(ctx, &messages[i])
		}
	}
	return tools
}

// define returns what the upstream says of the tool that m calls, or nothing if
// it does not say that soon.
func (c *Caller) define(ctx context.Context, m *jsonrpc.Message) gate.Tool {
	tool, err := c.findTool(ctx, m, min(learnTimeout, c.upstream.cfg.ToolsTimeout))
	if err != nil {
		c.upstream.cfg.Log.DebugContext(ctx, "tools not listed", "upstream", c.upstream.cfg.Name, "cause", err)
	}
	return tool
}

// Described returns the whole definition of the tool that m calls, or the zero
// Tool if the upstream has none of it. The error says that this cannot be known.
func (c *Caller) Described(ctx context.Context, m *jsonrpc.Message) (gate.Tool, error) {
	tool, err := c.findTool(ctx, m, min(learnTimeout, c.upstream.cfg.ToolsTimeout))
	switch {
	case errors.Is(err, errNoToolsList):
		return gate.Tool{}, nil
	case err == nil && !tool.Whole():
		return gate.Tool{}, errors.New("the definition is too large")
	default:
		return tool, err
	}
}

// errNoToolsList says that an upstream does not know the method that lists its
// tools.
var errNoToolsList = errors.New("the upstream does not list its tools")

// findTool asks the upstream for its tools in the era of call, notes them all,
// and returns the one that is called, or the zero Tool if a list that was read
// to its end does not have it. The error says why the list could not be read.
func (c *Caller) findTool(ctx context.Context, call *jsonrpc.Message, patience time.Duration) (gate.Tool, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	name, _ := call.Params.Name.Text()
	cursor := ""
	for range c.upstream.cfg.ToolsPages {
		tools, next, err := c.learnTools(ctx, call, cursor)
		if err != nil {
			return gate.Tool{}, cmp.Or(ctx.Err(), err)
		}
		if tool, listed := toolIn(tools, name); listed || next == "" {
			return tool, nil
		}
		cursor = next
	}
	return gate.Tool{}, errors.New("the list has too many pages")
}

// toolIn returns the tool with the given name in a list.
func toolIn(tools jsonrpc.Value, name string) (gate.Tool, bool) {
	for entry := range tools.Elements() {
		if other, _ := entry.Member("name").Text(); other == name {
			return gate.ReadTool(entry), true
		}
	}
	return gate.Tool{}, false
}

// learnTools notes one page of the upstream's tools, asked for in the era of
// call, and returns it with the cursor of the next.
func (c *Caller) learnTools(ctx context.Context, call *jsonrpc.Message, cursor string) (tools jsonrpc.Value, next string, err error) {
	defer recovered(&err)
	at := ""
	if cursor != "" {
		at = `"cursor":` + string(jsonrpc.AppendString(nil, cursor))
	}
	m, err := request("tools/list", at, metaMember(call))
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	a, err := c.exchange(ctx, m, nil)
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	if a.Error {
		return jsonrpc.Value{}, "", listError(&a)
	}
	result, err := a.list(ctx, c.upstream.cfg.Room)
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	if tools = result.Member("tools"); !tools.IsArray() {
		return jsonrpc.Value{}, "", invalidAnswer(errors.New("the upstream's list of tools is not a list"))
	}
	c.gate.Learn(ctx, c.from, gate.Page{Method: m.Method, Cursor: cursor, Result: result.Bytes}, tools)
	next, _ = result.Member("nextCursor").Text()
	return tools, next, nil
}

// listError returns what an upstream's error in place of a list means.
func listError(a *answer) error {
	failure, err := a.whole()
	if err != nil {
		return err
	}
	code, _ := failure.Member("code").Int()
	if code == jsonrpc.CodeMethodNotFound {
		return errNoToolsList
	}
	return invalidAnswer(fmt.Errorf("the upstream answered with error %d", code))
}
