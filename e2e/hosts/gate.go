package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	startLimit = time.Minute                           // for the gate to listen
	stopLimit  = 10 * time.Second                      // for a program to end, before it is killed
	token      = "hosts-rig-operator-token-0123456789" // of the gate of one run
)

// A gateProcess is a running gate.
type gateProcess struct {
	agents, operators string // URLs

	cancel context.CancelFunc
	done   chan struct{}
	log    *lineLog
}

// buildGate builds the gate from this repository.
func buildGate(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "thoughtgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", file, "github.com/thoughtgate/thoughtgate-go/cmd/thoughtgate")
	cmd.WaitDelay = stopLimit
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
}

// gateConfig returns a user's typical configuration of the gate, with the default settings of
// waiting.
func gateConfig(urls []string, s scenario) string {
	upstreams := fmt.Sprintf("upstreams: [{name: files, url: %q}]", urls[0])
	if len(urls) > 1 {
		upstreams = fmt.Sprintf("upstreams: [{name: notes, url: %q}, {name: files, url: %q}, {name: crm, url: %q}]\n", urls[0], urls[1], urls[2]) +
			"endpoints: [{path: /mcp, servers: [{upstream: notes}, {upstream: files}, {upstream: crm}]}]"
	}
	return fmt.Sprintf(`version: 1
listen: 127.0.0.1:0
operators: {listen: "127.0.0.1:0", token: %s}
%s
store: "memory:"
visibility: show
rules: [{match: %s, action: %s, reason: %s}]
default: forward
workflows: {default: {timeout: %s}}
`, token, upstreams, toolName, s.action, reason, s.expiry)
}

// startGate starts the program with a configuration and waits until it listens.
func startGate(ctx context.Context, program, dir, config string) (*gateProcess, error) {
	file := filepath.Join(dir, "gate.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "gate.log"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &gateProcess{cancel: cancel, done: make(chan struct{}), log: &lineLog{file: log, listening: make(chan addresses, 1)}}
	cmd := exec.CommandContext(ctx, program, "serve", "--config", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	cmd.Stdout, cmd.Stderr = g.log, g.log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(g.done)
		_ = cmd.Wait() // the log explains an unexpected end
	}()
	if err := g.await(ctx); err != nil {
		g.stop()
		return nil, fmt.Errorf("%w, see %s", err, log.Name())
	}
	return g, nil
}

func (g *gateProcess) await(ctx context.Context) error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case a := <-g.log.listening:
		g.agents, g.operators = "http://"+a.Agents, "http://"+a.Operators
		return nil
	case <-g.done:
		return fmt.Errorf("the gate ended at once")
	case <-limit.C:
		return fmt.Errorf("the gate does not listen after %s", startLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the gate and waits for it.
func (g *gateProcess) stop() {
	g.cancel()
	<-g.done
	_ = g.log.file.Close() // all output was written
}

// addresses are the addresses that a gate logs when it listens.
type addresses struct {
	Message   string `json:"msg"`
	Agents    string `json:"agents"`
	Operators string `json:"operators"`
}

// A lineLog writes the gate's log to a file, and finds its addresses there.
type lineLog struct {
	file      *os.File
	listening chan addresses

	mu   sync.Mutex
	rest []byte // an incomplete line
}

// Write implements [io.Writer].
func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			break
		}
		l.rest = rest
		var a addresses
		if json.Unmarshal(line, &a) == nil && a.Message == "listening" {
			l.listening <- a
		}
	}
	return l.file.Write(p)
}
