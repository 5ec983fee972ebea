package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// For a host that starts its servers itself, this program takes the part of the gate: it
// starts the gate (thoughtgate wrap), forwards standard input and output, and records both.
// The gate also starts this program as the server.

// Files of a run with a local server, in the run's directory.
const (
	wireFile  = "wire.log"
	runsFile  = "runs"       // one line for each run of the tool
	gatePID   = "gate.pid"   // of the gate that was started last
	serverPID = "server.pid" // of the server that was started last
	fromHost  = ">"
	fromGate  = "<"
)

// wrapConfig returns the configuration of thoughtgate wrap.
func wrapConfig(s scenario) string {
	return fmt.Sprintf(`version: 1
store: 'desk:'
visibility: show
rules: [{match: %s, action: %s, reason: %s}]
default: forward
workflows: {default: {timeout: %s}}
`, toolName, s.action, reason, s.expiry)
}

// wrapCommand returns the command that the host starts.
func (c *cell) wrapCommand() ([]string, error) {
	self, err := os.Executable()
	return []string{
		self, "-relay", c.dir, "--",
		c.gate, "wrap", "-c", filepath.Join(c.dir, "gate.yaml"), "--name", "files", "--", self, "-server", c.dir,
	}, err
}

// openWrap starts the shared inbox, as a user does who decides while no gate runs.
func (c *cell) openWrap(ctx context.Context, s *site) (operators, secret string, err error) {
	if err := os.WriteFile(filepath.Join(c.dir, "gate.yaml"), []byte(wrapConfig(c.scenario)), 0o600); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(c.home(), 0o750); err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, c.gate, "desk")
	cmd.Env = []string{"HOME=" + c.home(), "PATH=/usr/bin:/bin"}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	s.closers = append(s.closers, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // after SIGTERM
	})
	s.traffic = func() (traffic, error) { return readTraffic(filepath.Join(c.dir, wireFile)) }
	s.runs = func() (int, error) { return countLines(filepath.Join(c.dir, runsFile)) }
	return c.awaitDesk(ctx)
}

// awaitDesk waits until the desk has an address and the secret of a person.
func (c *cell) awaitDesk(ctx context.Context) (operators, secret string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	desk := filepath.Join(c.home(), ".local", "state", "thoughtgate", "desk")
	for {
		address, err := os.ReadFile(filepath.Join(desk, "address"))
		secret, tokenErr := os.ReadFile(filepath.Join(desk, "sign-in"))
		if err = errors.Join(err, tokenErr); err == nil && len(address) > 0 && len(secret) > 0 {
			return "http://" + string(bytes.TrimSpace(address)), string(bytes.TrimSpace(secret)), nil
		}
		if ctx.Err() != nil {
			return "", "", fmt.Errorf("the desk does not start: %w", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// strike kills the process that the scenario names, at the scenario's time.
func (c *cell) strike(ctx context.Context, s *site) {
	if s.approver.wait(ctx, strikeAfter) != nil {
		return
	}
	if err := kill(filepath.Join(c.dir, c.scenario.strikes)); err != nil {
		say("%s %s: killing: %v\n", c.host.name, c.scenario.name, err)
	}
}

// kill kills the process whose id is in a file.
func kill(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// relay runs the command, forwards its lines and those of the host, and writes both to a file.
func relay(dir string, command []string, now func() time.Time) error {
	file, err := os.OpenFile(filepath.Join(dir, wireFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()                              // lost output shows in the record
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the rig supplies the command, and passSignals ends it
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, gatePID), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	passSignals(cmd.Process)
	w := &wire{file: file, now: now}
	go func() { // ends with the process: reading standard input cannot be interrupted
		w.copy(in, os.Stdin, fromHost)
		_ = in.Close() // it may have ended
	}()
	w.copy(os.Stdout, out, fromGate)
	return cmd.Wait()
}

// passSignals forwards the signals with which a host ends its servers, until this program
// ends.
func passSignals(to *os.Process) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		for s := range signals {
			_ = to.Signal(s) // it may have ended
		}
	}()
}

// A wire records the lines between a host and a gate on a pipe.
type wire struct {
	now  func() time.Time
	mu   sync.Mutex
	file *os.File
}

// copy forwards lines and records them.
func (w *wire) copy(to io.Writer, from io.Reader, who string) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			w.mu.Lock()
			_, _ = fmt.Fprintf(w.file, "%s %s %s\n", w.now().UTC().Format("15:04:05.00"), who, bytes.TrimSpace(line)) // a log
			w.mu.Unlock()
			if _, err := to.Write(line); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readTraffic counts the messages of a host on a pipe.
func readTraffic(file string) (traffic, error) {
	var t traffic
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(parts) < 3 || parts[1] != fromHost {
			continue
		}
		var m message
		_ = json.Unmarshal([]byte(parts[2]), &m) // lines that are not messages are ignored
		t.message(m)
	}
	return t, err
}

func countLines(file string) (int, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return bytes.Count(text, []byte("\n")), err
}

// serveTool is the server: it has one tool, and writes a line for each run.
func serveTool(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, serverPID), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	runs, err := os.OpenFile(filepath.Join(dir, runsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer runs.Close() // each line is written immediately
	type input struct {
		Path string `json:"path"`
	}
	destructive := true
	server := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{
		Name: toolName, Description: "Delete a file.", Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		if _, err := fmt.Fprintln(runs, in.Path); err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "deleted " + in.Path}}}, nil, nil
	})
	return server.Run(ctx, &mcp.StdioTransport{})
}
