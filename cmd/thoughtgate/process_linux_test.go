package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// command returns the program with arguments, to run in its own process.
func command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Args[0] = "thoughtgate" // TestMain runs the gate under this name
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME=", "THOUGHTGATE_STATE_DIR="+cmd.Dir, "THOUGHTGATE_OPERATOR_TOKEN=secret-of-the-approver")
	return cmd
}

// begin starts a command whose standard input stays open until the test ends.
func begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting until " + what)
		}
	}
}

// pidIn returns the process id that a server has written to a file.
func pidIn(t *testing.T, file string) (pid int) {
	t.Helper()
	soon(t, "the server writes its number", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid != 0
	})
	return pid
}

// A server that ignores SIGTERM and the end of its input still ends when its gate is killed.
func TestServerEndsWithKilledGate(t *testing.T) {
	t.Parallel()
	cmd := command(t, os.Args[0], "wrap", "--", "sh", "-c", `trap "" TERM; echo $$ >pid; while :; do sleep 1; done`)
	begin(t, cmd)
	pid := pidIn(t, filepath.Join(cmd.Dir, "pid"))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the server has ended", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

// Other programs of the same user cannot read the memory and the environment of the gate,
// which contain tokens. They can still read those of the server.
func TestOtherProgramsCannotReadTheGate(t *testing.T) {
	t.Parallel()
	program := os.Args[0]
	var as *syscall.SysProcAttr
	uid := os.Getuid()
	if uid == 0 { // root can read everything
		uid = testenv.Nobody
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testenv.Nobody, Gid: testenv.Nobody}}
		program = forEverybody(t, program)
	}
	cmd := command(t, program, "wrap", "--", "sh", "-c", `echo $$ >pid; exec cat`)
	if err := os.Chmod(filepath.Dir(cmd.Dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(cmd.Dir, uid, -1); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = as
	begin(t, cmd)
	server := pidIn(t, filepath.Join(cmd.Dir, "pid"))
	for _, file := range []string{"environ", "mem"} {
		if owner := ownerOf(t, cmd.Process.Pid, file); owner != 0 {
			t.Errorf("%s of the gate belongs to user %d, whose programs can read it", file, owner)
		}
		if owner := ownerOf(t, server, file); owner != uid {
			t.Errorf("%s of the server belongs to user %d", file, owner)
		}
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(server) + "/environ")
	if err != nil || bytes.Contains(environ, []byte("secret-of-the-approver")) {
		t.Errorf("the server has the token of an approver in its environment: %q, %v", environ, err)
	}
}

// ownerOf returns the user that may open a file of a process under /proc.
func ownerOf(t *testing.T, pid int, file string) int {
	t.Helper()
	about, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		t.Fatal(err)
	}
	return int(about.Sys().(*syscall.Stat_t).Uid)
}

// forEverybody returns a copy of a program that all users can start.
func forEverybody(t *testing.T, program string) string {
	t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tg")
	testenv.WriteProgram(t, file, string(text))
	return file
}

// A program with another file name can wrap servers, and recognizes them again.
func TestInitWorksUnderAnotherName(t *testing.T) {
	t.Parallel()
	program, home := forEverybody(t, os.Args[0]), t.TempDir()
	file := filepath.Join(home, ".cursor", "mcp.json")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	const before = `{"mcpServers": {"a": {"command": "npx"}}}`
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, says, file string }{
		{"--for cursor --write", "a is wrapped now", `{"mcpServers": {"a": {"args": ["wrap", "--name", "a", "--", "npx"], "command": "` + program + `"}}}`},
		{"--for cursor --write", "a is already wrapped", ""},
		{"--for cursor --command " + program, "a is already wrapped", ""},
		{"--undo", "restored, byte for byte", before},
	} {
		cmd := command(t, program, append([]string{"init"}, strings.Fields(tt.args)...)...)
		cmd.Env = append(cmd.Env, "HOME="+home, "PATH="+home)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.says) {
			t.Fatalf("init %s: %v\n%s", tt.args, err, out)
		}
		if text, err := os.ReadFile(file); err != nil || tt.file != "" && string(text) != tt.file {
			t.Errorf("after init %s: %s, %v", tt.args, text, err)
		}
	}
}
