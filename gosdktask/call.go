package gosdktask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// From returns the run of the task for which a tool was called. It reports false if the call did
// not become a task.
func From(ctx context.Context) (*mcptask.Run, bool) { return mcptask.From(ctx) }

// Ask is [mcptask.Run.Ask] with the questions of the SDK: it sends them to the client and waits
// until the client has answered all of them. It returns the answers by the keys of the
// questions. The task is input_required meanwhile. A client of 2026-07-28 answers with
// tasks/update. A client of 2025-11-25 is asked while it waits in tasks/result, which needs a
// session or a pipe. The error is [mcptask.ErrNotAsked] if the client cannot be asked, or if the
// call did not become a task.
func Ask(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	run, ok := From(ctx)
	if !ok {
		return nil, mcptask.ErrNotAsked
	}
	asked, err := objectOf(questions)
	if err != nil {
		return nil, err
	}
	given, err := run.Ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	return responses(given)
}

// responses returns answers as the SDK reads them.
func responses(given schema.Object) (mcp.InputResponseMap, error) {
	answers := make(object, len(given))
	for _, m := range given {
		answers[m.Name] = m.Value
	}
	text, err := json.Marshal(answers)
	if err != nil {
		return nil, err
	}
	var read mcp.InputResponseMap
	return read, json.Unmarshal(text, &read)
}

// maxRounds is how often a tool may ask for another call without a question.
const maxRounds = 100

// work returns the work of a call's task: it calls the tool in a new session. When the tool
// returns InputRequests, the task sends them to the client, and continues with the answers.
func (t *Tasks) work(params *mcp.CallToolParamsRaw, p peer) mcptask.Work {
	return func(ctx context.Context) ([]byte, error) {
		session, err := t.connect(ctx, p)
		if err != nil {
			return nil, err
		}
		defer func() { _ = session.Close() }() // the session has no unsent data
		round, err := afterAnswers(ctx, *params)
		if err != nil {
			return nil, err
		}
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
			if len(result.InputRequests) > 0 {
				return nil, suspended(result)
			}
			round.InputResponses, round.RequestState = nil, result.RequestState
		}
		return nil, fmt.Errorf("tool %s has asked for another call more than %d times", params.Name, maxRounds)
	}
}

// suspended returns the error with which a task waits for the client's answers.
func suspended(result *mcp.CallToolResult) error {
	questions, err := objectOf(result.InputRequests)
	if err != nil {
		return err
	}
	return mcptask.Suspend(questions, result.RequestState)
}

// afterAnswers returns the params of the next call of a tool that has returned InputRequests.
func afterAnswers(ctx context.Context, params mcp.CallToolParamsRaw) (mcp.CallToolParamsRaw, error) {
	run, _ := From(ctx)
	given, state, err := run.Given(ctx)
	if err != nil || len(given) == 0 {
		return params, err
	}
	params.RequestState = state
	params.InputResponses, err = responses(given)
	return params, err
}

// rerun returns the work of a task whose process has died, or nil if it must not run again.
func (t *Tasks) rerun(old task.Task) mcptask.Work {
	//mutate:false TestStopInterruptsTools every tool is called again after a stop
	if !t.opts.Tools[old.Call.Name].Rerun {
		return nil
	}
	return t.again(old, peer{})
}

// resume returns the work of a task whose client has answered. The tool runs for the client
// that sent the last answer.
func (t *Tasks) resume(ctx context.Context, old task.Task) mcptask.Work {
	p, _ := ctx.Value(peerKey{}).(peer)
	return t.again(old, p)
}

// again returns the work that calls the tool of a stored task.
func (t *Tasks) again(old task.Task, p peer) mcptask.Work {
	var params mcp.CallToolParamsRaw
	if err := json.Unmarshal([]byte(old.Call.Message), &params); err != nil {
		return func(context.Context) ([]byte, error) { return nil, err }
	}
	return t.work(&params, p)
}

// ask sends a question to a client of 2025-11-25 that waits in tasks/result.
func (t *Tasks) ask(ctx context.Context, about task.Task, request []byte) ([]byte, error) {
	p, _ := ctx.Value(peerKey{}).(peer)
	session := p.session
	if session == nil {
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
	var can mcp.ClientCapabilities
	if hello := session.InitializeParams(); hello != nil && hello.Capabilities != nil {
		can = *hello.Capabilities
	}
	switch params := request.(type) {
	case *mcp.ElicitParams:
		if can.Elicitation == nil {
			return nil, mcptask.ErrNotAsked
		}
		params.Meta = with(params.Meta, mcpname.MetaRelatedTask, related)
		return session.Elicit(ctx, params)
	case *mcp.CreateMessageParams:
		if can.Sampling == nil {
			return nil, mcptask.ErrNotAsked
		}
		params.Meta = with(params.Meta, mcpname.MetaRelatedTask, related)
		return session.CreateMessage(ctx, params)
	case *mcp.CreateMessageWithToolsParams:
		if can.Sampling == nil {
			return nil, mcptask.ErrNotAsked
		}
		params.Meta = with(params.Meta, mcpname.MetaRelatedTask, related)
		return session.CreateMessageWithTools(ctx, params)
	case *mcp.ListRootsParams:
		if can.RootsV2 == nil {
			return nil, mcptask.ErrNotAsked
		}
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

// checkAnswer returns an error if an answer to an elicitation does not match its schema.
func checkAnswer(question, answer json.RawMessage) error {
	var asked struct {
		Method string
		Params struct {
			RequestedSchema *jsonschema.Schema `json:"requestedSchema"`
		}
	}
	if known := json.Unmarshal(question, &asked) == nil && asked.Method == mcpname.ElicitationCreate; !known {
		return nil
	}
	var given struct {
		Action  string
		Content map[string]any
	}
	if err := json.Unmarshal(answer, &given); err != nil {
		return errors.New("it is not the result of an elicitation")
	}
	switch {
	case given.Action == "decline" || given.Action == "cancel":
		return nil
	case given.Action != "accept":
		return errors.New("its action is neither accept nor decline nor cancel")
	case asked.Params.RequestedSchema == nil:
		return nil
	}
	if given.Content == nil {
		given.Content = map[string]any{}
	}
	if resolved, invalid := asked.Params.RequestedSchema.Resolve(nil); invalid == nil {
		return resolved.Validate(given.Content)
	}
	return nil // an invalid schema is the server's own mistake
}
