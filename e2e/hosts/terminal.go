package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// watch runs the host in tmux and records the screen.
func (c *cell) watch(ctx context.Context, s *site, p place, leave time.Duration) (string, error) {
	dir, err := os.MkdirTemp("", "tg") // the path of a socket must be short
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) // its socket is no longer needed
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
	defer t.tmux(context.WithoutCancel(ctx), "kill-server") // it may have ended
	if c.host.typed {
		if err := t.enter(ctx, p.Prompt); err != nil {
			return "", err
		}
	}
	s.background(ctx, t.record)
	if c.scenario.escape {
		return "esc", c.escape(ctx, s, t, leave)
	}
	told := make(chan error)
	s.background(ctx, func(ctx context.Context) { c.untilTold(ctx, s, told) })
	return c.await(ctx, s, leave, told), ctx.Err()
}

// escape presses Esc, and waits until a call that is still pending has been approved and would
// have run.
func (c *cell) escape(ctx context.Context, s *site, t *terminal, leave time.Duration) error {
	if err := s.approver.wait(ctx, leave); err != nil {
		return fmt.Errorf("%w, see %s", err, t.file)
	}
	if err := c.press(ctx, s, t); err != nil {
		return err
	}
	return s.approver.wait(ctx, c.scenario.after+5*time.Second)
}

// press presses Esc as often as the host requires. A host that requires it twice within a
// short time may miss this on a busy machine, so press tries again.
func (c *cell) press(ctx context.Context, s *site, t *terminal) error {
	keys := max(1, c.host.escapes)
	for range 1 + 3*(keys-1) {
		for range keys {
			if _, err := t.tmux(ctx, "send-keys", "Escape"); err != nil {
				return err
			}
			pause(ctx, 300*time.Millisecond) // long enough for two separate keys, and short enough for a double press
		}
		pause(ctx, 2*time.Second)
		if states, _, _ := s.approver.outcome(); !slices.Contains(states, "input_required") {
			return nil
		}
	}
	return nil
}

// background is part of the text that Claude Code shows its model for a call that continues in
// the background.
const background = "moved to the background"

// untilTold closes told when the model has seen the call's outcome. At a terminal, hosts do
// not end by themselves.
func (c *cell) untilTold(ctx context.Context, s *site, told chan<- error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, decided, _ := s.approver.outcome() // a call that the approver did not see counts as undecided
		turns := s.model.Turns()
		if len(turns) == 0 {
			continue
		}
		last := turns[len(turns)-1]
		known := c.scenario.action != "approve" || !decided.IsZero() && last.At.After(decided)
		if n := len(last.Results); known && n > 0 && !last.Called && !strings.Contains(last.Results[n-1], background) {
			close(told)
			return
		}
	}
}

// A terminal is a tmux server with one window.
type terminal struct {
	socket string
	file   string // the recorded screens
	env    []string
	now    func() time.Time
	start  time.Time
}

func (t *terminal) tmux(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", t.socket, "-f", "/dev/null"}, args...)...)
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

// enter types a text when the host is ready for input, and presses Enter.
func (t *terminal) enter(ctx context.Context, text string) error {
	pause(ctx, 10*time.Second) // hosts show their screen before they read keys
	if _, err := t.tmux(ctx, "send-keys", "-l", text); err != nil {
		return err
	}
	pause(ctx, time.Second) // a host may treat fast input as pasted text
	_, err := t.tmux(ctx, "send-keys", "Enter")
	return err
}

// record writes the screen to a file every five seconds.
func (t *terminal) record(ctx context.Context) {
	f, err := os.Create(t.file)
	if err != nil {
		return
	}
	defer f.Close() // for debugging
	for ctx.Err() == nil {
		screen, err := t.tmux(ctx, "capture-pane", "-p")
		if err != nil {
			screen = err.Error()
		}
		_, _ = fmt.Fprintf(f, "======== %.0f s\n%s\n", t.now().Sub(t.start).Seconds(), strings.TrimRight(screen, "\n "))
		pause(ctx, 5*time.Second)
	}
}
