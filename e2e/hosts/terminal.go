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

// watch runs the host on a terminal and records what the screen shows. The
// terminal is tmux.
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
	if c.scenario.escape {
		return "esc", c.escape(ctx, s, t, leave)
	}
	told := make(chan error)
	s.background(ctx, func(ctx context.Context) { c.untilTold(ctx, s, told) })
	return c.await(ctx, s, leave, told), ctx.Err()
}

// escape presses Esc and waits until the call, if it is still pending, was
// approved and would have run.
func (c *cell) escape(ctx context.Context, s *site, t *terminal, leave time.Duration) error {
	if err := s.approver.wait(ctx, leave); err != nil {
		return fmt.Errorf("%w, see %s", err, t.file)
	}
	if err := c.press(ctx, s, t); err != nil {
		return err
	}
	return s.approver.wait(ctx, c.scenario.after+5*time.Second)
}

// press presses Esc as often as the host wants it. A host that wants it twice in a
// short time may miss that on a busy machine, so its user tries again.
func (c *cell) press(ctx context.Context, s *site, t *terminal) error {
	keys := max(1, c.host.escapes)
	for range 1 + 3*(keys-1) {
		for range keys {
			if _, err := t.tmux(ctx, "send-keys", "Escape"); err != nil {
				return err
			}
			pause(ctx, 300*time.Millisecond) // not one key for the host, and soon enough to be the second
		}
		pause(ctx, 2*time.Second)
		if states, _, _ := s.approver.outcome(); !slices.Contains(states, "input_required") {
			return nil
		}
	}
	return nil
}

// background is in what Claude Code tells its model of a call that goes on.
const background = "moved to the background"

// untilTold closes told when the model has seen how the call ended. At a terminal
// no host ends by itself.
func (c *cell) untilTold(ctx context.Context, s *site, told chan<- error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, decided, _ := s.approver.outcome() // a call that nobody saw is not decided
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
