package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// serve is the environment variable that makes the test binary run as the server.
const serve = "STDIO_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serve) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A child is a server process that a client has started.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), self)}
	c.cmd.Env = append(os.Environ(), serve+"=1", "GORACE=atexit_sleep_ms=0")
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// A message holds the members of the server's messages that the tests use.
type message struct {
	ID     int
	Method string
	Params struct{ TaskID, Status string }
	Result struct {
		Capabilities struct{ Tasks json.RawMessage }
		Task         struct{ TaskID string }
		TaskID       string
		Status       string
		Content      []struct{ Text string }
		Result       struct{ Content []struct{ Text string } }
	}
	Error *struct{ Message string }
}

// ask returns the answer to a request. It skips messages that come before the answer.
func (c *child) ask(id int, method, params string) message {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
		c.t.Fatal(err)
	}
	for {
		if m := c.read(); m.ID == id {
			if m.Error != nil {
				c.t.Fatalf("%s: %s", method, m.Error.Message)
			}
			return m
		}
	}
}

func (c *child) read() (m message) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &m)
	}
	if err != nil {
		c.t.Fatalf("%v: %q", err, line)
	}
	return m
}

// leave closes the pipe. The server then exits soon, without an error.
func (c *child) leave() {
	c.t.Helper()
	c.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			c.t.Error(err)
		}
	case <-time.After(time.Minute):
		c.t.Error("the server did not exit")
	}
}

// A client of 2025-11-25 gets a task at once, may list it, and gets the result.
func TestClientOf2025GetsTaskAndResult(t *testing.T) {
	t.Parallel()
	c := start(t)
	defer c.leave()
	hello := c.ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if !strings.Contains(string(hello.Result.Capabilities.Tasks), `"list"`) {
		t.Errorf("capabilities.tasks: %s", hello.Result.Capabilities.Tasks)
	}
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	id := `{"taskId":"` + c.ask(2, "tools/call", `{"name":"slow","arguments":{},"task":{}}`).Result.Task.TaskID + `"}`
	if got := c.ask(3, "tasks/get", id); got.Result.Status != "working" {
		t.Errorf("the task is %s", got.Result.Status)
	}
	if got := c.ask(4, "tasks/result", id); len(got.Result.Content) != 1 || got.Result.Content[0].Text != "done" {
		t.Errorf("the result is %+v", got.Result)
	}
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// A client of 2026-07-28 subscribes to its task and is notified when it ends.
func TestClientOf2026IsNotifiedOfEnd(t *testing.T) {
	t.Parallel()
	c := start(t)
	defer c.leave()
	id := c.ask(1, "tools/call", `{"name":"slow","arguments":{},`+meta+`}`).Result.TaskID
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"taskIds":[%q]},%s}}`+"\n", id, meta); err != nil {
		t.Fatal(err)
	}
	for {
		m := c.read()
		if m.Method == "notifications/tasks" && m.Params.TaskID == id && m.Params.Status == "completed" {
			break
		}
		if m.ID == 2 {
			t.Fatal("the subscription ended before the task")
		}
	}
	got := c.ask(3, "tasks/get", `{"taskId":"`+id+`",`+meta+`}`)
	if content := got.Result.Result.Content; len(content) != 1 || content[0].Text != "done" {
		t.Errorf("the task is %+v", got.Result)
	}
}

// The server exits when its client closes the pipe while a task runs.
func TestServerExitsWithClient(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.ask(1, "tools/call", `{"name":"slow","arguments":{},`+meta+`}`)
	c.leave()
}
