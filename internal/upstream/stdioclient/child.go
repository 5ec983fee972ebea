package stdioclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A child is one run of the server's program.
type child struct {
	cmd         *exec.Cmd
	descendants *descendants        // processes that the program has started
	in          *os.File            // the server's standard input
	out         *os.File            // its standard output
	lines       *jsonrpc.LineReader // of out
	writing     chan struct{}       // holds a token during a write
	exited      chan struct{}       // closed when the process has ended
	status      error               // exit status; valid once exited is closed
	ended       chan struct{}       // closed when its output was read and its requests have failed
	closing     chan struct{}       // closed when the client ends the server
	stopped     bool                // no more writes; guarded by writing
	passed      atomic.Int64        // incremented before and after a line is passed on
}

// startChild starts the program. One goroutine, locked to its thread, starts the program and waits
// for it: on Linux the kernel ends the program if that thread ends.
func startChild(cfg *Config) (*child, error) {
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	c := &child{
		descendants: newDescendants(), in: inWrite, out: outRead, lines: jsonrpc.NewLineReader(outRead, cfg.MaxLine),
		writing: make(chan struct{}, 1), exited: make(chan struct{}), ended: make(chan struct{}), closing: make(chan struct{}),
	}
	c.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...) //nolint:noctx // the user names the program; Client.Close ends it
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir, c.cmd.Env = inRead, outWrite, cfg.Stderr, cfg.Dir, cfg.Env
	if c.descendants.mark != "" {
		c.cmd.Env = append(c.cmd.Environ(), c.descendants.mark)
	}
	c.cmd.WaitDelay = time.Second // for the goroutine that copies Stderr
	separate(c.cmd)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.status = c.cmd.Wait()
			close(c.exited)
		}
	}()
	err = <-started
	_, _ = inRead.Close(), outWrite.Close()
	if err != nil {
		_, _ = inWrite.Close(), outRead.Close()
		return nil, err
	}
	return c, nil
}

// errInterrupted reports a message of which only a part was written.
var errInterrupted = errors.New("the message was not written as a whole")

// errEnded reports a message that was not written because the server has ended.
var errEnded = errors.New("the server has ended")

// stopWriting prevents further writes and waits for the current one.
func (c *child) stopWriting() {
	_ = c.in.Close()
	c.writing <- struct{}{}
	c.stopped = true
	<-c.writing
}

// A message is written to the server as one line.
type message struct {
	text   []byte
	begin  func() error  // called before the first byte is written; may be nil
	cancel func() []byte // returns lines to write after a message whose sender has given up; may be nil
}

// write writes a message. It stops when ctx is done or the server has ended. The error is
// errInterrupted if a part of the line was written, and errEnded if m.begin was not called because
// the server has ended.
func (c *child) write(ctx context.Context, m message) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	if m.begin != nil {
		if err := m.begin(); err != nil {
			c.endTurn()
			return err
		}
	}
	line := jsonrpc.AppendLine(make([]byte, 0, len(m.text)+1), m.text)
	n, err := c.writeUntil(ctx, line)
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		go c.writeRest(line[n:], m) // bury waits for it
		return errors.Join(errInterrupted, context.Cause(ctx))
	}
	defer c.endTurn()
	if n > 0 && err != nil {
		c.interrupted()
		return errors.Join(errInterrupted, err)
	}
	return err
}

// takeTurn takes the token for writing.
func (c *child) takeTurn(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.exited:
		return errEnded
	}
	switch {
	case ctx.Err() != nil:
		c.endTurn()
		return context.Cause(ctx)
	case c.stopped:
		c.endTurn()
		return errEnded
	}
	return nil
}

// endTurn returns the token for writing.
func (c *child) endTurn() { <-c.writing }

// writeUntil writes a line and stops when ctx is done. The caller holds the token for writing.
func (c *child) writeUntil(ctx context.Context, line []byte) (n int, err error) {
	if ctx.Done() != nil {
		set := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(set)
			_ = c.in.SetWriteDeadline(time.Unix(1, 0))
		})
		defer func() {
			if !stop() {
				<-set // otherwise the deadline would apply to later writes
				_ = c.in.SetWriteDeadline(time.Time{})
			}
		}()
	}
	return c.in.Write(line)
}

// writeRest completes a message whose sender has given up: otherwise the server would take the next
// message for its rest. That may take as long as the server lives. writeRest returns the token for
// writing.
func (c *child) writeRest(rest []byte, m message) {
	defer c.endTurn()
	if m.cancel != nil {
		rest = append(rest, m.cancel()...)
	}
	if _, err := c.in.Write(rest); err != nil {
		c.interrupted()
	}
}

// interrupted ends a server that got only a part of a message. The caller holds the token for
// writing.
func (c *child) interrupted() {
	c.stopped = true
	select {
	case <-c.exited:
	case <-c.closing: // Close waits for it
	default:
		c.signal(syscall.SIGTERM)
		_ = c.in.Close()
	}
}

// drainTimeout is how long to wait for more output after the process has ended.
const drainTimeout = 3 * time.Second

// signal sends a signal to the server and its descendants.
func (c *child) signal(what syscall.Signal) {
	c.updateDescendants()
	signalGroup(c.cmd, what)
	c.descendants.signal(what)
}

// updateDescendants finds the processes that the server has started by now.
func (c *child) updateDescendants() {
	select {
	case <-c.exited: // another process may have its pid
		c.descendants.update(0)
	default:
		c.descendants.update(c.cmd.Process.Pid)
	}
}

// end ends the server: it closes standard input, sends SIGTERM after grace, and SIGKILL after grace
// again. It returns when the server and its descendants have ended.
func (c *child) end(grace time.Duration) {
	close(c.closing)
	c.updateDescendants()            // processes may lose their parent before the server ends
	go func() { _ = c.in.Close() }() // waits for a write where pipes have no deadlines
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-c.exited:
		case <-time.After(grace):
			c.signal(how)
		}
	}
	<-c.exited
	<-c.ended
}

// finish waits until the process has ended and its output was read. Read is closed at the end of
// the output. If the process has closed its output, or left it open in a descendant, finish ends it
// after grace.
func (c *child) finish(read <-chan struct{}, grace time.Duration) {
	select {
	case <-c.exited:
		c.drain(read)
	case <-read:
		select {
		case <-c.exited:
		case <-c.closing:
		case <-time.After(grace):
			c.signal(syscall.SIGTERM)
		}
		select {
		case <-c.exited:
		case <-time.After(2 * grace):
			c.signal(syscall.SIGKILL)
		}
		<-c.exited
	}
	signalGroup(c.cmd, syscall.SIGKILL) // the rest of its process group
	//mutate:drop TestDescendantsEndWithServer processes that a server has started outlive it
	c.descendants.end(grace)
	_ = c.out.Close()
	<-read
}

// drain waits until the output was read, as long as lines still arrive or are passed on.
func (c *child) drain(read <-chan struct{}) {
	for {
		before := c.passed.Load()
		select {
		case <-read:
			return
		case <-time.After(drainTimeout):
		}
		if now := c.passed.Load(); now == before && now%2 == 0 {
			return
		}
	}
}

// failure returns how the server ended, for people.
func (c *child) failure() error {
	var exit *exec.ExitError
	switch {
	case c.status == nil:
		return errors.New("the server ended")
	case errors.As(c.status, &exit):
		return fmt.Errorf("the server ended: %s", exit.ProcessState)
	default:
		return fmt.Errorf("the server ended: %w", c.status)
	}
}
