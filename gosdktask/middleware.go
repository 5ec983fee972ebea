package gosdktask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	version2025 = "2025-11-25"
	version2026 = "2026-07-28"
)

// middleware handles the requests that concern tasks, before the server sees them.
func (t *Tasks) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	t.next = next
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if twice, ok := ctx.Value(addingKey{}).(*bool); ok {
			*twice = true
		}
		if err := t.checkWrapped(method, r); err != nil {
			return nil, err
		}
		switch method {
		case mcpname.ToolsCall:
			return t.call(ctx, r)
		case mcpname.TasksGet, mcpname.TasksResult, mcpname.TasksList, mcpname.TasksCancel, mcpname.TasksUpdate:
			return t.manage(ctx, method, r)
		case mcpname.SubscriptionsListen:
			return t.listen(ctx, r)
		case mcpname.Initialize, mcpname.ServerDiscover, mcpname.ToolsList:
			result, err := next(ctx, method, r)
			if err != nil {
				return nil, err
			}
			return t.declared(ctx, r, result)
		default:
			return next(ctx, method, r)
		}
	}
}

// dialect returns the dialect in which the client of r sees tasks.
func dialect(r mcp.Request) mcptask.Dialect {
	var d mcptask.Dialect
	if p := r.GetParams(); p != nil {
		if version, _ := p.GetMeta()[mcp.MetaKeyProtocolVersion].(string); version >= version2026 {
			d.Era = mcptask.V2026
		}
	}
	return d
}

// The owners of tasks whose client has no identity: the client at the other end of a pipe, and
// all clients over HTTP without a user. The prefix ownerUser keeps the names of users distinct
// from both.
const (
	ownerLocal   = "local"
	ownerUnknown = "anonymous"
	ownerUser    = "user "
)

// owner returns the owner of the request r, and whether the owner identifies one client. The
// error refuses a token that does not name its user.
func (t *Tasks) owner(ctx context.Context, r mcp.Request) (owner string, known bool, err error) {
	extra := r.GetExtra()
	switch {
	case t.opts.Owner != nil:
		if owner := t.opts.Owner(ctx, r); owner != "" {
			//mutate:swap "ownerUser + owner" "owner" TestOnlyOwnerSeesTask a user named by Options.Owner is treated as an unidentified client
			return ownerUser + owner, true, nil
		}
	//mutate:true TestOnlyOwnerSeesTask clients over HTTP are treated as the client of a pipe
	case extra == nil || extra.Header == nil:
		return ownerLocal, true, nil
	case extra.TokenInfo != nil:
		subject, _ := extra.TokenInfo.Extra["sub"].(string)
		user := cmp.Or(extra.TokenInfo.UserID, subject)
		//mutate:false TestTokenWithoutUserIsRefused all tokens without a user share their tasks
		if user == "" {
			return "", false, errNoUser
		}
		//mutate:swap "ownerUser + " "" TestOnlyOwnerSeesTask a user is treated as an unidentified client
		return ownerUser + user, true, nil
	}
	return ownerUnknown, false, nil
}

var errNoUser = &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "The access token does not name its user, so its tasks have no owner"}

// call makes a task for a call, or lets the server answer it.
func (t *Tasks) call(ctx context.Context, r mcp.Request) (mcp.Result, error) {
	params, ok := r.GetParams().(*mcp.CallToolParamsRaw)
	if !ok {
		return t.next(ctx, mcpname.ToolsCall, r)
	}
	d := dialect(r)
	wanted := draft{era: d.Era, wish: params.Meta[metaTask]}
	delete(params.Meta, metaTask)
	var err error
	if wanted.meta, err = objectOf(params.Meta); err != nil {
		return nil, toClient(d, err)
	}
	isTask, err := t.becomesTask(params, d, wanted)
	if err != nil {
		return nil, toClient(d, err)
	}
	if !isTask {
		return t.next(ctx, mcpname.ToolsCall, r)
	}
	made, err := t.launch(ctx, r, params, wanted)
	if err != nil {
		return nil, toClient(d, err)
	}
	text, err := d.CreateResult(made)
	if err != nil {
		return nil, toClient(d, err)
	}
	return &rawResult{text: text}, nil
}

// mode returns the mode of a tool. It is empty if calls never become tasks.
func (t *Tasks) mode(tool string) Mode {
	o, ok := t.opts.Tools[tool]
	if !ok {
		return ""
	}
	return cmp.Or(o.Mode, Optional)
}

// becomesTask reports whether a call becomes a task. The error explains why the call is
// refused.
func (t *Tasks) becomesTask(params *mcp.CallToolParamsRaw, d mcptask.Dialect, wanted draft) (bool, error) {
	mode, modern := t.mode(params.Name), d.Era == mcptask.V2026
	can := wanted.wish != nil
	if modern {
		can = schema.RequestDeclaresTasks(wanted.meta)
	}
	switch {
	case mode == "" && can && !modern:
		return false, mcptask.TaskForbidden()
	case mode == Required && !can:
		return false, d.TaskRequired()
	case mode == AskFirst && modern && len(params.InputResponses) == 0:
		return false, nil
	default:
		return mode != "" && can, nil
	}
}

// A draft is the client's request for a task.
type draft struct {
	meta schema.Object
	wish any // the member task of the params
	era  mcptask.Era
}

