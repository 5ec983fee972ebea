package gosdktask_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

// A pipe is a server with tasks. The test is its only client.
type pipe struct {
	t      *testing.T
	server *mcp.Server
	in     io.Writer
	out    *bufio.Reader
	aside  []packet // messages that came before an expected answer
	stop   func()   // stops the server gracefully
}

// A packet is a message of the server.
type packet struct {
	answer

	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// about returns the params of a notification as a result, for [answer.member].
func (p packet) about() answer { return answer{Result: p.Params} }

func newPipe(t *testing.T) *pipe {
	t.Helper()
	return open(t, newServer(), gosdktask.Options{Tools: modes()})
}

// open runs a server, and stops it when the test ends.
func open(t *testing.T, server *mcp.Server, o gosdktask.Options) *pipe {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	tasks, err := gosdktask.Add(server, o)
	if err != nil {
		t.Fatal(err)
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = server.Run(ctx, tasks.Transport(&mcp.IOTransport{Reader: toServer, Writer: fromServer}))
	})
	running.Go(func() { _ = tasks.Run(ctx) })
	end := sync.OnceFunc(func() { stop(); fromClient.Close(); fromServer.Close(); running.Wait() })
	t.Cleanup(end)
	return &pipe{t: t, server: server, in: fromClient, out: bufio.NewReader(toClient), stop: end}
}

func (p *pipe) send(id, method, params string) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next message of the server. It answers the server's questions.
func (p *pipe) read() (m packet) {
	p.t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.t.Fatal(err)
		}
		if question := elicitation(line); question != "" {
			fmt.Fprintln(p.in, question)
			continue
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			p.t.Fatalf("%v: %s", err, line)
		}
		return m
	}
}

// next returns the next message, including those that call has set aside.
func (p *pipe) next() packet {
	p.t.Helper()
	if len(p.aside) > 0 {
		first := p.aside[0]
		p.aside = p.aside[1:]
		return first
	}
	return p.read()
}

// call returns the answer to a request.
func (p *pipe) call(id, method, params string) answer {
	p.t.Helper()
	p.send(id, method, params)
	for {
		m := p.read()
		if string(m.ID) == id {
			return m.answer
		}
		p.aside = append(p.aside, m)
	}
}

