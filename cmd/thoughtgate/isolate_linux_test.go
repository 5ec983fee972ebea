package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// asksocket sends a GET request over a Unix socket and prints the status: asksocket SOCKET PATH [NAME VALUE]...
func asksocket() error {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", os.Args[1])
	}}}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://gate"+os.Args[2], http.NoBody)
	if err != nil {
		return err
	}
	for i := 3; i+1 < len(os.Args); i += 2 {
		req.Header.Add(os.Args[i], os.Args[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = fmt.Println(resp.StatusCode)
	return err
}

// isolatedServer records its key with each call. The key is what agents are after.
const isolatedServer = `#!/bin/sh
echo $$ >pid
while read -r line; do
	id=$(expr "$line" : '.*"id":\([^,]*\),')
	case $line in
	*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"files","version":"1"}}}' ;;
	*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"delete_all","inputSchema":{"type":"object"}}]}}' ;;
	*'"tools/call"'*) echo "with $KEY" >>ran; echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"it ran"}]}}' ;;
	esac
done
`

// The users of the test: nobody is the person with the agents.
const (
	gateUID     = 64801
	strangerUID = 64802
)

// An isolated is a gate that runs as another user, as thoughtgate isolate sets it up, and an agent of
// the person. There is no systemd: the test starts the command of the unit.
type isolated struct {
	t                       *testing.T
	dir, bin                string
	etc, state, socket      string
	inbox, token            string
	gate                    *exec.Cmd
	log                     *output
	wrapCommand, serverFile string
}

// An output is what a program has written so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// must fails the test unless err is nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startIsolated sets up a gate and starts it.
func startIsolated(t *testing.T) *isolated {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be two other users")
	}
	g := &isolated{t: t, dir: t.TempDir(), log: new(output)}
	for _, d := range []string{filepath.Dir(g.dir), g.dir} {
		must(t, os.Chmod(d, 0o755))
	}
	g.bin = filepath.Join(g.dir, "bin")
	g.install("thoughtgate", "asksocket")
	g.setUp()
	g.start()
	return g
}

// install copies this program, so that all users can run it under these names.
func (g *isolated) install(names ...string) {
	self, err := os.Executable()
	must(g.t, err)
	text, err := os.ReadFile(self)
	must(g.t, err)
	must(g.t, os.Mkdir(g.bin, 0o755))
	testenv.WriteProgram(g.t, filepath.Join(g.bin, names[0]), string(text))
	for _, name := range names[1:] {
		must(g.t, os.Link(filepath.Join(g.bin, names[0]), filepath.Join(g.bin, name)))
	}
}

// setUp runs thoughtgate isolate, and does what it does only with systemd: it gives the files to the
// users.
func (g *isolated) setUp() {
	root := filepath.Join(g.dir, "root")
	person, err := user.Lookup("nobody")
	must(g.t, err)
	client := filepath.Join(root, person.HomeDir, ".cursor/mcp.json")
	must(g.t, os.MkdirAll(filepath.Dir(client), 0o755))
	g.serverFile = filepath.Join(g.dir, "server")
	testenv.WriteProgram(g.t, g.serverFile, isolatedServer)
	must(g.t, os.WriteFile(client, fmt.Appendf(nil, `{"mcpServers": {"files": {"command": %q, "env": {"KEY": "s3cret"}}}}`, g.serverFile), 0o600))
	out, err := g.command(0, filepath.Join(g.bin, "thoughtgate"), "isolate", "--root", root, "--user", "nobody", "--inbox", "127.0.0.1:0", "--yes").Output()
	must(g.t, err)
	g.token = regexp.MustCompile(`(?m)^tgo_\w+$`).FindString(string(out))
	g.etc, g.state, g.socket = filepath.Join(root, "etc/thoughtgate-nobody"), filepath.Join(root, "state"), filepath.Join(root, "run/agents.sock")
	for _, d := range []string{g.state, filepath.Dir(g.socket)} {
		must(g.t, os.Mkdir(d, 0o755))
		must(g.t, os.Chown(d, gateUID, gateUID))
	}
	must(g.t, os.Chmod(g.state, 0o700))
	must(g.t, os.Chown(g.etc, 0, gateUID))
	must(g.t, os.Chmod(filepath.Dir(g.etc), 0o755))
	places := strings.NewReplacer("/var/lib/thoughtgate-nobody", g.state, "/run/thoughtgate-nobody/agents.sock", g.socket, "  url: http://localhost:0\n", "")
	for _, name := range []string{"thoughtgate.yaml", "wrap.cedar"} {
		file := filepath.Join(g.etc, name)
		text, err := os.ReadFile(file)
		must(g.t, err)
		must(g.t, os.WriteFile(file, []byte(places.Replace(string(text))), 0o640))
		must(g.t, os.Chown(file, 0, gateUID))
	}
	changed, err := os.ReadFile(client)
	must(g.t, err)
	var file struct {
		Servers map[string]struct {
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
		} `json:"mcpServers"`
	}
	must(g.t, json.Unmarshal(changed, &file))
	server := file.Servers["files"]
	if server.Env["KEY"] != "" {
		g.t.Errorf("the client's file has the key: %s", changed)
	}
	g.wrapCommand = places.Replace(server.Command + " " + strings.Join(server.Args, " "))
}

// start runs the command of the unit as the user of the gate.
func (g *isolated) start() {
	unit, err := os.ReadFile(filepath.Join(g.dir, "root/etc/systemd/system/thoughtgate-nobody.service"))
	must(g.t, err)
	_, line, _ := strings.Cut(string(unit), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(strings.ReplaceAll(line, "/etc/thoughtgate-nobody", g.etc))
	g.gate = g.command(gateUID, words[0], words[1:]...)
	g.gate.Dir = g.state
	for _, m := range regexp.MustCompile(`(?m)^EnvironmentFile=/etc/thoughtgate-nobody(.*)$`).FindAllStringSubmatch(string(unit), -1) {
		text, err := os.ReadFile(g.etc + m[1]) // as systemd does, which is root
		must(g.t, err)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			g.gate.Env = append(g.gate.Env, name+"="+strings.Trim(value, `"`))
		}
	}
	g.gate.Stderr = g.log
	must(g.t, g.gate.Start())
	g.t.Cleanup(func() {
		_ = g.gate.Process.Signal(syscall.SIGTERM)
		_ = g.gate.Wait()
		if g.t.Failed() {
			g.t.Logf("the gate:\n%s", g.log)
		}
	})
	listening := regexp.MustCompile(`msg=listening .*operators=(\S+)`)
	soon(g.t, "the gate listens", func() bool { return listening.MatchString(g.log.String()) })
	g.inbox = "http://" + listening.FindStringSubmatch(g.log.String())[1]
}

// command returns a command of a user.
func (g *isolated) command(uid uint32, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(g.t.Context()), program, args...) // the test ends it
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + g.bin + ":/usr/local/bin:/usr/bin:/bin", "GORACE=atexit_sleep_ms=0", "THOUGHTGATE_OPERATORS_URL=" + g.inbox}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// say runs a command line as a user, and returns its output and whether it succeeded.
func (g *isolated) say(uid uint32, line string) (string, bool) {
	out, err := g.command(uid, "sh", "-c", line).CombinedOutput()
	return string(out), err == nil
}

