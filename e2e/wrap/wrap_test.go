// Package wrap_test connects real clients to real servers with the user's command: thoughtgate
// wrap. The servers come from npm, and the clients are the official Go and TypeScript SDKs.
// Approvers use the operators' HTTP API.
//
// The tests need node (20 or newer) and npm, and install the packages of package-lock.json in
// the user's cache directory. Without node or npm they are skipped, or fail if CI is set in
// the environment.
package wrap_test

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

//go:embed package.json package-lock.json
var pins embed.FS

// patience limits every wait in a test.
const patience = 2 * time.Minute

// installed returns the directory in which the servers are installed, once for all tests.
var installed = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return testenv.InstallNPM(ctx, filepath.Join(cache, "thoughtgate"), "wrap", pins)
})

// program builds the gate, once for all tests.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "thoughtgate-wrap-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "thoughtgate")
	out, err := exec.Command("go", "build", "-o", file, "github.com/thoughtgate/thoughtgate-go/cmd/thoughtgate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return file, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

// A site has the state directory of a gate, and the output of the gate.
type site struct {
	t      *testing.T
	state  string
	stderr bytes.Buffer
	mu     sync.Mutex

	inbox, tokenFile string // of a gate without wrap; a wrap prints them
}

func newSite(t *testing.T) *site {
	t.Helper()
	testenv.NeedNode(t)
	s := &site{t: t, state: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standard error:\n%s", s.printed())
		}
	})
	return s
}

// Write records the gate's standard error.
func (s *site) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.Write(p)
}

func (s *site) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

// server returns the command that starts a server from npm.
func (s *site) server(name string, args ...string) []string {
	s.t.Helper()
	dir, err := installed()
	if err != nil {
		s.t.Fatal(err)
	}
	return append([]string{"node", filepath.Join(dir, "node_modules", "@modelcontextprotocol", "server-"+name, "dist", "index.js")}, args...)
}

// ownApproval lets the tests approve calls at gates that they start themselves, like agent hosts.
const ownApproval = "workflows: {default: {agent_approval: true}}\n"

// config writes the configuration that wrap has by default, with ownApproval, and returns the name
// of the file.
func (s *site) config() string {
	s.t.Helper()
	source, err := filepath.Abs("../../cmd/thoughtgate")
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source, "wrap.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	text = append(text, ownApproval+"cedar: {policies: ['"+filepath.Join(source, "wrap.cedar")+"']}\n"...)
	file := filepath.Join(s.state, "default.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// wrapped returns a command with the gate in front of it.
func (s *site) wrapped(command []string) []string {
	s.t.Helper()
	file, err := program()
	if err != nil {
		s.t.Fatal(err)
	}
	return append([]string{file, "wrap", "--config", s.config(), "--name", "files", "--"}, command...)
}

// command returns a runnable command.
func (s *site) command(command []string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+s.state, "MEMORY_FILE_PATH="+filepath.Join(s.state, "memory.jsonl"))
	cmd.Stderr = s
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// connect starts a wrapped server, and connects the Go SDK to it.
func (s *site) connect(command []string) (*mcp.ClientSession, *exec.Cmd) {
	s.t.Helper()
	return s.connectTo(s.wrapped(command))
}

// connectTo starts a command of the gate, and connects the Go SDK to it.
func (s *site) connectTo(command []string) (*mcp.ClientSession, *exec.Cmd) {
	s.t.Helper()
	cmd := s.command(command)
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { session.Close() })
	return session, cmd
}

// call calls a tool and returns the text of its result.
func call(t *testing.T, session *mcp.ClientSession, name string, args map[string]any) (text string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, c := range result.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, result.IsError
}

var inboxLine = regexp.MustCompile(`calls that need approval wait at (\S+), operator token in (\S+)`)

// approveNext waits for a held call, and decides it with the operators' API.
func (s *site) approveNext(decision string) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		all := inboxLine.FindAllStringSubmatch(s.printed(), -1)
		if len(all) == 0 && s.inbox == "" {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		inbox, file := s.inbox, s.tokenFile
		if inbox == "" {
			inbox, file = all[len(all)-1][1], all[len(all)-1][2]
		}
		token, err := os.ReadFile(file)
		if err != nil {
			s.t.Error(err)
			return
		}
		if s.tryDecide(inbox, strings.TrimSpace(string(token)), decision) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Error("no call was held")
}

// tryDecide decides a pending call, if there is one.
func (s *site) tryDecide(url, token, decision string) bool {
	var list struct {
		Approvals []struct{ ID, ShownDigest string }
	}
	s.api(http.MethodGet, url+"/api/approvals?state=pending", token, nil, &list)
	if len(list.Approvals) == 0 {
		return false
	}
	var one struct{ ShownDigest string }
	s.api(http.MethodGet, url+"/api/approvals/"+list.Approvals[0].ID, token, nil, &one)
	body := map[string]string{"reason": "test", "shownDigest": one.ShownDigest}
	s.api(http.MethodPost, url+"/api/approvals/"+list.Approvals[0].ID+"/"+decision, token, body, nil)
	return true
}

func (s *site) api(method, url, token string, body, into any) {
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Error(err)
		return
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(text))
	if err != nil {
		s.t.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return // the gate is not serving yet
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		s.t.Errorf("%s %s: %s %s", method, url, resp.Status, answer)
		return
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			s.t.Errorf("%s: %v", answer, err)
		}
	}
}

