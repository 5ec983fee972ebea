package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Tmux returns the path of tmux, a terminal that tests can type into and read, or
// [ErrUnavailable].
func Tmux() (string, error) { return program("tmux", "tmux") }

// SystemdAnalyze returns the path of the program that checks units of systemd, or
// [ErrUnavailable].
func SystemdAnalyze() (string, error) { return program("systemd-analyze", "systemd") }

// Chromium returns the path of Debian's browser, or [ErrUnavailable].
func Chromium() (string, error) { return program("chromium", "chromium") }

// program returns the path of a program of a Debian package.
func program(name, pkg string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w: install Debian's package %s", name, ErrUnavailable, pkg)
	}
	return path, nil
}

// A process is a started server.
type process struct {
	*os.Process

	ended chan struct{} // closed when the program and all its children have ended
}

func launch(c *exec.Cmd) (*process, error) {
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{c.Process, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = c.Wait() // servers end on the signal
	}()
	return p, nil
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// end ends the process with a signal, and waits for the end.
func (p *process) end(s os.Signal) error {
	err := p.Signal(s)
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// WriteProgram writes a file that the test runs. No other test starts a process meanwhile: that
// process would briefly have the file open for writing, and then the system does not run it.
func WriteProgram(t testing.TB, file, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