// The client at the other end of a pipe gets questions and notifications, and may list its
// tasks.
func TestPipeClientIsAskedAndNotified(t *testing.T) {
	p := newPipe(t)
	hello := p.call("1", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}`)
	if got := hello.member("capabilities", "tasks", "list"); got != "{}" {
		t.Errorf("capabilities: %s", hello.Result)
	}
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	id := p.call("2", "tools/call", `{"name":"ask","task":{}}`).member("task", "taskId")
	if got := p.call("3", "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(string(got.Result), "Hello, Ann!") {
		t.Errorf("tasks/result: %s %v", got.Result, got.Error)
	}
	if got := p.call("4", "tasks/list", `{}`); !strings.Contains(string(got.Result), id) {
		t.Errorf("tasks/list: %s %v", got.Result, got.Error)
	}
	for {
		m := p.next()
		if m.Method == "notifications/tasks/status" && m.about().member("status") == "completed" {
			return
		}
	}
}

const subscriptionID = "io.modelcontextprotocol/subscriptionId"

// Clients of 2026-07-28 can also subscribe over a pipe. Each subscription is acknowledged with
// its tasks, delivers only their changes, and is answered when they have ended.
func TestPipeSubscriptionsEndWithTheirTasks(t *testing.T) {
	p := newPipe(t)
	wants := map[string]string{} // ids of tasks by the id of the subscription
	for i := range 20 {
		name := strconv.Itoa(i)
		if i%2 == 0 {
			name = strconv.Quote("l" + name)
		}
		wants[name] = p.call(`"call"`, "tools/call", modernParams(`{"name":"wait"}`)).member("taskId")
	}
	for name, id := range wants { // all at the same time
		p.send(name, "subscriptions/listen", modernParams(`{"notifications":{"taskIds":["`+id+`"]}}`))
	}
	told := map[string]string{} // the last status by the id of the subscription
	for ended := 0; ended < len(wants); {
		m := p.next()
		switch {
		case m.Result != nil && wants[string(m.ID)] == "": // the answer to tasks/cancel
			continue
		case m.Result != nil:
			if ended++; told[string(m.ID)] != "cancelled" {
				t.Errorf("subscription %s ended while its task was %s", m.ID, told[string(m.ID)])
			}
			continue
		}
		var meta map[string]json.RawMessage
		if err := json.Unmarshal([]byte(m.about().member("_meta")), &meta); err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		name := string(meta[subscriptionID])
		switch m.Method {
		case "notifications/subscriptions/acknowledged":
			if got := m.about().member("notifications", "taskIds"); got != `["`+wants[name]+`"]` || told[name] != "" {
				t.Errorf("subscription %s: %s", name, m.Params)
			}
			told[name] = "acknowledged"
		case "notifications/tasks":
			if m.about().member("taskId") != wants[name] {
				t.Errorf("subscription %s was notified of another task: %s", name, m.Params)
			}
			if told[name] == "acknowledged" {
				p.send(`"cancel `+wants[name]+`"`, "tasks/cancel", modernParams(`{"taskId":"`+wants[name]+`"}`))
			}
			told[name] = m.about().member("status")
		default:
			t.Errorf("%+v", m)
		}
	}
}

// A subscription over a pipe to tasks and to something else delivers both, and stays open after
// the tasks have ended.
func TestPipeMixedSubscriptionOutlivesTasks(t *testing.T) {
	p := newPipe(t)
	id := p.call(`"call"`, "tools/call", modernParams(`{"name":"wait"}`)).member("taskId")
	p.send(`"l1"`, "subscriptions/listen", modernParams(`{"notifications":{"toolsListChanged":true,"taskIds":["`+id+`"]}}`))
	first := p.next().about()
	if first.member("notifications", "toolsListChanged") != "true" || first.member("notifications", "taskIds") != `["`+id+`"]` {
		t.Errorf("acknowledgement: %s", first.Result)
	}
	for {
		m := p.next()
		switch status := m.about().member("status"); {
		case m.Method == "notifications/tasks" && status == "working":
			p.send(`"cancel"`, "tasks/cancel", modernParams(`{"taskId":"`+id+`"}`))
		case m.Method == "notifications/tasks" && status == "cancelled":
			p.server.RemoveTools("forbidden")
		case m.Method == "notifications/tools/list_changed":
			if m.about().member("_meta", subscriptionID) != "l1" {
				t.Errorf("%s", m.Params)
			}
			return
		case m.Method != "" || string(m.ID) != `"cancel"`:
			t.Fatalf("%s %s %s", m.ID, m.Method, m.Params)
		}
	}
}

// No member on the wire has the name of this project.
func TestWireHasNoVendor(t *testing.T) {
	p := newPipe(t)
	var seen []packet
	ask := func(id, method, params string) answer {
		p.send(id, method, params)
		for {
			m := p.read()
			seen = append(seen, m)
			if string(m.ID) == id {
				return m.answer
			}
		}
	}
	ask("1", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	id := ask("2", "tools/call", `{"name":"wait","task":{}}`).member("task", "taskId")
	ask("3", "tasks/list", `{}`)
	ask("4", "tools/list", `{}`)
	ask("5", "tasks/cancel", `{"taskId":"`+id+`"}`)
	ask("6", "tasks/result", `{"taskId":"`+id+`"}`)
	ask("7", "tasks/get", modernParams(`{"taskId":"`+id+`"}`))
	for _, m := range seen {
		if text := string(m.Result) + string(m.Params); strings.Contains(strings.ToLower(text), "thoughtgate") {
			t.Errorf("%s", text)
		}
	}
}