// decide runs a command of the operator, who has the token.
func (g *isolated) decide(args ...string) string {
	g.t.Helper()
	cmd := g.command(strangerUID, "thoughtgate", args...) // whoever has the token decides
	cmd.Path = filepath.Join(g.bin, "thoughtgate")
	cmd.Env = append(cmd.Env, "THOUGHTGATE_OPERATOR_TOKEN="+g.token)
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return string(out)
}

// held returns the calls that wait.
func (g *isolated) held() []shownCall {
	var list struct {
		Approvals []shownCall `json:"approvals"`
	}
	must(g.t, json.Unmarshal([]byte(g.decide("approvals", "list", "--json")), &list))
	return list.Approvals
}

// startAgent starts the thin wrap of the client's file as the person, whose call is then held. It
// returns the lines that the wrap writes.
func (g *isolated) startAgent() *bufio.Reader {
	words := strings.Fields(g.wrapCommand)
	cmd := g.command(testenv.Nobody, words[0], words[1:]...)
	in, err := cmd.StdinPipe()
	must(g.t, err)
	out, err := cmd.StdoutPipe()
	must(g.t, err)
	cmd.Stderr = g.log
	must(g.t, cmd.Start())
	g.t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	_, err = io.WriteString(in, hostLines)
	must(g.t, err)
	soon(g.t, "a call is held", func() bool { return len(g.held()) == 1 })
	return bufio.NewReader(out)
}

