package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// attend starts the host and waits for its end. If leave is not 0, the user ends
// it (or presses Esc) so long after the approver was asked.
func (c *cell) attend(ctx context.Context, s *site, p place, leave time.Duration) (ending, error) {
	start := c.now()
	var how, output string
	var err error
	if c.scenario.escape {
		how, err = c.watch(ctx, s, p, leave)
	} else {
		how, output, err = c.runHeadless(ctx, s, p, leave)
	}
	end := c.now()
	return ending{how: how, seconds: end.Sub(start).Seconds(), at: end, output: output}, err
}

// runHeadless runs the host without a terminal, as scripts do.
func (c *cell) runHeadless(ctx context.Context, s *site, p place, leave time.Duration) (how, output string, err error) {
	args, err := p.fill(c.host.command)
	if err != nil {
		return "", "", err
	}
	out, err := os.Create(filepath.Join(c.dir, "host.out"))
	if err != nil {
		return "", "", err
	}
	defer out.Close() //nolint:errcheck // what is lost is seen as missing
	errs, err := os.OpenFile(filepath.Join(c.dir, "host.err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", "", err
	}
	defer errs.Close()                                    //nolint:errcheck // for people who look for a reason
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the table of hosts names it
	if cmd.Env, err = c.environment(p); err != nil {
		return "", "", err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Work, out, errs
	group(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	how = c.await(ctx, s, leave, ended)
	if err := killGroup(cmd); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return "", "", fmt.Errorf("the host cannot be killed: %w", err)
	}
	if how != exited {
		<-ended
	} else if code := cmd.ProcessState.ExitCode(); code != 0 {
		how = fmt.Sprintf("exit %d", code)
	}
	text, err := c.printed()
	return how, text, errors.Join(err, ctx.Err())
}

// printed returns what the host has printed: its complaints, if that is all.
func (c *cell) printed() (string, error) {
	for _, name := range []string{"host.out", "host.err"} {
		text, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil || len(bytes.TrimSpace(text)) > 0 {
			return string(text), err
		}
	}
	return "", nil
}

// How hosts end.
const (
	exited   = "ended"
	left     = "left"
	overTime = "limit"
)

// await waits until the host has ended, its user leaves, or its time is over.
func (c *cell) await(ctx context.Context, s *site, leave time.Duration, ended <-chan error) string {
	limit := time.NewTimer(c.scenario.limit)
	defer limit.Stop()
	gone := make(chan struct{})
	if leave > 0 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			if s.approver.wait(ctx, leave) == nil {
				close(gone)
			}
		}()
	}
	select {
	case <-ended:
		return exited
	case <-gone:
		return left
	case <-limit.C:
		return overTime
	case <-ctx.Done():
		return overTime
	}
}

// watch runs the host on a terminal, presses Esc, and records what the screen
// shows. The terminal is tmux.
func (c *cell) watch(ctx context.Context, s *site, p place, leave time.Duration) (string, error) {
	dir, err := os.MkdirTemp("", "tg") // the path of a socket must be short
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing of value is left
	t := &terminal{socket: filepath.Join(dir, "s"), file: filepath.Join(c.dir, "screen.txt"), now: c.now, start: c.now()}
	if t.env, err = c.environment(p); err != nil {
		return "", err
	}
	args, err := p.fill(c.host.screen)
	if err != nil {
		return "", err
	}
	if err := t.open(ctx, p.Work, args); err != nil {
		return "", err
	}
	defer t.tmux(context.WithoutCancel(ctx), "kill-server") //nolint:errcheck // it may have ended
	if c.host.typed {
		if err := t.enter(ctx, p.Prompt); err != nil {
			return "", err
		}
	}
	s.background(ctx, t.record)
	if err := s.approver.wait(ctx, leave); err != nil {
		return "", fmt.Errorf("%w, see %s", err, t.file)
	}
	if _, err := t.tmux(ctx, "send-keys", "Escape"); err != nil {
		return "", err
	}
	return "esc", s.approver.wait(ctx, c.scenario.after+5*time.Second)
}

// A terminal is a tmux server with one window.
type terminal struct {
	socket string
	file   string // what the screen showed
	env    []string
	now    func() time.Time
	start  time.Time
}

func (t *terminal) tmux(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", t.socket, "-f", "/dev/null"}, args...)...) //nolint:gosec // no shell is involved
	cmd.Env, cmd.WaitDelay = t.env, stopLimit
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w %s", args[0], err, out)
	}
	return string(out), nil
}

func (t *terminal) open(ctx context.Context, dir string, args []string) error {
	window := []string{"new-session", "-d", "-x", "110", "-y", "40", "-c", dir, "env", "TERM=screen-256color"}
	_, err := t.tmux(ctx, append(window, args...)...)
	return err
}

// enter types a text when the host is ready for it, and presses Enter.
func (t *terminal) enter(ctx context.Context, text string) error {
	pause(ctx, 10*time.Second) // hosts draw their screen before they read keys
	if _, err := t.tmux(ctx, "send-keys", "-l", text); err != nil {
		return err
	}
	pause(ctx, time.Second) // a host may take what comes at once for pasted text
	_, err := t.tmux(ctx, "send-keys", "Enter")
	return err
}

// record writes down the screen every five seconds.
func (t *terminal) record(ctx context.Context) {
	f, err := os.Create(t.file)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // for people who want to see the screen
	for ctx.Err() == nil {
		screen, err := t.tmux(ctx, "capture-pane", "-p")
		if err != nil {
			screen = err.Error()
		}
		_, _ = fmt.Fprintf(f, "======== %.0f s\n%s\n", t.now().Sub(t.start).Seconds(), strings.TrimRight(screen, "\n "))
		pause(ctx, 5*time.Second)
	}
}
