package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// attend starts the host and waits for its end. If leave is not 0, the user ends the host (or
// presses Esc) that long after the approver saw the call.
func (c *cell) attend(ctx context.Context, s *site, p place, leave time.Duration) (ending, error) {
	start := c.now()
	var how, output string
	var err error
	if c.scenario.escape || c.host.person {
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
	defer out.Close() // lost output shows in the record
	errs, err := os.OpenFile(filepath.Join(c.dir, "host.err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", "", err
	}
	defer errs.Close() // for debugging
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if cmd.Env, err = c.environment(p); err != nil {
		return "", "", err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Work, out, errs
	if c.scenario.later > 0 {
		if err := c.speakLater(ctx, s, cmd); err != nil {
			return "", "", err
		}
	}
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
	text, err := c.printed(how)
	return how, text, errors.Join(err, ctx.Err())
}

// speakLater sends a second message of the user when it is due, unless the call has run by
// then, because then the host has waited for it.
func (c *cell) speakLater(ctx context.Context, s *site, cmd *exec.Cmd) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	s.background(ctx, func(ctx context.Context) {
		if s.approver.wait(ctx, c.scenario.later) == nil && !s.hasRun() {
			_, _ = io.WriteString(in, comeBack+"\n") // fails if the host has ended
		}
		_ = in.Close() // fails if the host has ended
	})
	return nil
}

// printed returns the output of the host. A host that failed may have only error output.
func (c *cell) printed(how string) (string, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "host.out"))
	if err != nil || len(bytes.TrimSpace(text)) > 0 || !strings.HasPrefix(how, "exit ") {
		return string(text), err
	}
	text, err = os.ReadFile(filepath.Join(c.dir, "host.err"))
	return string(text), err
}

// The ways in which a host ends.
const (
	exited   = "ended"
	left     = "left"
	overTime = "limit"
)

// await waits until the host ends, its user leaves, or its time is up.
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