// approveInBrowser signs in with the token, and sends the form of the call's page.
func (g *isolated) approveInBrowser(id string) {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	must(g.t, err)
	browser := http.Client{Jar: jar}
	send := func(method, path string, form url.Values) string {
		req, err := http.NewRequestWithContext(g.t.Context(), method, g.inbox+path, strings.NewReader(form.Encode()))
		must(g.t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		resp, err := browser.Do(req)
		must(g.t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(g.t, err)
		return string(text)
	}
	send(http.MethodPost, "/login", url.Values{"token": {g.token}})
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden"[^>]* name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(send(http.MethodGet, "/approvals/"+id, nil), -1) {
		form.Set(m[1], m[2])
	}
	send(http.MethodPost, "/approvals/"+id+"/approve", form)
}

// refusal matches what a program writes if the system or the gate refuses.
var refusal = regexp.MustCompile(`(?i)permission denied|not permitted|no token|does not accept this token|no shared inbox`)

// A program of the person's account cannot do what only the gate and the operator may do, and the
// call that waits meanwhile runs once, when the operator has approved it.
func TestIsolatedFromAgent(t *testing.T) {
	t.Parallel()
	g := startIsolated(t)
	answers := g.startAgent()
	call := g.held()[0]
	gate := strconv.Itoa(g.gate.Process.Pid)
	server := strconv.Itoa(pidIn(t, filepath.Join(g.state, "pid")))
	for name, line := range map[string]string{
		"read the store":                 "cat " + g.state + "/thoughtgate.db",
		"list the store":                 "ls " + g.state,
		"read the configuration":         "cat " + g.etc + "/thoughtgate.yaml",
		"read the hash of the token":     "grep -r sha256 " + g.etc,
		"read the undo record":           "cat " + g.etc + "/undo.json",
		"read the gate's environment":    "cat /proc/" + gate + "/environ",
		"read the gate's memory":         "cat /proc/" + gate + "/maps",
		"open the gate's files":          "ls /proc/" + gate + "/fd/",
		"read the server's environment":  "cat /proc/" + server + "/environ",
		"read the server's memory":       "cat /proc/" + server + "/maps",
		"edit the store":                 "echo >>" + g.state + "/thoughtgate.db",
		"edit the configuration":         "echo >>" + g.etc + "/thoughtgate.yaml",
		"edit the policy":                "echo >>" + g.etc + "/wrap.cedar",
		"replace the configuration":      "mv " + g.etc + " " + g.etc + ".old",
		"replace the socket":             "rm -f " + g.socket + " && : >" + g.socket,
		"write as the server does":       "echo >>" + g.state + "/ran",
		"start the gate's configuration": "thoughtgate serve --config " + g.etc + "/thoughtgate.yaml",
		"end the gate":                   "kill -9 " + gate,
		"reload the gate":                "kill -HUP " + gate,
		"approve on the command line":    "thoughtgate approvals approve " + call.ID + " --shown 0123456789abcdef",
		"guess the token":                "THOUGHTGATE_OPERATOR_TOKEN=tgo_" + strings.Repeat("A", 26) + " thoughtgate approvals list",
		"read the audit log":             "thoughtgate audit list",
		"find a desk to decide at":       "HOME=" + g.dir + " thoughtgate desk link",
	} {
		if out, ok := g.say(testenv.Nobody, line); ok || !refusal.MatchString(out) || strings.Contains(out, "s3cret") {
			t.Errorf("%s: %s, success %t: %s", name, line, ok, out)
		}
	}
	// Nor can a server that an agent leads to these files.
	for _, file := range []string{g.etc + "/environment", g.etc + "/store.key", g.etc + "/undo.json", "/proc/" + gate + "/environ", "/proc/" + gate + "/mem"} {
		if out, ok := g.say(gateUID, "cat "+file); ok || !refusal.MatchString(out) {
			t.Errorf("a server reads %s: %s", file, out)
		}
	}
	if out, _ := g.say(gateUID, "cat "+g.etc+"/thoughtgate.yaml "+g.state+"/*"); strings.Contains(out, "s3cret") || strings.Contains(out, g.token) || !strings.Contains(out, "SECRET_1") {
		t.Errorf("the configuration or the store has secrets: %s", out)
	}
	// The agent has no key to start the server with.
	if out, _ := g.say(testenv.Nobody, "cd /; echo '{\"id\":1,\"method\":\"tools/call\"}' | "+g.serverFile+"; echo key=$KEY"); !strings.Contains(out, "key=\n") {
		t.Errorf("the server, started by the agent: %s", out)
	}
	// The socket has no operator routes, and no header changes who the agent is.
	for _, path := range []string{"/api/approvals", "/approvals/" + call.ID, "/login", "/metrics"} {
		if out, _ := g.say(testenv.Nobody, "asksocket "+g.socket+" "+path+" Authorization 'Bearer "+g.token+"'"); out != "404\n" {
			t.Errorf("GET %s at the socket: %s", path, out)
		}
	}
	g.say(testenv.Nobody, "asksocket "+g.socket+" /mcp/files X-Forwarded-User root X-Remote-User local:root Forwarded for=root")
	if out, ok := g.say(strangerUID, "asksocket "+g.socket+" /mcp/files X-Remote-User nobody"); ok {
		t.Errorf("another user uses the socket: %s", out)
	}
	if log := g.log.String(); strings.Contains(log, "principal=local:root") || strings.Contains(log, "principal=root") {
		t.Errorf("an agent pretends to be another user:\n%s", log)
	}
	for _, path := range []string{"/api/approvals", "/api/audit"} {
		resp, err := http.Get(g.inbox + path)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s without signing in: %d", path, resp.StatusCode)
		}
	}
	for _, want := range []string{`refused a connection to the agents' socket.*opened by user 64802`, `operator not authenticated`} {
		if !regexp.MustCompile(want).MatchString(g.log.String()) {
			t.Errorf("the log of the gate does not match %s", want)
		}
	}
	if now := g.held(); len(now) != 1 || now[0].ID != call.ID || now[0].State != call.State {
		t.Fatalf("after the attacks: %v", now)
	}
	if _, err := os.Stat(filepath.Join(g.state, "ran")); err == nil {
		t.Fatal("the call has run")
	}
	g.approveInBrowser(call.ID)
	for answer := ""; !strings.Contains(answer, "it ran"); {
		var err error
		if answer, err = answers.ReadString('\n'); err != nil {
			t.Fatalf("no answer: %v", err)
		}
	}
	ran, err := os.ReadFile(filepath.Join(g.state, "ran"))
	if string(ran) != "with s3cret\n" || err != nil {
		t.Errorf("the call ran: %q, %v", ran, err)
	}
	// The call belongs to the user of the socket, and the person has approved it in a session.
	log := g.decide("audit", "export")
	for _, want := range []string{`"requester":"local:nobody"`, `"approver":"nobody"`, `"via":{"kind":"inbox"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log has no %s:\n%s", want, log)
		}
	}
}
