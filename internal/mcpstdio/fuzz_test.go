package mcpstdio_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A fakeLink records forwarded messages.
type fakeLink struct {
	asks      *upstream.Upstream
	mu        sync.Mutex
	forwarded [][]byte
}

func (l *fakeLink) Upstream() *upstream.Upstream { return l.asks }
func (l *fakeLink) Credentials() http.Header     { return nil }

func (l *fakeLink) Forward(_ context.Context, f upstream.Forwarded) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Expect == nil || f.Expect() {
		l.forwarded = append(l.forwarded, bytes.Clone(f.Body))
	}
	return nil
}

// FuzzAgent checks that the agent does not panic, denied calls are not forwarded, each message is one
// line for every reader, and the agent gets only answers to its requests.
func FuzzAgent(f *testing.F) {
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "denied", Action: policy.Deny}}, Default: policy.Rule{Action: policy.Forward},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"denied"}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	f.Add("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"tools/list\"}\r\n\n{", "{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"result\":{\"tools\":[]}}\nbanner")
	f.Add(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"denied"}}]`, `[{"jsonrpc":"2.0","id":1,"result":{}}]`)
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"x","a":1,"a":2}}`)
	f.Fuzz(func(t *testing.T, agentSays, serverSays string) {
		log := slog.New(slog.DiscardHandler)
		g := catalog.New(&catalog.Settings{Policy: snapshot, HideDenied: true}, time.Now, log, nil)
		gateway := conversation.NewGateway(conversation.Config{Catalog: g, Log: log})
		defer gateway.Close()
		link := &fakeLink{asks: upstream.New(upstream.Config{Name: "test"})}
		var out bytes.Buffer
		agent := mcpstdio.New(mcpstdio.Config{
			In: strings.NewReader(agentSays), Out: &out, Link: link, Principal: policy.Principal{ID: "me"}, Catalog: g, Gateway: gateway,
			Limits: mcpstdio.Limits{Line: 1 << 20, Requests: 100}, Log: log,
		})
		agent.Serve(t.Context())
		asked := map[string]bool{"null": true}
		for line := range strings.SplitSeq(agentSays, "\n") {
			if p, err := jsonrpc.Parse([]byte(line), jsonrpc.Limits{}); err == nil {
				for _, m := range p.Messages {
					id, _ := m.ID.Text()
					asked[string(m.ID.Bytes)], asked[id] = true, true
				}
			} else if unread, ok := errors.AsType[*jsonrpc.ParseError](err); ok && unread.ID.Present() {
				asked[string(unread.ID.Bytes)] = true
			}
		}
		for line := range strings.SplitSeq(serverSays, "\n") {
			agent.Received(upstream.ReadLine([]byte(line), 0))
		}
		agent.Unanswered(nil, &mcp.Problem{Type: mcp.UpstreamDown})
		agent.Finish(t.Context())
		check(t, link.forwarded, out.String(), asked)
	})
}

func check(t *testing.T, forwarded [][]byte, out string, asked map[string]bool) {
	t.Helper()
	for _, body := range forwarded {
		p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil {
			t.Errorf("forwarded %q, which is not a message", body)
		}
		for _, m := range p.Messages {
			if name, _ := m.Params.Name.Text(); m.Method == "tools/call" && name == "denied" {
				t.Errorf("a denied call was forwarded: %s", body)
			}
		}
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "\r") || !strings.HasSuffix(line, "\n") {
			t.Errorf("a message is not one line: %q", line)
		}
		p, err := jsonrpc.Parse([]byte(line), jsonrpc.Limits{})
		if err != nil {
			continue // ambiguous, and checked by a scanner of its own
		}
		for _, m := range p.Messages {
			id, _ := m.ID.Text()
			if m.Kind == jsonrpc.Response && m.ID.Present() && !asked[string(m.ID.Bytes)] && !asked[id] {
				t.Errorf("the agent got an unexpected answer: %s", line)
			}
		}
	}
}
