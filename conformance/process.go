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
	startLimit = 20 * time.Second // for a program to become ready
	stopLimit  = 3 * time.Second  // for a program to end before it is killed
)

// process is a program that runs in the background until it is stopped.
type process struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when the program has ended

	mu    sync.Mutex
	lines bytes.Buffer // all that it printed
}

// start starts a program. It ends with ctx or when it is stopped: first it is
// asked to, then killed.
func start(ctx context.Context, path string, args ...string) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &process{name: filepath.Base(path), cancel: cancel, done: make(chan struct{})}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a program that this one has built
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

// await waits until the program is ready. One that ends instead, or takes too
// long, is stopped, and what it printed is in the error.
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

// Write keeps what the program prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines.Write(b)
}

// log returns what the program has printed so far.
func (p *process) log() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines.Bytes())
}

// freeAddress returns a loopback address that nobody listened on a moment ago.
// The SDK's server cannot be asked which port it was given, so it is told one that
// the system does not hand out to others.
func freeAddress(ctx context.Context) (string, error) {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000)) //nolint:gosec // a port; not security-sensitive
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		switch {
		case err == nil:
			return address, l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return "", err
		}
	}
}

// reachable reports whether somebody listens on addr.
func reachable(ctx context.Context, addr string) bool {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was sent
	return true
}