// Reading a file is forwarded. Writing one waits for approval, and a rejected write does not
// happen.
func TestFilesystem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	session, _ := s.connect(s.server("filesystem", dir))
	if text, _ := call(t, session, "read_text_file", map[string]any{"path": filepath.Join(dir, "a.txt")}); text != "hello" {
		t.Errorf("read_text_file = %q", text)
	}
	approved := filepath.Join(dir, "b.txt")
	go s.approveNext("approve")
	call(t, session, "write_file", map[string]any{"path": approved, "content": "new"})
	if got, err := os.ReadFile(approved); err != nil || string(got) != "new" {
		t.Errorf("after the approval the file has %q (%v)", got, err)
	}
	rejected := filepath.Join(dir, "c.txt")
	go s.approveNext("reject")
	if text, failed := call(t, session, "write_file", map[string]any{"path": rejected, "content": "new"}); !failed {
		t.Errorf("a rejected call was answered %q", text)
	}
	if _, err := os.Stat(rejected); err == nil {
		t.Error("a rejected call has written its file")
	}
}

// The TypeScript SDK uses a server without hints, whose read-only tools the policy recognizes
// by their names.
func TestMemoryTypeScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.typeScript(map[string]any{"command": s.wrapped(s.server("memory")), "calls": memories})
}

// memories are calls to server-memory. The second one waits for approval.
var memories = []any{
	map[string]any{"name": "read_graph", "args": map[string]any{}},
	map[string]any{"name": "create_entities", "args": map[string]any{"entities": []any{
		map[string]any{"name": "gate", "entityType": "thing", "observations": []string{"holds"}},
	}}},
	map[string]any{"name": "search_nodes", "args": map[string]any{"query": "gate"}},
}

// typeScript makes three calls with the TypeScript SDK, as described by an order. One of them
// waits for approval, and the answer to the last contains holds.
func (s *site) typeScript(order map[string]any) {
	s.t.Helper()
	t := s.t
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	script, err := os.ReadFile("client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "client.mjs"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(work, "node_modules")); err != nil {
		t.Fatal(err)
	}
	go s.approveNext("approve")
	out, err := s.command([]string{"node", filepath.Join(work, "client.mjs"), string(text)}).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 4 || !strings.Contains(lines[3], "holds") || strings.Contains(lines[3], `"isError":true`) {
		t.Errorf("the client saw:\n%s", out)
	}
}

// server-sequential-thinking makes several calls in succession.
func TestSequentialThinking(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	session, _ := s.connect(s.server("sequential-thinking"))
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) == 0 {
		t.Fatalf("tools = %v, %v", tools, err)
	}
	thought := map[string]any{"thought": "one", "nextThoughtNeeded": true, "thoughtNumber": 1, "totalThoughts": 2}
	hinted := tools.Tools[0].Annotations != nil && tools.Tools[0].Annotations.ReadOnlyHint
	if !hinted {
		go s.approveNext("approve")
	}
	if text, failed := call(t, session, tools.Tools[0].Name, thought); failed || !strings.Contains(text, "thoughtNumber") {
		t.Errorf("the server answered %q", text)
	}
}

// Forwarded messages are unchanged byte for byte, except for the capabilities that the gate
// adds.
func TestForwardedBytesAreUnchanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	messages := []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"list","method":"resources/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":3,"method":"no/such/method","params":{"x":1.0}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"get-tiny-image","arguments":{}}}`,
	}
	bare := s.converse(s.server("everything"), messages)
	gated := s.converse(s.wrapped(s.server("everything")), messages)
	for id, want := range bare {
		if got := gated[id]; got != want && id != "0" {
			t.Errorf("request %s was answered\n%.400s\nand without the gate\n%.400s", id, got, want)
		}
	}
	if len(bare) < 6 {
		t.Errorf("the server answered %d of 6 requests", len(bare))
	}
}

// converse sends messages to a command one after the other, and returns the answers by id.
func (s *site) converse(command, messages []string) map[string]string {
	s.t.Helper()
	cmd := s.command(command)
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	answers := map[string]string{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 10<<20)
	for _, message := range messages {
		fmt.Fprintln(in, message)
		var asked struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(message), &asked); err != nil {
			s.t.Fatal(err)
		}
		for asked.ID != nil && lines.Scan() {
			var said struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
				s.t.Fatalf("standard output has a line that is not a message: %s", lines.Bytes())
			}
			if said.Method == "" && bytes.Equal(said.ID, asked.ID) {
				answers[strings.Trim(string(asked.ID), `"`)] = lines.Text()
				break
			}
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("%v ended with %v", command, err)
	}
	return answers
}