// ttl returns the TTL of the task.
func (t *Tasks) ttl(tool string, d draft) (ttl task.TTL, err error) {
	rules := task.TTLRules{Max: t.opts.MaxTTL}
	asked := cmp.Or(t.opts.Tools[tool].TTL, t.opts.TTL)
	wish, _ := d.wish.(map[string]any)
	if text, failed := json.Marshal(wish["ttl"]); failed == nil && d.era == mcptask.V2025 {
		wanted, failed := task.ParseTTL(text)
		if wanted > 0 {
			asked = wanted
		}
		err = failed
	}
	return task.TTL{Value: min(asked, rules.Longest())}, err
}

// launch makes a task for a call and runs it.
func (t *Tasks) launch(ctx context.Context, r mcp.Request, params *mcp.CallToolParamsRaw, d draft) (task.Task, error) {
	ttl, err := t.ttl(params.Name, d)
	if err != nil {
		return task.Task{}, err
	}
	message, err := json.Marshal(params)
	if err != nil {
		return task.Task{}, err
	}
	owner, _, err := t.owner(ctx, r)
	if err != nil {
		return task.Task{}, err
	}
	made, err := t.core.Launch(ctx, task.Draft{
		//mutate:swap "owner" "owner[:0] + ownerUnknown" TestOnlyOwnerSeesTask tasks are made without their owner
		Owner: owner, TTL: ttl.Value,
		Call: task.Call{Method: mcpname.ToolsCall, Name: params.Name, Arguments: string(params.Arguments), Message: string(message)},
		//mutate:swap "ClientSide" "ServerSide" TestClientAndToolExchangeVariables a client writes variables of the server
		Variables: []task.VariableChange{{Side: task.ClientSide, Values: mcptask.ClientVariables(d.meta)}},
	}, t.told(t.work(params, peerOf(r)), r, d.era))
	if errors.Is(err, task.ErrInvalid) {
		err = errors.Join(invalid("Invalid arguments"), err)
	}
	return made, err
}

// told returns work that also notifies the client of 2025-11-25 that made r. Clients of
// 2026-07-28 subscribe instead.
func (t *Tasks) told(work mcptask.Work, r mcp.Request, era mcptask.Era) mcptask.Work {
	session, lasting := sessionOf(r)
	if era == mcptask.V2026 || !lasting {
		return work
	}
	return func(ctx context.Context) ([]byte, error) {
		if run, ok := From(ctx); ok {
			t.tell(ctx, session, run.Owner(), run.ID())
		}
		return work(ctx)
	}
}

// manage answers a request about tasks.
func (t *Tasks) manage(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
	d := dialect(r)
	owner, known, err := t.owner(ctx, r)
	if err != nil {
		return nil, toClient(d, err)
	}
	//mutate:swap "owner" `ownerUser + "alice" + owner[:0]` TestOnlyOwnerSeesTask every client finds and ends the tasks of an owner
	request := mcptask.Request{Dialect: d, Owner: owner, Method: method}
	if p, ok := r.GetParams().(*rawParams); ok && p != nil {
		request.Params = []byte(p.text)
	}
	//mutate:false TestTaskOnRequest2025 unidentified clients list each other's tasks
	if method == mcpname.TasksList && !known {
		request.Method = "" // an unknown method, so that the request is refused
	}
	text, err := t.core.Handle(context.WithValue(ctx, peerKey{}, peerOf(r)), request)
	if err != nil {
		return nil, toClient(d, err)
	}
	return &rawResult{text: text}, nil
}

// declared adds the support of tasks to the server's capabilities and its tools.
func (t *Tasks) declared(ctx context.Context, r mcp.Request, result mcp.Result) (mcp.Result, error) {
	switch result := result.(type) {
	case *mcp.DiscoverResult:
		result.Capabilities.AddExtension(mcpname.ExtensionTasks, map[string]any{})
		return result, nil
	case *mcp.InitializeResult:
		if result.ProtocolVersion < version2025 {
			return result, nil
		}
		_, known, _ := t.owner(ctx, r) // a token without a user lists nothing
		//mutate:swap "known" "known || true" TestTaskOnRequest2025 the capabilities of unidentified clients include tasks/list
		tasks, err := jsonv2.Marshal(schema.ServerSupport{Call: true, Cancel: true, List: known}.Capability())
		if err != nil {
			return nil, err
		}
		return changed(result, func(o object) error {
			return o.edit("capabilities", func(c object) error { c["tasks"] = json.RawMessage(tasks); return nil })
		})
	case *mcp.ListToolsResult:
		if dialect(r).Era == mcptask.V2026 || !slices.ContainsFunc(result.Tools, func(tool *mcp.Tool) bool { return t.mode(tool.Name) != "" }) {
			return result, nil
		}
		return changed(result, func(o object) error { return t.supporting(o, result.Tools) })
	default:
		return result, nil
	}
}

// supporting adds its support of tasks to each tool in a list.
func (t *Tasks) supporting(list object, tools []*mcp.Tool) error {
	written := make([]json.RawMessage, len(tools))
	for i, tool := range tools {
		text, err := json.Marshal(tool)
		if err != nil {
			return err
		}
		written[i] = text
		support := schema.SupportOptional
		switch t.mode(tool.Name) {
		case "":
			continue
		case Required:
			support = schema.SupportRequired
		case Optional, AskFirst:
		}
		if written[i], err = edited(text, func(o object) error {
			return o.set("execution", map[string]any{"taskSupport": support})
		}); err != nil {
			return err
		}
	}
	return list.set("tools", written)
}

// changed applies change to the JSON of result.
func changed(result mcp.Result, change func(object) error) (mcp.Result, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	text, err = edited(text, change)
	return &rawResult{text: text}, err
}
