package gosdktask

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	methodCall       = "tools/call"
	methodList       = "tools/list"
	methodInitialize = "initialize"
	methodDiscover   = "server/discover"

	version2025 = "2025-11-25"
	version2026 = "2026-07-28"
)

// middleware puts tasks between the clients and the server.
func (t *Tasks) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	t.next = next
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch method {
		case methodCall:
			return t.call(ctx, r)
		case mcptask.MethodGet, mcptask.MethodResult, mcptask.MethodList, mcptask.MethodCancel, mcptask.MethodUpdate:
			return t.manage(ctx, method, r)
		case methodListen:
			return t.listen(ctx, r)
		case methodInitialize, methodDiscover, methodList:
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

// unmarshal reads JSON into a type of package mcptask.
func unmarshal(text []byte, v any) error { return jsonv2.Unmarshal(text, v) }

// dialect returns how tasks are shown to the client of r.
func dialect(r mcp.Request) mcptask.Dialect {
	var d mcptask.Dialect
	if p := r.GetParams(); p != nil {
		if version, _ := p.GetMeta()[mcp.MetaKeyProtocolVersion].(string); version >= version2026 {
			d.Era = mcptask.V2026
		}
	}
	return d
}

// The owners of tasks whose client nobody has identified, the one at the other end
// of a pipe and whoever comes over HTTP; and the beginning of all other owners, so that
// no user is taken for one of those.
const (
	ownerLocal   = "local"
	ownerUnknown = "anonymous"
	ownerUser    = "user "
)

// owner returns who makes r, and whether that tells clients apart.
func (t *Tasks) owner(ctx context.Context, r mcp.Request) (owner string, known bool) {
	extra := r.GetExtra()
	switch {
	case t.opts.Owner != nil:
		if owner := t.opts.Owner(ctx, r); owner != "" {
			return ownerUser + owner, true
		}
	case extra == nil || extra.Header == nil:
		return ownerLocal, true
	case extra.TokenInfo != nil && extra.TokenInfo.UserID != "":
		return ownerUser + extra.TokenInfo.UserID, true
	}
	return ownerUnknown, false
}

// call makes a task of a call, or lets the server answer it.
func (t *Tasks) call(ctx context.Context, r mcp.Request) (mcp.Result, error) {
	params, ok := r.GetParams().(*mcp.CallToolParamsRaw)
	if !ok {
		return t.next(ctx, methodCall, r)
	}
	d := dialect(r)
	wanted := draft{era: d.Era, wish: params.Meta[metaTask]}
	delete(params.Meta, metaTask)
	var err error
	if wanted.meta, err = metaOf(params.Meta); err != nil {
		return nil, toClient(d, err)
	}
	isTask, err := t.becomesTask(params, d, wanted)
	if err != nil {
		return nil, toClient(d, err)
	}
	if !isTask {
		return t.next(ctx, methodCall, r)
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

// becomesTask reports whether a call becomes a task, or why it must not be made.
func (t *Tasks) becomesTask(params *mcp.CallToolParamsRaw, d mcptask.Dialect, wanted draft) (bool, error) {
	mode, modern := t.opts.Tools[params.Name], d.Era == mcptask.V2026
	can := wanted.wish != nil
	if modern {
		can = mcptask.RequestDeclaresTasks(wanted.meta)
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

// A draft is what a client says of a task that it wants.
type draft struct {
	meta mcptask.Object
	wish any // the member task of the params
	era  mcptask.Era
}

// ttl returns how long the task is to live.
func (t *Tasks) ttl(d draft) (ttl task.TTL, err error) {
	rules := task.TTLRules{Max: t.opts.MaxTTL}
	asked := t.opts.TTL
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

// launch makes a task of a call and runs it.
func (t *Tasks) launch(ctx context.Context, r mcp.Request, params *mcp.CallToolParamsRaw, d draft) (task.Task, error) {
	ttl, err := t.ttl(d)
	if err != nil {
		return task.Task{}, err
	}
	message, err := json.Marshal(params)
	if err != nil {
		return task.Task{}, err
	}
	owner, _ := t.owner(ctx, r)
	made, err := t.core.Launch(ctx, task.Draft{
		Owner: owner, TTL: ttl.Value,
		Call:      task.Call{Method: methodCall, Name: params.Name, Arguments: string(params.Arguments), Message: string(message)},
		Variables: []task.SetVariables{{Side: task.ClientSide, Values: mcptask.ClientVariables(d.meta)}},
	}, t.told(t.work(params, peerOf(r)), r, d.era))
	if errors.Is(err, task.ErrInvalid) {
		err = errors.Join(invalid("Invalid arguments"), err)
	}
	return made, err
}

// told returns work that tells the client of 2025-11-25 which has made r how it goes
// on. Clients of 2026-07-28 subscribe.
func (t *Tasks) told(work mcptask.Work, r mcp.Request, era mcptask.Era) mcptask.Work {
	session, lasting := sessionOf(r)
	if era == mcptask.V2026 || !lasting {
		return work
	}
	return func(ctx context.Context) ([]byte, error) {
		if call, ok := From(ctx); ok {
			t.tell(ctx, session, call.Owner(), call.ID())
		}
		return work(ctx)
	}
}

// manage answers a request about tasks.
func (t *Tasks) manage(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
	d := dialect(r)
	owner, known := t.owner(ctx, r)
	request := mcptask.Request{Dialect: d, Owner: owner, Method: method}
	if p, ok := r.GetParams().(*rawParams); ok && p != nil {
		request.Params = []byte(p.text)
	}
	if method == mcptask.MethodList && !known {
		request.Method = "" // which nobody knows
	}
	text, err := t.core.Handle(context.WithValue(ctx, sessionKey{}, r.GetSession()), request)
	if err != nil {
		return nil, toClient(d, err)
	}
	return &rawResult{text: text}, nil
}

// declared adds to what the server says of itself and its tools that it has tasks.
func (t *Tasks) declared(ctx context.Context, r mcp.Request, result mcp.Result) (mcp.Result, error) {
	switch result := result.(type) {
	case *mcp.DiscoverResult:
		result.Capabilities.AddExtension(mcptask.Extension, map[string]any{})
		return result, nil
	case *mcp.InitializeResult:
		if result.ProtocolVersion < version2025 {
			return result, nil
		}
		_, known := t.owner(ctx, r)
		tasks, err := jsonv2.Marshal(mcptask.ServerSupport{Call: true, Cancel: true, List: known}.Capability())
		if err != nil {
			return nil, err
		}
		return changed(result, func(o object) error {
			return o.edit("capabilities", func(c object) error { c["tasks"] = json.RawMessage(tasks); return nil })
		})
	case *mcp.ListToolsResult:
		if dialect(r).Era == mcptask.V2026 || !slices.ContainsFunc(result.Tools, func(tool *mcp.Tool) bool { return t.opts.Tools[tool.Name] != "" }) {
			return result, nil
		}
		return changed(result, func(o object) error { return t.supporting(o, result.Tools) })
	default:
		return result, nil
	}
}

// supporting adds to each tool in a list whether it supports tasks.
func (t *Tasks) supporting(list object, tools []*mcp.Tool) error {
	written := make([]json.RawMessage, len(tools))
	for i, tool := range tools {
		text, err := json.Marshal(tool)
		if err != nil {
			return err
		}
		written[i] = text
		support := mcptask.SupportOptional
		switch t.opts.Tools[tool.Name] {
		case "":
			continue
		case Required:
			support = mcptask.SupportRequired
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

// changed returns result after change.
func changed(result mcp.Result, change func(object) error) (mcp.Result, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	text, err = edited(text, change)
	return &rawResult{text: text}, err
}
