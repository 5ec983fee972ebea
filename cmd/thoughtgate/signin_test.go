//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/signin"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

// A protectedServer is an MCP server that needs tokens, with its authorization server.
type protectedServer struct {
	*authserver.Server

	t   *testing.T
	url string
	env []string // of the gates of one user
	ran atomic.Int64

	mu   sync.Mutex
	seen map[string]bool // access tokens
}

func newProtectedServer(t *testing.T) *protectedServer {
	t.Helper()
	s := &protectedServer{Server: authserver.New(t, authserver.Options{}), t: t, seen: make(map[string]bool)}
	server := mcp.NewServer(&mcp.Implementation{Name: "protected"}, nil)
	for _, tool := range []string{"get_page", "delete_page"} {
		mcp.AddTool(server, &mcp.Tool{Name: tool}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			s.ran.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
	}
	handler := s.Protect("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			s.seen[token] = true
		}
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	s.url = listener.URL + "/mcp"
	home := t.TempDir()
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "THOUGHTGATE_") {
			s.env = append(s.env, v)
		}
	}
	s.env = append(s.env, "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "BROWSER=browser", "DBUS_SESSION_BUS_ADDRESS=", "XDG_RUNTIME_DIR=", "GORACE=atexit_sleep_ms=0")
	return s
}

// An agent is a client of one wrap.
type signedInAgent struct {
	*mcp.ClientSession

	t      *testing.T
	stderr *bytes.Buffer
}

// connect starts a wrap of the server.
func (s *protectedServer) connect(env []string, args ...string) (*signedInAgent, error) {
	s.t.Helper()
	cmd := exec.Command("thoughtgate", append([]string{"wrap", "--url", s.url}, args...)...)
	a := &signedInAgent{t: s.t, stderr: new(bytes.Buffer)}
	cmd.Env, cmd.Stderr = slices.Concat(s.env, env), a.stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
	var err error
	if a.ClientSession, err = client.Connect(s.t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil); err == nil {
		s.t.Cleanup(func() { _ = a.Close() })
	}
	return a, err
}

// call calls a tool.
func (a *signedInAgent) call(tool string) {
	a.t.Helper()
	result, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
	if err != nil || result.IsError || result.Content[0].(*mcp.TextContent).Text != "done" {
		a.t.Errorf("%s: %+v, %v\n%s", tool, result, err, a.stderr)
	}
}

