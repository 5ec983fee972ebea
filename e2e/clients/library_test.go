package clients_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// otherServer is the URL of another server for TestLibrary, to compare it with the library.
// That server needs the same tools.
var otherServer = flag.String("server", "", "the URL of a server for TestLibrary in the place of the example")

// A server written with module gosdktask works with these clients.
func TestLibrary(t *testing.T) {
	server := library(t)
	t.Run("conformance", func(t *testing.T) { libraryConformance(t, server) })
	t.Run("TypeScript", func(t *testing.T) { libraryTypeScript(t, server.String()) })
	t.Run("Go", func(t *testing.T) { libraryGo(t, server.String()) })
	t.Run("Inspector", func(t *testing.T) { libraryInspector(t, server.String()) })
	t.Run("walk", func(t *testing.T) { libraryWalk(t, server.String()) })
}

// example builds an example of module gosdktask and returns the path of the program.
func example(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../gosdktask/examples", "-o", program, "./"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// library runs the example for HTTP and returns its URL.
func library(t *testing.T) *url.URL {
	t.Helper()
	if *otherServer != "" {
		at, err := url.Parse(*otherServer)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	program := example(t, "jobs")
	port, err := testenv.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	server := exec.CommandContext(ctx, program, address)
	server.Stderr = io.Discard // it logs a line for every request
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
	})
	eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return &url.URL{Scheme: "http", Host: address, Path: "/mcp"}
}

