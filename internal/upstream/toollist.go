package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Tools lists all tools, with the credentials from configuration only, and calls add with each
// definition. It begins a session, or makes modern requests if the server knows no sessions. The
// header is that of the session; it is nil if there is none to end.
func (u *Upstream) Tools(ctx context.Context, add func(definition jsonrpc.Value) error) (session http.Header, err error) {
	defer recovered(&err)
	ctx, stop := context.WithTimeout(ctx, u.cfg.ToolsTimeout+u.cfg.StartTimeout)
	defer stop()
	l := toolLister{upstream: u, header: http.Header{}}
	if err := l.begin(ctx); err != nil {
		failed := err
		l = toolLister{upstream: u, header: http.Header{}, modern: true}
		if err := l.list(ctx, add); err != nil {
			return nil, errors.Join(failed, err)
		}
		return nil, nil
	}
	if l.header.Get("Mcp-Session-Id") != "" {
		session = l.header
	}
	return session, l.list(ctx, add)
}

// A toolLister lists the tools of an upstream, in a session or with modern requests.
type toolLister struct {
	upstream *Upstream
	header   http.Header
	modern   bool
}

// clientInfo is how the gate introduces itself, as JSON.
const clientInfo = `{"name":"thoughtgate","version":"1"}`

// begin begins a session.
func (l *toolLister) begin(ctx context.Context) error {
	result, session, err := l.ask(ctx, mcpname.Initialize,
		jsonrpc.Member{Name: "protocolVersion", JSON: jsonrpc.AppendString(nil, mcp.Version20251125)},
		jsonrpc.Member{Name: "capabilities", JSON: []byte(`{}`)},
		jsonrpc.Member{Name: "clientInfo", JSON: []byte(clientInfo)})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	version, _ := result.Member("protocolVersion").Text()
	if !slices.Contains(mcp.Versions(), version) {
		return invalidAnswer(errors.New("the upstream speaks an unknown version of the protocol"))
	}
	l.header.Set("Mcp-Protocol-Version", version)
	if session != "" {
		l.header.Set("Mcp-Session-Id", session)
	}
	m, err := parsed([]byte(`{"jsonrpc":"2.0","method":"` + mcpname.NotifyInitialized + `"}`))
	if err != nil {
		return err
	}
	resp, err := l.send(ctx, m)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// list lists the tools.
func (l *toolLister) list(ctx context.Context, add func(jsonrpc.Value) error) error {
	cursor := ""
	for range l.upstream.cfg.ToolsPages {
		var members []jsonrpc.Member
		if cursor != "" {
			members = append(members, jsonrpc.Member{Name: "cursor", JSON: jsonrpc.AppendString(nil, cursor)})
		}
		result, _, err := l.ask(ctx, mcpname.ToolsList, members...)
		if err != nil {
			return fmt.Errorf("list the tools: %w", err)
		}
		tools := result.Member("tools")
		if !tools.IsArray() {
			return invalidAnswer(errors.New("the upstream's list of tools is not a list"))
		}
		for definition := range tools.Elements() {
			if err := add(definition); err != nil {
				return err
			}
		}
		if cursor, _ = result.Member("nextCursor").Text(); cursor == "" {
			return nil
		}
	}
	return fmt.Errorf("the list has more than %d pages (limits.tools_max_pages)", l.upstream.cfg.ToolsPages)
}

// ask sends a request, and returns the result and the id of a session that begins with it.
func (l *toolLister) ask(ctx context.Context, method string, members ...jsonrpc.Member) (_ jsonrpc.Value, session string, err error) {
	if l.modern {
		meta := `{"` + mcpname.MetaProtocolVersion + `":"` + mcp.Version20260728 + `","` + mcpname.MetaClientInfo + `":` + clientInfo + `,"` + mcpname.MetaClientCapabilities + `":{}}`
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: []byte(meta)})
	}
	m := jsonrpc.NewRequest(newRequestID(), method, jsonrpc.NewParams(members...))
	resp, err := l.send(ctx, &m)
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	session = resp.Session
	a, err := readAnswer(resp, &m, nil)
	if err != nil {
		return jsonrpc.Value{}, "", err
	}
	if a.Error {
		return jsonrpc.Value{}, "", listError(&a)
	}
	result, err := a.readList(ctx, l.upstream.cfg.AnswerLimit)
	return result, session, err
}

// send sends a message of the gate.
func (l *toolLister) send(ctx context.Context, m *jsonrpc.Message) (*Response, error) {
	resp, err := l.upstream.cfg.Server.Send(ctx, Request{Message: m, Body: m.Raw, Credentials: Credentials{Header: l.header}})
	if err != nil {
		return nil, sendError(err)
	}
	return resp, nil
}
