// Package mcpclient makes requests to an MCP server over HTTP, in either era, as an agent does. It
// knows nothing of gates: a held call is a slow one that reports its progress.
//
//	c, err := mcpclient.Connect(ctx, cfg)
//	…
//	defer c.Close()
//	result, err := c.Call(ctx, "read_file", jsontext.Value(`{"path":"/notes/todo.txt"}`))
package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Name is the name of the client in its clientInfo. The gate knows that it waits without limit.
const Name = "thoughtgate-call"

const (
	maxMessage = 64 << 20 // bytes
	maxRounds  = 100      // of a call that the server asks to repeat
	maxPages   = 100      // of the tool list
)

// The times that a server has. A call may wait for a person.
const (
	connectTimeout  = 10 * time.Second
	responseTimeout = 30 * time.Second
	callTimeout     = 24 * time.Hour // of silence
)

// A Config names a server.
type Config struct {
	Name     string
	URL      *url.URL
	Headers  http.Header            // sent with every request
	Token    func() (string, error) // returns the bearer token; nil if none is sent
	Tokens   httpclient.Tokens      // of a person who has signed in; nil if nobody has
	Version  string                 // of this program
	Progress func(message string)   // gets the messages of progress notifications, one at a time; nil drops them
	Log      *slog.Logger
}

// A Client is connected to a server.
type Client struct {
	cfg   Config
	link  *httplink.Link
	close func()
	era   mcp.Era

	mu      sync.Mutex
	lastID  int
	waiting map[string]chan answer // by the id of the request
}

// An answer is the answer to a request, or why there is none.
type answer struct {
	result  jsonrpc.Value
	problem error
}

// ErrNoAnswer reports a server that cannot be reached, or that is silent.
var ErrNoAnswer = errors.New("no answer")

// A ServerError is a JSON-RPC error of the server.
type ServerError struct {
	Code    int64
	Message string // foreign text
}

// Error implements error.
func (e *ServerError) Error() string {
	return fmt.Sprintf("the server answers with error %d: %s", e.Code, e.Message)
}

