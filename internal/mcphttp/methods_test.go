package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// An unwritableStore creates no task while it is down.
type unwritableStore struct {
	gatestore.Store

	down atomic.Bool
}

func (s *unwritableStore) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if s.down.Load() {
		return errors.New("the disk is full")
	}
	return s.Store.Create(ctx, t, limits, notes...)
}

// A methodCase is one cell of the table of TestOutcomesHaveTheFormOfTheirMethod.
type methodCase struct {
	*fixture

	store    *unwritableStore
	upstream *httptest.Server

	shift  atomic.Int64 // of the clock
	hangs  atomic.Bool  // the upstream says nothing
	breaks atomic.Bool  // the upstream answers with nonsense

	method, transport string
	modern            bool
	in                *io.PipeWriter
	answers           chan string
}

// methodEnds are the ways in which the gate ends a request without a result.
var methodEnds = []struct {
	name      string
	subject   string // the tool, prompt or resource
	before    func(c *methodCase)
	held      func(c *methodCase, id task.ID) // nil if the request is not held
	errorType string
	code      int // for legacy clients
	tool      bool
}{
	{"denied", "deny", nil, nil, "policy_denied", -32003, true},
	{"name too long", strings.Repeat("x", 8<<10), nil, nil, "name_too_long", -32602, false},
	{"rejected", "hold", nil, func(c *methodCase, id task.ID) { c.reject(id, "no") }, "approval_rejected", -32007, true},
	{"expired", "hold", nil, func(c *methodCase, _ task.ID) { c.shift.Store(int64(61 * time.Minute)) }, "approval_expired", -32008, true},
	{"drift", "hold", nil, func(c *methodCase, id task.ID) {
		c.catalog.Configure(&catalog.Settings{Policy: compile(c.t, policy.Rule{Match: "get_*", Action: policy.Forward})})
		c.approve(id)
	}, "policy_drift", -32011, true},
	{"cancelled", "hold", nil, func(c *methodCase, id task.ID) {
		if _, err := c.approvals.Cancel(c.t.Context(), task.AnyOwner().Ref(id), approval.Withdrawal{By: "tester", Reason: "withdrawn"}); err != nil {
			c.t.Error(err)
		}
	}, "task_cancelled", -32602, true},
	{"too many pending", "hold", func(c *methodCase) {
		for i := range 3 {
			c.send(toolCall("7", "hold_x", ""), "Mcp-Session-Id", fmt.Sprint("other-", i))
		}
		c.pending(3)
	}, nil, "capacity_exceeded", -32009, true},
	{"shutting down", "hold", func(c *methodCase) { _ = c.approvals.Close(context.Background()) }, nil, "shutting_down", -32013, false},
	{"shut down while held", "hold", nil, func(c *methodCase, _ task.ID) { _ = c.approvals.Close(context.Background()) }, "shutting_down", -32013, false},
	{"store down", "hold", func(c *methodCase) { c.store.down.Store(true) }, nil, "store_unavailable", -32013, false},
	{"upstream unreachable", "get", func(c *methodCase) { c.upstream.Close() }, nil, "upstream_unreachable", -32000, false},
	{"upstream unreachable when approved", "hold", nil, func(c *methodCase, id task.ID) {
		c.upstream.CloseClientConnections()
		c.upstream.Close()
		c.approve(id)
	}, "upstream_unreachable", -32000, false},
	{"upstream too slow", "get", func(c *methodCase) { c.hangs.Store(true) }, nil, "upstream_timeout", -32001, false},
	{"upstream too slow when approved", "hold", nil, func(c *methodCase, id task.ID) {
		c.hangs.Store(true)
		c.approve(id)
	}, "upstream_timeout", -32001, false},
	{"nonsense", "get", func(c *methodCase) { c.breaks.Store(true) }, nil, "upstream_invalid_response", -32002, false},
	{"nonsense when approved", "hold", nil, func(c *methodCase, id task.ID) {
		c.breaks.Store(true)
		c.approve(id)
	}, "upstream_invalid_response", -32002, false},
}

// A model reads the outcome of a tool call in a tool result. Resources and prompts have no such
// result.
func TestOutcomesHaveTheFormOfTheirMethod(t *testing.T) {
	for _, end := range methodEnds {
		for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
			for _, era := range []string{"legacy", "modern"} {
				for _, transport := range []string{"HTTP", "stdio", "batch"} {
					isBatch := transport == "batch"
					if isBatch && (era == "modern" || end.held != nil || end.subject == "get") {
						continue // the era has no batches, or the batch does not wait
					}
					t.Run(strings.Join([]string{end.name, method, era, transport}, ", "), func(t *testing.T) {
						t.Parallel()
						c := newMethodCase(t, method, era == "modern", transport, strings.Contains(end.name, "too slow"))
						if end.before != nil {
							end.before(c)
						}
						answer := c.begin(end.subject)
						if end.held != nil {
							end.held(c, c.pending(1)[0])
						}
						c.check(<-answer, end.errorType, end.code, end.tool)
					})
				}
			}
		}
	}
}

