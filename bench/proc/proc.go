// Package proc runs the measured programs as child processes and reads their CPU time, memory
// and allocations from the kernel and from their metrics. The kernel's values need Linux.
package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 10 * time.Second
	connectPoll  = 20 * time.Millisecond
	tailLines    = 10
)

// A Command is a program to run.
type Command struct {
	Name string // for messages
	Path string
	Args []string
	Dir  string

	Agents string // the address of a program that does not log it
}

// A Process is a running program that listens on two ports.
type Process struct {
	Agents    string // address of the MCP endpoint
	Operators string // address of the metrics; empty if it has none

	name   string
	cmd    *exec.Cmd
	stderr *stderr
	cancel context.CancelFunc
	read   sync.WaitGroup
}

// Start runs c, and returns when it listens. The program must log its address on standard
// error, in a line of JSON that [Listening] understands, or listen at the address in c. It
// ends with [Process.Stop], or when ctx ends.
func Start(ctx context.Context, c Command) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // variables with settings that are not the defaults
		return strings.HasPrefix(v, "THOUGHTGATE_") || strings.HasPrefix(v, "GOGC=")
	})
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTimeout
	p := &Process{name: c.Name, cmd: cmd, cancel: cancel, Agents: c.Agents}
	if err := p.start(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

func (p *Process) start(ctx context.Context) error {
	if _, err := p.cmd.StdinPipe(); err != nil { // open until Stop: its end also ends a peer
		return err
	}
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.stderr = &stderr{listening: make(chan [2]string, 1)}
	p.read.Go(func() { p.stderr.read(pipe) })

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.await(ctx); err != nil {
		return fmt.Errorf("%w; it said:\n%s%w", err, p.Log(), p.Stop())
	}
	return nil
}

// await waits until the process listens.
func (p *Process) await(ctx context.Context) error {
	poll := time.NewTicker(connectPoll)
	defer poll.Stop()
	for {
		select {
		case addr, ok := <-p.stderr.listening:
			if !ok {
				return errors.New("it ended")
			}
			p.Agents, p.Operators = addr[0], addr[1]
			return nil
		case <-ctx.Done():
			return errors.New("it does not listen")
		case <-poll.C:
			if p.Agents != "" && answers(ctx, p.Agents) {
				return nil
			}
		}
	}
}

// answers reports whether a server listens on addr.
func answers(ctx context.Context, addr string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	return err == nil && conn.Close() == nil
}

// Stop ends the process and waits for it. An end by Stop's signal is not an error.
func (p *Process) Stop() error {
	p.cancel()
	p.read.Wait()
	err := p.cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Log returns the last lines that the process wrote to its standard error.
func (p *Process) Log() string { return p.stderr.last() }

// stderr reads the output of a program: the line with its ports, and the last lines, for error
// messages.
type stderr struct {
	listening chan [2]string // closed when the output has ended

	mu   sync.Mutex
	tail []string
}

func (s *stderr) read(r io.Reader) {
	defer close(s.listening)
	found := false
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if agents, operators, ok := Listening([]byte(line)); ok && !found {
			s.listening <- [2]string{agents, operators}
			found = true
		}
		s.keep(line)
		if err != nil {
			return // the program has ended, or has closed its standard error
		}
	}
}

func (s *stderr) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, line)
	if len(s.tail) > tailLines {
		s.tail = s.tail[1:]
	}
}

func (s *stderr) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, "")
}

// Listening returns the addresses in a line of a log, if the line reports that the program
// listens.
func Listening(line []byte) (agents, operators string, ok bool) {
	var record struct {
		Message   string `json:"msg"`
		Agents    string `json:"agents"`
		Operators string `json:"operators"`
	}
	if err := json.Unmarshal(line, &record); err != nil || record.Message != "listening" {
		return "", "", false
	}
	return record.Agents, record.Operators, true
}
