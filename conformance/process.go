package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit = time.Minute     // for a program to become ready
	stopLimit  = 3 * time.Second // for a program to end before it is killed
)

// A process is a program that runs in the background until it is stopped.
type process struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when the program has ended

	mu    sync.Mutex
	lines bytes.Buffer // the output
}

// start starts a program. The program ends with ctx or when it is stopped: first with a
// signal, then it is killed.
func start(ctx context.Context, path string, args ...string) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &process{name: filepath.Base(path), cancel: cancel, done: make(chan struct{})}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(p.done)
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			_, _ = p.Write([]byte(err.Error())) // never fails
		}
	}()
	return p, nil
}

// stop ends the program and waits for it.
func (p *process) stop() {
	p.cancel()
	<-p.done
}

// await waits until the program is ready. If the program ends first or takes too long, await
// stops it and returns an error with its output.
func (p *process) await(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-p.done:
			p.stop()
			return fmt.Errorf("%s ended at once:\n%s", p.name, p.log())
		case <-ctx.Done():
			p.stop()
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, ctx.Err(), p.log())
		}
	}
	return nil
}

// Write records the program's output.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines.Write(b)
}

// log returns the output of the program so far.
func (p *process) log() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines.Bytes())
}

// freeAddress returns an unused loopback address. The SDK's server does not report its port, so
// the port is chosen here, among those that the system does not assign to other sockets.
func freeAddress(ctx context.Context) (string, error) {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000)) // a port; not security-sensitive
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		switch {
		case err == nil:
			return address, l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return "", err
		}
	}
}

// reachable reports whether a server listens on addr.
func reachable(ctx context.Context, addr string) bool {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was sent
	return true
}