// check checks the form of an answer. An expiry must have its time.
func (c *methodCase) check(answer, errorType string, code int, tool bool) {
	c.t.Helper()
	m, err := jsonrpc.ParseMessage([]byte(answer), jsonrpc.Limits{})
	if err != nil {
		c.t.Fatalf("%v: %s", err, answer)
	}
	if errorType == "approval_expired" && !strings.Contains(answer, `"expired_at":"20`) {
		c.t.Errorf("the answer has no time of expiry: %s", answer)
	}
	if c.method == "tools/call" && tool {
		meta := m.Result.Member("_meta").Member("thoughtgate/error")
		said, _ := meta.Member("error_type").Text()
		got, _ := meta.Member("code").Int()
		if said != errorType || int(got) != code || string(m.Result.Member("isError").Bytes) != "true" {
			c.t.Errorf("got %s\nwant a tool result with %d %s", answer, code, errorType)
		}
		return
	}
	switch {
	case c.modern && (errorType == "policy_denied" || errorType == "name_too_long"):
		code = -32602
	case c.modern:
		code = -32603
	}
	said, _ := m.Error.Member("data").Member("error_type").Text()
	if got, _ := m.Error.Member("code").Int(); said != errorType || int(got) != code || m.Result.Present() {
		c.t.Errorf("got %s\nwant the error %d %s", answer, code, errorType)
	}
	if correlation, _ := m.Error.Member("data").Member("correlation_id").Text(); correlation == "" {
		c.t.Errorf("no correlation id: %s", answer)
	}
	text, _ := m.Error.Member("message").Text()
	if c.method != "tools/call" && (strings.Contains(text, "tool") || m.Error.Member("data").Member("tool").Present()) {
		c.t.Errorf("the answer to %s mentions a tool: %s", c.method, answer)
	}
}

// newMethodCase starts a gate. It has a short upstream timeout only if the upstream is to be
// too slow.
func newMethodCase(t *testing.T, method string, modern bool, transport string, tooSlow bool) *methodCase {
	t.Helper()
	limit := testTimeout
	if tooSlow {
		limit = 200 * time.Millisecond
	}
	c := &methodCase{store: &unwritableStore{}, method: method, modern: modern, transport: transport}
	c.fixture = newFixture(t, func(s *catalog.Settings, d *approval.Config, _ *conversation.Waiting) {
		s.Policy = compile(t,
			policy.Rule{Match: "docs://hold", Action: policy.Approve}, policy.Rule{Match: "hold*", Action: policy.Approve},
			policy.Rule{Match: "docs://get", Action: policy.Forward}, policy.Rule{Match: "get", Action: policy.Forward})
		c.store.Store, d.Store = d.Store, c.store
		d.Now = func() time.Time { return time.Now().Add(time.Duration(c.shift.Load())) }
		d.Sweep, d.Execution, d.Limits.Total = 20*time.Millisecond, limit, 3
	})
	c.upstream = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.upstream.Close)
	c.gateway = startGate(t, c.upstream.URL, func(s settings) {
		s.upstream.ResponseTimeout, s.upstream.CallTimeout = limit, limit
		s.handler.Catalog, s.handler.Approvals, s.handler.Records, s.handler.Waiting = c.catalog, c.approvals, c.store, c.waiting
	})
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	c.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case c.hangs.Load():
			<-ended
		case c.breaks.Load():
			io.WriteString(w, "nonsense")
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		}
	}
	if transport == "stdio" {
		c.connect()
	}
	return c
}

// connect connects a client through a pipe.
func (c *methodCase) connect() {
	log := slog.New(slog.DiscardHandler)
	link := httplink.New(httplink.Config{Client: c.client, Upstream: upstream.Config{Name: "test"}, MaxLine: 1 << 20, Log: log})
	in, write := io.Pipe()
	read, out := io.Pipe()
	agent := mcpstdio.New(mcpstdio.Config{
		In: in, Out: out, Link: link, Principal: policy.Principal{ID: "local:tester"}, Catalog: c.catalog, Gateway: c.conversations, Log: log,
		Limits: mcpstdio.Limits{Line: 1 << 20, Requests: 100},
	})
	_ = link.Start(agent)
	c.in, c.answers = write, make(chan string, 1)
	served := make(chan struct{})
	go func() { defer close(served); agent.Serve(context.Background()) }()
	go func() {
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if strings.Contains(lines.Text(), `"id":24`) {
				c.answers <- lines.Text()
			}
		}
	}()
	c.t.Cleanup(func() {
		write.Close()
		<-served
		link.Close()
		agent.Close()
		out.Close()
	})
}

// begin sends a request for the subject, and returns the channel of its answer.
func (c *methodCase) begin(subject string) <-chan string {
	about := `"name":"` + subject + `"`
	if c.method == "resources/read" {
		subject = "docs://" + subject
		about = `"uri":"` + subject + `"`
	}
	var headers []string
	if c.modern {
		about += "," + modernMeta("")
		headers = modernHeaders(subject)
		headers[3] = c.method
	}
	message := `{"jsonrpc":"2.0","id":24,"method":"` + c.method + `","params":{` + about + `}}`
	if c.in != nil {
		_, _ = io.WriteString(c.in, message+"\n")
		return c.answers
	}
	if c.transport == "batch" {
		message = batch(message)
	}
	answers, request := make(chan string, 1), c.send(message, headers...)
	go func() { answers <- strings.Trim(request.wait(c.t), "[]") }()
	return answers
}
