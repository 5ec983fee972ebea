package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// serve is the environment variable that makes the test binary run as the server.
const serve = "VARIABLES_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serve) != "" {
		main()
	}
	os.Exit(m.Run())
}

// start runs the server until the test ends, and returns its address.
func start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(context.WithoutCancel(t.Context()))
	server := exec.CommandContext(ctx, self, address)
	server.Env = append(os.Environ(), serve+"=1", "GORACE=atexit_sleep_ms=0")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill()
		_ = server.Wait() // it was killed, so its exit status is an error
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return address
		}
		if time.Now().After(deadline) {
			t.Fatal("the server did not start to listen")
		}
	}
}

// An answer holds the members of a response that the test uses.
type answer struct {
	Result struct {
		TaskID, Status, StatusMessage string

		Meta    map[string]json.RawMessage `json:"_meta"`
		Content []struct{ Text string }
		Result  struct{ Content []struct{ Text string } }
	}
	Error *struct{ Message string }
}

// ask sends a request with variables, as a client of 2026-07-28 that supports tasks.
func ask(t *testing.T, address, method, params, variables string) (a answer) {
	t.Helper()
	var names struct{ Name, TaskID string }
	if err := json.Unmarshal([]byte(params), &names); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}%s}}}`,
		method, strings.TrimSuffix(params, "}"), variables)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {names.Name + names.TaskID},
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, data, isEvent := strings.Cut(string(text), "data: "); isEvent {
		text = []byte(data)
	}
	if err := json.Unmarshal(text, &a); err != nil || a.Error != nil {
		t.Fatalf("%s: %v in %q", method, err, text)
	}
	return a
}

// until polls a task until done reports true.
func until(t *testing.T, address, id string, done func(answer) bool) answer {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		a := ask(t, address, "tasks/get", `{"taskId":"`+id+`"}`, "")
		if done(a) {
			return a
		}
		if time.Now().After(deadline) {
			t.Fatalf("the task is %+v", a)
		}
	}
}

// The client reads the plan, chooses, and gets the result for its choice, with a new connection
// for each step. The tool does not wait if the call already contains the choice.
func TestClientChoosesFromPlan(t *testing.T) {
	address := start(t)
	id := ask(t, address, "tools/call", `{"name":"research","arguments":{}}`, "").Result.TaskID
	planned := until(t, address, id, func(a answer) bool {
		return a.Result.StatusMessage == "waiting for a choice: set client.choice"
	})
	if got := string(planned.Result.Meta["server.plan"]); got != `["papers","patents"]` || planned.Result.Status != "working" {
		t.Errorf("the plan is %s, the task %s", got, planned.Result.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	ask(t, address, "tasks/update", `{"taskId":"`+id+`","inputResponses":{}}`, `,"client.choice":"patents"`)
	completed := func(a answer) bool { return a.Result.Status == "completed" }
	got := until(t, address, id, completed)
	if content := got.Result.Result.Content; len(content) != 1 || content[0].Text != "read all patents" || string(got.Result.Meta["client.choice"]) != `"patents"` {
		t.Errorf("the task is %+v", got.Result)
	}

	id = ask(t, address, "tools/call", `{"name":"research","arguments":{}}`, `,"client.choice":"novels"`).Result.TaskID
	if content := until(t, address, id, completed).Result.Result.Content; len(content) != 1 || content[0].Text != "no such choice: novels" {
		t.Errorf("the result is %+v", content)
	}
}
