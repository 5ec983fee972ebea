package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// systemPrograms are the programs of tests that only this system has.
var systemPrograms = map[string]func(){"attty": failing(attty), "asksocket": failing(asksocket)}

// attty runs a program in a session of its own at a new pseudo-terminal, whose input is the input
// of attty.
func attty() error {
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(main.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	number, err := unix.IoctlGetInt(int(main.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := tty.Close(); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(main, os.Stdin) }()
	_, _ = io.Copy(os.Stdout, main) // until the program has ended
	return cmd.Wait()
}

// A fakeHost is an agent host: a shell that has started a wrap, and runs further commands.
type fakeHost struct {
	t    *testing.T
	dir  string
	env  []string
	in   io.Writer
	next int

	mu     sync.Mutex
	stderr bytes.Buffer
}

// hostScript starts a wrap, sends the lines of a file to it, and then runs the commands of its input.
const hostScript = `
mkfifo in
thoughtgate wrap $WRAP_FLAGS --name files -- sh server.sh <in >out 2>err &
exec 9>in
cat lines >&9
while read -r line; do eval "$line"; done
exec 9>&-
wait
`

const serverScript = `
while read -r line; do
	case $line in
	*'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"files","version":"1"}}}' ;;
	*'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'"$(expr "$line" : '.*"id":\([^,]*\),')"',"result":{"content":[{"type":"text","text":"it ran"}]}}' ;;
	*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$(expr "$line" : '.*"id":\([^,]*\),')"',"result":{"tools":[{"name":"delete_all","inputSchema":{"type":"object"}}]}}' ;;
	esac
done
`

const hostLines = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete_all","arguments":{}}}
`

// startHost starts an agent host whose call is held.
func startHost(t *testing.T, config string) *fakeHost {
	t.Helper()
	h := &fakeHost{t: t, dir: t.TempDir()}
	h.env = append(os.Environ(), "XDG_STATE_HOME=", "THOUGHTGATE_STATE_DIR="+h.dir, "GORACE=atexit_sleep_ms=0", "WRAP_FLAGS=")
	if config != "" {
		h.env = append(h.env, "WRAP_FLAGS=-c wrap.yaml")
	}
	for name, text := range map[string]string{"host.sh": hostScript, "server.sh": serverScript, "lines": hostLines, "wrap.yaml": config} {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := h.command("sh", "host.sh")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in = in
	cmd.Stderr = h
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends the script, and so the input of the wrap
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("errors of the host: %s\nof the gate: %s", h.stderr.String(), h.file("err"))
		}
	})
	soon(t, "a call is held", func() bool { return h.id() != "" })
	return h
}

// Write records what the host writes to its standard error.
func (h *fakeHost) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stderr.Write(p)
}

func (h *fakeHost) file(name string) string {
	text, _ := os.ReadFile(filepath.Join(h.dir, name))
	return string(text)
}

// command returns a command in the environment of the host, which the host has not started.
func (h *fakeHost) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(h.t.Context()), program, args...) // the host ends by itself
	cmd.Dir, cmd.Env = h.dir, h.env
	return cmd
}

// say runs a command line that the host has not started, and returns its output.
func (h *fakeHost) say(line string) string {
	out, _ := h.command("sh", "-c", line).CombinedOutput()
	return string(out)
}

// ask lets the host run a command line, and returns its output.
func (h *fakeHost) ask(line string) string {
	h.t.Helper()
	h.next++
	out := fmt.Sprintf("answer%d", h.next)
	if _, err := fmt.Fprintf(h.in, "( %s ) >%s.new 2>&1; mv %[2]s.new %[2]s\n", line, out); err != nil {
		h.t.Fatal(err)
	}
	soon(h.t, "the host has run "+line, func() bool {
		_, err := os.Stat(filepath.Join(h.dir, out))
		return err == nil
	})
	return h.file(out)
}

// A shownCall is a held call as the command line shows it.
type shownCall struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	ShownDigest string `json:"shownDigest"`
}

// id returns the id of the held call, or "" if there is none.
func (h *fakeHost) id() string {
	var list struct {
		Approvals []shownCall `json:"approvals"`
	}
	out, err := h.command("thoughtgate", "approvals", "list", "--json").Output()
	if err != nil || json.Unmarshal(out, &list) != nil || len(list.Approvals) == 0 {
		return ""
	}
	return list.Approvals[0].ID
}

// pending returns the held call.
func (h *fakeHost) pending() (a shownCall) {
	h.t.Helper()
	out, err := h.command("thoughtgate", "approvals", "show", "--json", h.id()).Output()
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil || a.ShownDigest == "" {
		h.t.Fatalf("%v: %s", err, out)
	}
	return a
}

// approval returns the command that approves the held call.
func (h *fakeHost) approval() string {
	a := h.pending()
	return "thoughtgate approvals approve " + a.ID + " --shown " + a.ShownDigest
}

// overHTTP returns a command that reads the token and approves the call without the command line.
func (h *fakeHost) overHTTP() string {
	a := h.pending()
	out, err := h.command("thoughtgate", "desk", "link").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	url, _, _ := strings.Cut(string(out), "/login")
	return `curl -s -H "Authorization: Bearer $(cat desk/sign-in)" -H "Content-Type: application/json" -d '{"shownDigest":"` + a.ShownDigest + `"}' ` + url + "/api/approvals/" + a.ID + "/approve"
}

// withoutWaiting returns a command that sends an approval and does not wait for the answer.
func (h *fakeHost) withoutWaiting() string {
	a := h.pending()
	body := `{"shownDigest":"` + a.ShownDigest + `"}`
	address := strings.TrimSpace(h.file("desk/address"))
	request := fmt.Sprintf("POST /api/approvals/%s/approve HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		a.ID, address, strings.TrimSpace(h.file("desk/sign-in")), len(body), body)
	if err := os.WriteFile(filepath.Join(h.dir, "request"), []byte(request), 0o600); err != nil {
		h.t.Fatal(err)
	}
	host, port, _ := strings.Cut(address, ":")
	return "bash -c 'cat request >/dev/tcp/" + host + "/" + port + "'"
}

// last returns the last entry of the audit log with a decision.
func (h *fakeHost) last(flags ...string) (last auditlog.Entry) {
	h.t.Helper()
	out, err := h.command("thoughtgate", append([]string{"audit", "export"}, flags...)...).Output()
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var e auditlog.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			h.t.Fatal(err)
		}
		if e.Via.Kind != "" {
			last = e
		}
	}
	return last
}

// ran reports whether the held call has run.
func (h *fakeHost) ran() bool { return strings.Contains(h.file("out"), "it ran") }

const agentsOwn = `version: 1
default: approve
workflows: { default: { agent_approval: true } }
`

// An agent with a shell cannot approve its own call with the token of its user, whichever way it
// takes, unless it leaves the tree of its processes.
func TestDecisionOfAgent(t *testing.T) {
	t.Parallel()
	h := startHost(t, "")
	for name, line := range map[string]string{
		"command line":         h.approval(),
		"in the background":    h.approval() + " & wait",
		"in a session":         "setsid " + h.approval(),
		"at a terminal":        "echo yes | attty thoughtgate approvals approve " + h.id(),
		"over HTTP":            h.overHTTP(),
		"token in a variable":  "THOUGHTGATE_OPERATOR_TOKEN=$(cat desk/sign-in) THOUGHTGATE_OPERATORS_URL=http://$(cat desk/address) " + h.approval(),
		"under the gate's eye": "exec " + h.approval(),
	} {
		if out := h.ask(line); !strings.Contains(out, "an agent cannot approve") {
			t.Errorf("%s: %s", name, out)
		}
		e := h.last("--suspicious")
		if e.Step != "refused" || e.Outcome != "decided_by_agent" || e.Approver != "operator" || e.Via.FromAgent != "yes" || e.Via.Login != "token" {
			t.Errorf("%s: the audit log has %+v", name, e)
		}
		if e.Via.PID == 0 || e.Via.Program == "" || e.Via.User == "" || (e.Via.Terminal != "") != (name == "at a terminal") {
			t.Errorf("%s: the decision came via %+v", name, e.Via)
		}
	}
	h.ask(h.withoutWaiting())
	if state := h.pending().State; state != "input_required" || h.ran() {
		t.Errorf("the call is %q; it ran: %t", state, h.ran())
	}
	if out := h.ask("thoughtgate approvals reject " + h.id()); strings.Contains(out, "cannot") {
		t.Errorf("the rejection: %s", out)
	}
	if e := h.last("--suspicious"); e.Outcome != "reject" || e.Via.FromAgent != "yes" {
		t.Errorf("the audit log has %+v", e)
	}
}

// A person at another terminal can approve. So can a program of which the gate does not know where
// it came from, such as one that has left the processes of the agent: it is listed as suspicious.
func TestDecisionOfOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		approve   func(*fakeHost) string
		from      string
		terminal  bool
		suspected bool
	}{
		"at a terminal":   {func(h *fakeHost) string { return h.say("echo yes | attty thoughtgate approvals approve " + h.id()) }, "no", true, false},
		"from a script":   {func(h *fakeHost) string { return h.say(h.approval()) }, "unknown", false, true},
		"out of the tree": {func(h *fakeHost) string { return h.ask("( setsid -f " + h.approval() + " )") }, "unknown", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, "")
			out := tt.approve(h)
			soon(t, "the call has run", func() bool { return h.ran() || strings.Contains(out, "cannot") })
			e := h.last()
			if e.Outcome != "approve" || string(e.Via.FromAgent) != tt.from || e.Via.Kind != "command_line" || e.Via.PID == 0 || (e.Via.Terminal != "") != tt.terminal {
				t.Errorf("%s\nthe audit log has %+v", out, e)
			}
			if listed := h.last("--suspicious").Seq != 0; listed != tt.suspected {
				t.Errorf("listed as suspicious: %t", listed)
			}
		})
	}
}

// A workflow can allow agents to approve.
func TestAgentApprovalIsASetting(t *testing.T) {
	t.Parallel()
	h := startHost(t, agentsOwn)
	if out := h.ask(h.approval()); strings.Contains(out, "cannot") {
		t.Error(out)
	}
	soon(t, "the call has run", h.ran)
	if e := h.last("--suspicious"); e.Outcome != "approve" || e.Via.FromAgent != "yes" {
		t.Errorf("the audit log has %+v", e)
	}
}