// run runs a command of the user.
func (s *protectedServer) run(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("thoughtgate", args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// asked returns how often the authorization server got a request at a path.
func (s *protectedServer) asked(path string) (n int) {
	for _, r := range s.Requests() {
		if r.Path == path {
			n++
		}
	}
	return n
}

// Agents reach a server that needs OAuth through wrap. The person signs in once, in the browser.
// A call whose tokens were revoked while it was held runs after another sign-in, without another
// approval. Tokens are in no log and in no file but theirs. Logout ends all.
func TestWrapSignsIn(t *testing.T) {
	s := newProtectedServer(t)
	config := filepath.Join(t.TempDir(), "wrap.yaml")
	// The agent of the test may approve its call.
	if err := os.WriteFile(config, []byte("version: 1\ntelemetry: {log: {level: debug}}\nrules: [{match: delete_page, action: approve}]\ndefault: forward\nworkflows: {default: {agent_approval: true}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := s.connect(nil, "--name", "docs", "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	first.call("get_page")
	second, err := s.connect(nil, "--name", "wiki")
	if err != nil {
		t.Fatal(err)
	}
	second.call("get_page")
	if n := s.asked("/authorize"); n != 1 {
		t.Errorf("the person signed in %d times", n)
	}

	var held sync.WaitGroup
	held.Go(func() { first.call("delete_page") })
	id := ""
	for deadline := time.Now().Add(time.Minute); id == "" && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		id = regexp.MustCompile(`tg_[0-9a-z]+`).FindString(s.run("approvals", "list"))
	}
	shown := regexp.MustCompile(`(?m)^shown +(\S+)`).FindStringSubmatch(s.run("approvals", "show", id))
	if shown == nil {
		t.Fatal("the call is not held")
	}
	s.RevokeAll()
	s.run("approvals", "approve", id, "--shown", shown[1])
	held.Wait()
	if s.asked("/authorize") != 2 || s.ran.Load() != 3 {
		t.Errorf("%d sign-ins, %d calls", s.asked("/authorize"), s.ran.Load())
	}

	if out := s.run("logout", "wiki"); out != "signed out of "+s.url+"\n" {
		t.Errorf("logout: %s", out)
	}
	_, _ = first.Close(), second.Close()
	s.noSecretsIn(first.stderr.String() + second.stderr.String())
}

// noSecretsIn checks that no secret is in a text, in a file, or valid.
func (s *protectedServer) noSecretsIn(output string) {
	s.t.Helper()
	var secrets []string
	for token := range s.seen {
		secrets = append(secrets, token)
		if _, err := s.Verify(token, ""); err == nil {
			s.t.Error("a token is valid after the logout")
		}
	}
	for _, r := range s.Requests() {
		for _, name := range []string{"code", "refresh_token", "code_verifier"} {
			if value := r.Form.Get(name); value != "" {
				secrets = append(secrets, value)
			}
		}
	}
	if len(secrets) < 6 {
		s.t.Fatalf("only %d secrets", len(secrets))
	}
	check := func(where string, text []byte) {
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				s.t.Errorf("%s has a secret", where)
			}
		}
	}
	check("standard error", []byte(output))
	home, _, _ := strings.Cut(strings.Join(s.env, "\n"), "/state\n")
	home = home[strings.LastIndex(home, "=")+1:]
	err := filepath.WalkDir(home, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(file)
		check(file, text)
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

// A person can sign in at a terminal, without a browser there.
func TestLogin(t *testing.T) {
	s := newProtectedServer(t)
	s.env = append(s.env, "BROWSER=", "DISPLAY=", "WAYLAND_DISPLAY=")
	cmd := exec.Command("thoughtgate", "login", s.url)
	cmd.Env = s.env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := new(bytes.Buffer)
	cmd.Stdout = stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stderr).ReadString('\n')
	code := regexp.MustCompile(`enter the code "(.*)"`).FindStringSubmatch(line)
	if code == nil {
		t.Fatal(line)
	}
	s.ApproveDevice(code[1])
	if err := cmd.Wait(); err != nil || stdout.String() != "signed in to "+s.url+"\n" {
		t.Fatalf("%s, %v", stdout, err)
	}
	a, err := s.connect(nil)
	if err != nil {
		t.Fatal(err)
	}
	a.call("get_page")
	if got := s.run("logout", s.url); got != "signed out of "+s.url+"\n" {
		t.Error(got)
	}
}

// With a token of its own, a wrap does not sign in.
func TestOwnTokenPreventsSignIn(t *testing.T) {
	s := newProtectedServer(t)
	if _, err := s.connect([]string{"TOKEN=wrong"}, "--header", "Authorization: Bearer ${TOKEN}"); err == nil || !strings.Contains(err.Error(), "check the token") {
		t.Errorf("with a wrong token: %v", err)
	}
	a, err := s.connect([]string{"TOKEN=" + s.Sign(map[string]any{"sub": "me", "aud": s.url})}, "--header", "Authorization: Bearer ${TOKEN}")
	if err != nil {
		t.Fatal(err)
	}
	a.call("get_page")
	if n := len(s.Requests()); n != 0 {
		t.Errorf("the authorization server got %d requests", n)
	}
}

// The agent of a person who does not sign in gets the link in the error.
func TestDeniedSignIn(t *testing.T) {
	s := newProtectedServer(t)
	s.SetHooks(authserver.Hooks{Consent: func(*authserver.Grant) bool { return false }})
	if a, err := s.connect(nil); err == nil || !strings.Contains(err.Error(), "the sign-in was denied") {
		t.Errorf("%v\n%s", err, a.stderr)
	}
	out := exec.Command("thoughtgate", "logout", "docs")
	out.Env = s.env
	if text, err := out.CombinedOutput(); err == nil || !strings.Contains(string(text), "you are not signed in to any server") {
		t.Errorf("logout: %s, %v", text, err)
	}
}

// BROWSER may name a path with spaces, a program with arguments, or several programs.
func TestBrowserVariable(t *testing.T) {
	spaced := filepath.Join(t.TempDir(), "my browser")
	if err := os.WriteFile(spaced, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string][]string{
		spaced:                        {spaced},
		"no-such-browser -new-tab %s": {"no-such-browser", "-new-tab"},
		"no-such-browser:other":       {"no-such-browser"},
		"no-such-browser":             {"no-such-browser"},
		" ":                           nil,
	} {
		t.Setenv("BROWSER", value)
		if got := browserVariable(); !slices.Equal(got, want) {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// A signal ends a sign-in, and the notification that waits for it.
func TestSignalEndsSignIn(t *testing.T) {
	s := newProtectedServer(t)
	cmd := exec.Command("thoughtgate", "wrap", "--url", s.url)
	cmd.Env = slices.Concat(s.env, []string{"BROWSER=", "DISPLAY=", "WAYLAND_DISPLAY="})
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n") // the agent leaves then
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "enter the code") {
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	signalled := time.Now()
	rest, _ := io.ReadAll(stderr)
	if err := cmd.Wait(); err != nil || time.Since(signalled) > signin.DefaultPatience-5*time.Second {
		t.Errorf("the gate ended after %s: %v, %s", time.Since(signalled), err, rest)
	}
}