// The server passes the whole official suite about tasks, directly and behind a gate.
func libraryConformance(t *testing.T, server *url.URL) {
	t.Helper()
	testenv.NeedNode(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	official, err := suite.Install(t.Context(), filepath.Join(cache, "thoughtgate"))
	if err != nil {
		t.Fatal(err)
	}
	gate, _, _ := openGate(t, behind(server), "rules: [{match: no_such_tool, action: deny}]\ndefault: forward\n")
	for place, at := range map[string]string{"directly": server.String(), "behind the gate": gate} {
		for name := range scenarios() {
			t.Run(place+"/"+name, func(t *testing.T) {
				t.Parallel()
				results, err := official.Run(t.Context(), suite.Target{URL: at, Scenario: name}, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				if results.Count(name, suite.Success) == 0 {
					t.Errorf("all checks fail: %+v", results)
				}
				for _, check := range results[name] {
					if check.Status != suite.Success {
						t.Errorf("%s: %s", check.ID, check.Message)
					}
				}
			})
		}
	}
}

// The official TypeScript clients run a tool of the example as a task.
func libraryTypeScript(t *testing.T, server string) {
	t.Helper()
	slow := map[string]any{"name": "slow_compute", "args": map[string]any{"seconds": 0.1}}
	for _, era := range []string{"legacy", "modern"} {
		t.Run("ext-tasks "+era, func(t *testing.T) {
			call := start(t, "tasks.mjs", server, era).tell("call", slow)
			call.await("task", nil)
			var got ended
			call.await("returned", &got)
			if got.Status != "completed" || got.Result.told().text != "computed" {
				t.Errorf("the call ended as %+v", got)
			}
		})
	}
	t.Run("SDK", func(t *testing.T) {
		call := start(t, "sdk.mjs", server).tell("stream", slow)
		call.await("taskCreated", nil)
		var got result
		call.await("result", &got)
		if got.told().text != "computed" {
			t.Errorf("the call ended as %+v", got)
		}
	})
}

// The official Go client does not support tasks. It gets the result of the same tool without
// one.
func libraryGo(t *testing.T, server string) {
	t.Helper()
	bothEras(t, func(t *testing.T, version string) {
		c := connectGo(t, &site{url: server}, version, "")
		end := outcome(c.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow_compute", Arguments: map[string]any{"seconds": 0.1}}))
		if end.text != "computed" {
			t.Errorf("%+v", end)
		}
	})
}

// A walker is a client of 2025-11-25 that checks all messages against the schema.
type walker struct {
	t        *testing.T
	url      string
	session  string // empty if the server has none
	id       int
	compiler *jsonschema.Compiler
}

func newWalker(t *testing.T, at string) *walker {
	t.Helper()
	text, err := os.ReadFile("../../mcptask/testdata/schema/mcp-2025-11-25.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	delete(doc.(map[string]any), "$id")
	w := &walker{t: t, url: at, compiler: jsonschema.NewCompiler()}
	if err := w.compiler.AddResource("https://schema.test/mcp.json", doc); err != nil {
		t.Fatal(err)
	}
	return w
}

// ask sends a request and returns the response.
func (w *walker) ask(method, params string) jsonrpc.Value {
	w.t.Helper()
	w.id++
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, w.id, method, params)
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url, strings.NewReader(message))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	if w.session != "" {
		r.Header.Set("Mcp-Session-Id", w.session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	w.session = cmp.Or(w.session, resp.Header.Get("Mcp-Session-Id"))
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			w.t.Fatal(err)
		}
		return jsonrpc.Value{Bytes: body}
	}
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	for {
		event, err := events.Next()
		if err != nil {
			w.t.Fatalf("%s: %s, %v", method, resp.Status, err)
		}
		response := jsonrpc.Value{Bytes: bytes.Clone(event.Data)}
		if string(response.Member("id").Bytes) == fmt.Sprint(w.id) {
			return response
		}
	}
}

// result sends a request, and returns its result, which must match the named definition of the
// schema.
func (w *walker) result(definition, method, params string) jsonrpc.Value {
	w.t.Helper()
	response := w.ask(method, params)
	result := response.Member("result")
	schema, err := w.compiler.Compile("https://schema.test/mcp.json#/$defs/" + definition)
	if err != nil {
		w.t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(result.Bytes))
	if err != nil {
		w.t.Fatalf("%s: %s", method, response.Bytes)
	}
	if err := schema.Validate(value); err != nil {
		w.t.Errorf("%s of %s: %v", method, result.Bytes, err)
	}
	return result
}

// refused sends a request that must be answered with an error.
func (w *walker) refused(code int64, method, params string) {
	w.t.Helper()
	response := w.ask(method, params)
	if got, _ := response.Member("error").Member("code").Int(); got != code {
		w.t.Errorf("%s %s: %s; want %d", method, params, response.Bytes, code)
	}
}

// create calls a tool as a task, and returns params with the id of the task.
func (w *walker) create(name, arguments string) string {
	w.t.Helper()
	made := w.result("CreateTaskResult", "tools/call", `{"name":"`+name+`","arguments":`+arguments+`,"task":{"ttl":60000}}`).Member("task")
	id, _ := made.Member("taskId").Text()
	if status, _ := made.Member("status").Text(); status != "working" || string(made.Member("ttl").Bytes) != "60000" || id == "" {
		w.t.Fatalf("the new task is %s", made.Bytes)
	}
	return `{"taskId":"` + id + `"}`
}

// is checks the status of a task.
func (w *walker) is(params, status string) {
	w.t.Helper()
	got := w.result("GetTaskResult", "tasks/get", params)
	if now, _ := got.Member("status").Text(); now != status || bytes.Contains(got.Bytes, []byte("related-task")) {
		w.t.Errorf("tasks/get: %s; want %s", got.Bytes, status)
	}
}

// The walk through tasks of 2025-11-25 is as strict as the schema and the text of the
// specification.
func libraryWalk(t *testing.T, server string) {
	t.Helper()
	w := newWalker(t, server)
	hello := w.result("InitializeResult", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"walk","version":"1"}}`)
	if got := hello.Member("capabilities").Member("tasks"); string(got.Bytes) != `{"cancel":{},"requests":{"tools":{"call":{}}}}` {
		t.Errorf("capabilities.tasks: %s", got.Bytes)
	}
	if got := w.result("ListToolsResult", "tools/list", `{}`); strings.Count(string(got.Bytes), `"taskSupport"`) != 6 {
		t.Errorf("tools: %s", got.Bytes)
	}

	running := w.create("slow_compute", `{"seconds":0.5}`)
	began := time.Now()
	done := w.result("CallToolResult", "tasks/result", running) // waits until the task ends
	related, _ := done.Member("_meta").Member("io.modelcontextprotocol/related-task").Member("taskId").Text()
	if !strings.Contains(running, related) || related == "" || !strings.Contains(string(done.Bytes), "computed") || time.Since(began) > patience {
		t.Errorf("tasks/result: %s", done.Bytes)
	}
	w.is(running, "completed")
	w.result("CallToolResult", "tasks/result", running) // the result can be fetched repeatedly
	w.refused(-32602, "tasks/cancel", running)

	failed := w.create("failing_job", `{}`)
	if got := w.result("CallToolResult", "tasks/result", failed); !got.Member("isError").IsTrue() {
		t.Errorf("a tool's error: %s", got.Bytes)
	}
	w.is(failed, "failed")

	broken := w.create("protocol_error_job", `{}`)
	w.refused(-32603, "tasks/result", broken)
	w.is(broken, "failed")

	cancelled := w.create("slow_compute", `{"seconds":60}`)
	w.is(cancelled, "working")
	if got, _ := w.result("CancelTaskResult", "tasks/cancel", cancelled).Member("status").Text(); got != "cancelled" {
		t.Errorf("tasks/cancel: %s", got)
	}
	w.is(cancelled, "cancelled")
	w.refused(-32602, "tasks/cancel", cancelled)

	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		w.refused(-32602, method, `{"taskId":"no such task"}`)
		w.refused(-32602, method, `{}`)
	}
	w.refused(-32601, "tasks/update", cancelled)
	w.refused(-32601, "tasks/list", `{}`) // not among the declared capabilities
	w.refused(-32601, "tools/call", `{"name":"failing_job","arguments":{}}`)
	w.refused(-32601, "tools/call", `{"name":"greet","arguments":{},"task":{}}`)
	w.refused(-32602, "tools/call", `{"name":"slow_compute","arguments":{},"task":{"ttl":0}}`)
}
