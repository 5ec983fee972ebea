package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// fakeGo replaces the go command: it builds three packages, one of them large.
const fakeGo = `#!/bin/sh
case "$1 $2" in
'list '*) printf 'runtime\nos\ngithub.com/ncruces/go-sqlite3-wasm/v6\n' ;;
'build -v') printf 'runtime\nos\ngithub.com/ncruces/go-sqlite3-wasm/v6\n# broken\n\tx.go:1: no such thing\n' >&2; exit 3 ;;
'build -o') exit 4 ;;
esac
`

func compile(t *testing.T, command ...string) (string, int) {
	t.Helper()
	fake := filepath.Join(t.TempDir(), "go")
	testenv.WriteProgram(t, fake, fakeGo)
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Dir = filepath.Join("..", "..")
	c.Env = append(os.Environ(), "GO="+fake)
	out, _ := c.CombinedOutput() // the test checks the exit status
	return string(out), c.ProcessState.ExitCode()
}

func TestCompileIsQuietWithoutTerminal(t *testing.T) {
	if out, status := compile(t, "tools/compile"); out != "" || status != 4 {
		t.Errorf("printed %q with exit status %d; want no output, and the status of the build", out, status)
	}
}

func TestCompileShowsWorkAndErrors(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("the script command, which creates a terminal, is not installed")
	}
	out, status := compile(t, "script", "-qec", "tools/compile", "/dev/null")
	if status != 3 {
		t.Errorf("exit status %d; want the status of the build", status)
	}
	for _, want := range []string{"% after", "github.com/ncruces/go-sqlite3-wasm/v6", "# broken\r\n", "x.go:1: no such thing\r\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
}