// Connect finds out which era the server speaks. In the legacy era, it begins a session.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, waiting: make(map[string]chan answer), era: mcp.Modern}
	c.link = httplink.New(httplink.Config{
		Client: httpclient.New(httpclient.Config{
			Name: cfg.Name, URL: cfg.URL, Headers: cfg.Headers, Tokens: cfg.Tokens, Log: cfg.Log, MaxIdle: 1, IdleTimeout: time.Minute,
			ForwardAuthorization: true, // of Token
			ConnectTimeout:       connectTimeout, ResponseTimeout: responseTimeout, CallTimeout: callTimeout,
		}),
		Token: cfg.Token, MaxLine: maxMessage, Log: cfg.Log, Upstream: upstream.Config{Name: cfg.Name, Log: cfg.Log},
	})
	c.close = c.link.Close
	err := c.link.Start(c)
	if err == nil {
		err = c.begin(ctx)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// Close ends the session. The server withdraws a call that still waits.
func (c *Client) Close() { c.close() }

// begin asks the server whether it is modern. A legacy server answers with any error.
func (c *Client) begin(ctx context.Context) error {
	found, err := c.ask(ctx, mcpname.ServerDiscover, c.params())
	for version := range found.Member("supportedVersions").Elements() {
		if text, _ := version.Text(); err == nil && text == mcp.Version20260728 {
			return nil
		}
	}
	if ctx.Err() != nil || errors.Is(err, ErrNoAnswer) {
		return err // says nothing of the server's era
	}
	c.era = mcp.Legacy
	about := map[string]any{"protocolVersion": mcp.Version20251125, "capabilities": struct{}{}, "clientInfo": c.info()}
	if _, err := c.ask(ctx, mcpname.Initialize, about); err != nil {
		return err
	}
	return c.send(ctx, map[string]any{"jsonrpc": "2.0", "method": mcpname.NotifyInitialized})
}

func (c *Client) info() any { return map[string]string{"name": Name, "version": c.cfg.Version} }

// params returns the parameters that every request has.
func (c *Client) params() map[string]any {
	if c.era == mcp.Legacy {
		return map[string]any{}
	}
	return map[string]any{"_meta": c.meta()}
}

func (c *Client) meta() map[string]any {
	if c.era == mcp.Legacy {
		return map[string]any{}
	}
	return map[string]any{
		mcpname.MetaProtocolVersion: mcp.Version20260728, mcpname.MetaClientInfo: c.info(), mcpname.MetaClientCapabilities: struct{}{},
	}
}

// A Tool is a tool of the server, with texts of the server.
type Tool struct{ Name, Description string }

// Tools returns the server's tools.
func (c *Client) Tools(ctx context.Context) (all []Tool, err error) {
	params := c.params()
	for range maxPages {
		page, err := c.ask(ctx, mcpname.ToolsList, params)
		if err != nil {
			return nil, err
		}
		for tool := range page.Member("tools").Elements() {
			name, _ := tool.Member("name").Text()
			description, _ := tool.Member("description").Text()
			all = append(all, Tool{name, description})
		}
		next, more := page.Member("nextCursor").Text()
		if !more {
			break
		}
		params["cursor"] = next
	}
	return all, nil
}

// A Result is the result of a call, written by the server or by a gate.
type Result struct {
	JSON   jsontext.Value
	Text   string // its texts, and what stands in for its other content
	Failed bool   // the tool reports an error, or the gate did not let it run
}

func resultOf(v jsonrpc.Value) Result {
	r := Result{JSON: v.Bytes, Failed: v.Member("isError").IsTrue()}
	var parts []string
	for part := range v.Member("content").Elements() {
		text, ok := part.Member("text").Text()
		if !ok {
			text, ok = part.Member("resource").Member("text").Text()
		}
		if kind, _ := part.Member("type").Text(); !ok {
			text = "[" + kind + ", not shown]"
		}
		parts = append(parts, strings.TrimSuffix(text, "\n"))
	}
	if structured := v.Member("structuredContent"); len(parts) == 0 && structured.Present() {
		parts = append(parts, string(structured.Bytes))
	}
	r.Text = strings.Join(parts, "\n")
	return r
}

// Call calls a tool with arguments, which are a JSON object, and returns its result. It waits as
// long as the server does.
func (c *Client) Call(ctx context.Context, tool string, arguments jsontext.Value) (Result, error) {
	params := c.params()
	params["name"], params["arguments"] = tool, arguments
	for round := range maxRounds {
		meta := c.meta()
		meta["progressToken"] = round
		params["_meta"] = meta
		result, err := c.ask(ctx, mcpname.ToolsCall, params)
		if kind, _ := result.Member("resultType").Text(); err != nil || kind != "input_required" {
			return resultOf(result), err
		}
		state, ok := result.Member("requestState").Text()
		if questions := result.Member("inputRequests"); !ok || questions.Present() && !questions.IsEmptyObject() {
			return Result{}, errors.New("the tool asks for input, which this command cannot give")
		}
		params["requestState"] = state // the server wants the request again, and then goes on waiting
	}
	return Result{}, fmt.Errorf("the server wanted the call %d times and did not answer it", maxRounds)
}

// ask sends a request and waits for its result.
func (c *Client) ask(ctx context.Context, method string, params map[string]any) (jsonrpc.Value, error) {
	c.mu.Lock()
	c.lastID++
	id, got := strconv.Itoa(c.lastID), make(chan answer, 1)
	c.waiting[id] = got
	c.mu.Unlock()
	if err := c.send(ctx, map[string]any{"jsonrpc": "2.0", "id": jsontext.Value(id), "method": method, "params": params}); err != nil {
		return jsonrpc.Value{}, err
	}
	select {
	case a := <-got:
		return a.result, a.problem
	case <-ctx.Done():
		return jsonrpc.Value{}, ctx.Err()
	}
}

// send sends a message.
func (c *Client) send(ctx context.Context, message map[string]any) error {
	text, err := json.Marshal(message, json.Deterministic(true))
	if err != nil {
		return err
	}
	line := upstream.ReadLine(text, 0)
	if line.Err != nil {
		return line.Err
	}
	return c.link.Forward(ctx, upstream.Forwarded{Packet: line.Packet, Body: text})
}

// Received implements [upstream.Receiver].
func (c *Client) Received(line upstream.Line) {
	for i := range line.Packet.Messages {
		m := &line.Packet.Messages[i]
		if m.Kind == jsonrpc.Response {
			c.answer(m.ID.Bytes, answerIn(m))
		} else if text, ok := m.Params.Member("message").Text(); ok && m.Method == mcpname.NotifyProgress && c.cfg.Progress != nil {
			c.cfg.Progress(text)
		}
	}
}

func answerIn(m *jsonrpc.Message) answer {
	if m.Error.Present() {
		code, _ := m.Error.Member("code").Int()
		text, _ := m.Error.Member("message").Text()
		return answer{problem: &ServerError{code, text}}
	}
	return answer{result: m.Result.Clone()}
}

// Unanswered implements [upstream.Receiver].
func (c *Client) Unanswered(ids [][]byte, problem *mcp.Problem) {
	err := error(problem)
	if problem.Type == mcp.UpstreamDown || problem.Type == mcp.UpstreamTimeout {
		err = fmt.Errorf("%w: %w", ErrNoAnswer, problem.Cause)
	}
	for _, id := range ids {
		c.answer(id, answer{problem: err})
	}
}

func (c *Client) answer(id []byte, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.waiting[string(id)]; got != nil {
		got <- a // its only value, so this does not wait
		delete(c.waiting, string(id))
	}
}
