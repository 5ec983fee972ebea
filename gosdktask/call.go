package gosdktask

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Call gives a tool access to its task. See [mcptask.Call] for Status, Set, Get,
// Wait, Extend and ID.
type Call struct{ *mcptask.Call }

// From returns the task for which a tool runs. It reports false if the call did not become a
// task.
func From(ctx context.Context) (Call, bool) {
	c, ok := mcptask.CallFrom(ctx)
	return Call{c}, ok
}

// Ask sends questions to the client and waits until it has answered all of them. It returns the
// answers by the keys of the questions. The task is input_required meanwhile. A client of
// 2026-07-28 answers with tasks/update. A client of 2025-11-25 is asked while it waits in
// tasks/result, which needs a session or a pipe. The error is [mcptask.ErrNotAsked] if the
// client cannot be asked.
func (c Call) Ask(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	text, err := json.Marshal(questions)
	if err != nil {
		return nil, err
	}
	var asked schema.Object
	if err := unmarshal(text, &asked); err != nil {
		return nil, err
	}
	given, err := c.Call.Ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	answers := make(object, len(given))
	for _, m := range given {
		answers[m.Name] = m.Value
	}
	if text, err = json.Marshal(answers); err != nil {
		return nil, err
	}
	var responses mcp.InputResponseMap
	return responses, json.Unmarshal(text, &responses)
}

// maxRounds is the number of times that a tool may return InputRequests for one call.
const maxRounds = 100

// work returns the work of a call's task: it calls the tool in a new session. When the tool
// returns InputRequests, the task sends them to the client.
func (t *Tasks) work(params *mcp.CallToolParamsRaw, p peer) mcptask.Work {
	return func(ctx context.Context) ([]byte, error) {
		session, err := t.connect(ctx, p)
		if err != nil {
			return nil, err
		}
		defer func() { _ = session.Close() }() // the session has no unsent data
		round := *params
		for range maxRounds {
			r := &mcp.CallToolRequest{Session: session, Params: &round, Extra: p.extra}
			answer, err := t.next(ctx, mcpname.ToolsCall, r)
			if err != nil {
				return nil, fromTool(err)
			}
			result, ok := answer.(*mcp.CallToolResult)
			if !ok || result.InputRequests == nil {
				return json.Marshal(answer)
			}
			c, _ := From(ctx)
			if round.InputResponses, err = c.Ask(ctx, result.InputRequests); err != nil {
				return nil, err
			}
			round.RequestState = result.RequestState
		}
		return nil, fmt.Errorf("tool %s has asked more than %d times", params.Name, maxRounds)
	}
}

// rerun returns the work of a task whose process has died, if Options.Rerun names its tool.
func (t *Tasks) rerun(old task.Task) mcptask.Work {
	for _, name := range t.opts.Rerun {
		if name != old.Call.Name {
			continue
		}
		var params mcp.CallToolParamsRaw
		if err := json.Unmarshal([]byte(old.Call.Message), &params); err != nil {
			return func(context.Context) ([]byte, error) { return nil, err }
		}
		return t.work(&params, peer{})
	}
	return nil
}

type sessionKey struct{}

// ask sends a question to a client of 2025-11-25 that waits in tasks/result.
func (t *Tasks) ask(ctx context.Context, about task.Task, request []byte) ([]byte, error) {
	session, ok := ctx.Value(sessionKey{}).(*mcp.ServerSession)
	if !ok {
		return nil, mcptask.ErrNotAsked
	}
	// The SDK reads requests to clients as a map.
	var asked mcp.InputRequestMap
	if err := json.Unmarshal(fmt.Appendf(nil, `{"":%s}`, request), &asked); err != nil {
		return nil, err
	}
	answer, err := put(ctx, session, asked[""], map[string]any{"taskId": string(about.ID)})
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// put sends a request to a client. The _meta of the request names the task to which it belongs.
//
//nolint:staticcheck // 2025-11-25 has sampling and roots, which later versions deprecate
func put(ctx context.Context, session *mcp.ServerSession, request mcp.InputRequest, related any) (mcp.InputResponse, error) {
	switch params := request.(type) {
	case *mcp.ElicitParams:
		params.Meta = with(params.Meta, mcpname.MetaRelatedTask, related)
		return session.Elicit(ctx, params)
	case *mcp.CreateMessageParams:
		params.Meta = with(params.Meta, mcpname.MetaRelatedTask, related)
		return session.CreateMessage(ctx, params)
	case *mcp.CreateMessageWithToolsParams:
		params.Meta = with(params.Meta, mcpname.MetaRelatedTask, related)
		return session.CreateMessageWithTools(ctx, params)
	case *mcp.ListRootsParams:
		return session.ListRoots(ctx, params)
	default:
		return nil, mcptask.ErrNotAsked
	}
}

func with(meta mcp.Meta, name string, value any) mcp.Meta {
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta[name] = value
	return meta
}
