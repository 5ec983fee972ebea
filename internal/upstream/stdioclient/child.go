package stdioclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A child is one run of the server's program.
type child struct {
	cmd     *exec.Cmd
	in      *os.File            // the server's standard input
	out     *os.File            // its standard output
	lines   *jsonrpc.LineReader // of out
	writing chan struct{}       // holds a token while somebody writes
	exited  chan struct{}       // closed when the process has ended and was waited for
	status  error               // how it ended; valid once exited is closed
	ended   chan struct{}       // closed when nothing more comes from the server
	closing chan struct{}       // closed when the gate ends the server
	dead    bool                // nothing more is written; for those who hold the token of writing
	passing atomic.Int64        // counts when a line begins to be passed on, and again when it was: odd meanwhile
}

// startChild starts the program. One goroutine starts it and waits for it, on one
// thread: on Linux the kernel ends the program if that thread ends.
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
		in: inWrite, out: outRead, lines: jsonrpc.NewLineReader(outRead, cfg.MaxLine),
		writing: make(chan struct{}, 1), exited: make(chan struct{}), ended: make(chan struct{}), closing: make(chan struct{}),
	}
	c.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...) //nolint:gosec,noctx // the user names the program; Client.Close ends it
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir, c.cmd.Env = inRead, outWrite, cfg.Stderr, cfg.Dir, cfg.Env
	c.cmd.WaitDelay = time.Second // for what copies Stderr, if it is no file
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

// errDead reports a message that was not written because the server has ended.
var errDead = errors.New("the server has ended")

// bury has nothing more written, and waits for whoever is writing.
func (c *child) bury() {
	_ = c.in.Close()
	c.writing <- struct{}{}
	c.dead = true
	<-c.writing
}

// A message is what is written to the server as one line.
type message struct {
	text   []byte
	begin  func() error  // is called before the first byte is written; nil if there is nothing to do
	cancel func() []byte // returns the lines that follow if its sender gives up in the middle; nil if there are none
}

// write writes a message, one at a time. It gives up when ctx is done or the server has
// ended. The error is errInterrupted if part of the line was written by then. It is
// errDead if m.begin was not called because the server has ended.
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

// takeTurn waits for the token of writing. It is the caller's if there is no error.
func (c *child) takeTurn(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.exited:
		return errDead
	}
	switch {
	case ctx.Err() != nil:
		c.endTurn()
		return context.Cause(ctx)
	case c.dead:
		c.endTurn()
		return errDead
	}
	return nil
}

// endTurn gives the token of writing back.
func (c *child) endTurn() { <-c.writing }

// writeUntil writes a line, and stops when ctx is done. The caller holds the token of
// writing.
func (c *child) writeUntil(ctx context.Context, line []byte) (n int, err error) {
	if ctx.Done() != nil {
		set := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(set)
			_ = c.in.SetWriteDeadline(time.Unix(1, 0))
		})
		defer func() {
			if !stop() {
				<-set // or the deadline would stay for those who write later
				_ = c.in.SetWriteDeadline(time.Time{})
			}
		}()
	}
	return c.in.Write(line)
}

// writeRest writes the rest of a message whose sender has given up: the server would
// take the next message for it. That may take as long as the server lives. The caller
// leaves it the token of writing.
func (c *child) writeRest(rest []byte, m message) {
	defer c.endTurn()
	if m.cancel != nil {
		rest = append(rest, m.cancel()...)
	}
	if _, err := c.in.Write(rest); err != nil {
		c.interrupted()
	}
}

// interrupted ends a server that got a part of a message, and reads no more of it. The
// caller holds the token of writing.
func (c *child) interrupted() {
	c.dead = true
	select {
	case <-c.exited:
	case <-c.closing: // it has time to end
	default:
		terminate(c.cmd)
		_ = c.in.Close()
	}
}

// quietTime is how long nothing may arrive of what a server wrote last, after its process
// has ended.
const quietTime = 3 * time.Second

// end ends the server: it closes its standard input, and asks it to end, and kills
// it, if it takes longer than grace each time. It returns when there is nothing
// left of it.
func (c *child) end(grace time.Duration) {
	close(c.closing)
	go func() { _ = c.in.Close() }() // where pipes have no deadlines, it waits for whoever is writing
	for _, how := range []func(*exec.Cmd){terminate, kill} {
		select {
		case <-c.exited:
		case <-time.After(grace):
			how(c.cmd)
		}
	}
	<-c.exited
	<-c.ended
}

// finish waits until the process has ended and its output was read. Read is closed
// when there is no more output. A process that closes its output, or leaves others
// behind that keep it open, is not waited for longer than grace.
func (c *child) finish(read <-chan struct{}, grace time.Duration) {
	select {
	case <-c.exited:
		c.drain(read)
	case <-read:
		select {
		case <-c.exited:
		case <-c.closing:
		case <-time.After(grace):
			terminate(c.cmd)
		}
		select {
		case <-c.exited:
		case <-time.After(2 * grace):
			kill(c.cmd)
		}
		<-c.exited
	}
	kill(c.cmd) // what is left of its group
	_ = c.out.Close()
	<-read
}

// drain waits until the output was read, as long as some of it arrives or is passed on.
func (c *child) drain(read <-chan struct{}) {
	for {
		before := c.passing.Load()
		select {
		case <-read:
			return
		case <-time.After(quietTime):
		}
		if now := c.passing.Load(); now == before && now%2 == 0 {
			return
		}
	}
}

// failure says how the server ended, for people.
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
