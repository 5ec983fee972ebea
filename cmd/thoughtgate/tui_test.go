//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// The scripts type into a real terminal and read its screen.
func TestTerminal(t *testing.T) {
	tmux, err := testenv.Tmux()
	if !testenv.Available(t, err) {
		return
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/terminal",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("TERM", "xterm-256color")
			env.Setenv("LANG", "C.UTF-8")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":  await,
			"signal": send,
			"term":   terminal{tmux}.do,
		},
	})
}

// A terminal is a session of tmux.
type terminal struct{ program string }

// do starts a program in the terminal, types, or waits for what is on the screen:
//
//	term start COLUMNS ROWS COMMAND
//	term keys KEY...
//	term type TEXT
//	term see PATTERN
//	term lacks PATTERN
//	term press KEY PATTERN    types until the pattern is there
//	term size COLUMNS ROWS
//	term colours true|false
//	term ended
func (p terminal) do(ts *testscript.TestScript, _ bool, args []string) {
	switch args[0] {
	case "start":
		ts.Setenv(socketVar, fmt.Sprint("tmux", time.Now().UnixNano())) // a new tmux server: the previous one may still be ending
		socket := p.socket(ts)
		p.tmux(ts, "new-session", "-d", "-x", args[1], "-y", args[2], args[3])
		ts.Defer(func() { _ = ts.Exec(p.program, "-S", socket, "kill-server") })
	case "keys":
		p.tmux(ts, append([]string{"send-keys"}, args[1:]...)...)
	case "type":
		p.tmux(ts, "send-keys", "-l", args[1])
	case "size":
		p.tmux(ts, "resize-window", "-x", args[1], "-y", args[2])
	case "see":
		if screen, ok := p.sees(ts, args[1], patience); !ok {
			ts.Fatalf("the screen does not match %s:\n%s", args[1], screen)
		}
	case "lacks":
		if screen := p.tmux(ts, "capture-pane", "-p"); regexp.MustCompile(args[1]).MatchString(screen) {
			ts.Fatalf("the screen matches %s:\n%s", args[1], screen)
		}
	case "press":
		for deadline := time.Now().Add(patience); ; {
			p.tmux(ts, "send-keys", args[1])
			screen, ok := p.sees(ts, args[2], time.Second)
			if ok {
				return
			}
			if time.Now().After(deadline) {
				ts.Fatalf("the screen does not match %s:\n%s", args[2], screen)
			}
		}
	case "colours":
		coloured := regexp.MustCompile(`\x1b\[[0-9;]*3[0-7]m`).MatchString(p.tmux(ts, "capture-pane", "-e", "-p"))
		if fmt.Sprint(coloured) != args[1] {
			ts.Fatalf("the screen has colours: %t", coloured)
		}
	case "ended":
		for deadline := time.Now().Add(patience); ts.Exec(p.program, "-S", p.socket(ts), "has-session") == nil; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				ts.Fatalf("the program has not ended")
			}
		}
	default:
		ts.Fatalf("term has no command %s", args[0])
	}
}

// socketVar is the variable with the name of the session's socket.
const socketVar = "TERMINAL"

func (p terminal) socket(ts *testscript.TestScript) string { return ts.MkAbs(ts.Getenv(socketVar)) }

// tmux runs a tmux command.
func (p terminal) tmux(ts *testscript.TestScript, args ...string) string {
	ts.Check(ts.Exec(p.program, append([]string{"-S", p.socket(ts), "-f", "/dev/null"}, args...)...))
	return ts.ReadFile("stdout")
}

// sees waits until the screen matches a pattern, or until limit has passed.
func (p terminal) sees(ts *testscript.TestScript, pattern string, limit time.Duration) (string, bool) {
	want := regexp.MustCompile("(?m)" + pattern)
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		screen, err := exec.Command(p.program, "-S", p.socket(ts), "capture-pane", "-p").Output()
		ts.Check(err)
		if want.Match(screen) {
			return string(screen), true
		}
		if time.Now().After(deadline) {
			return string(screen), false
		}
	}
}
