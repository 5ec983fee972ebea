package stdioclient

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// isRunning reports whether the process whose pid is in a file runs.
func isRunning(t *testing.T, file string) bool {
	t.Helper()
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
}

// Processes that a server has started end with it, even in another session.
func TestDescendantsEndWithServer(t *testing.T) {
	t.Parallel()
	const write, serve = `echo $$ >"$0.new"; mv "$0.new" "$0"; `, `read -r line`
	for name, program := range map[string]string{
		"own session":                           `setsid sh -c '` + write + `exec sleep 1000 >/dev/null' "$0" & ` + serve,
		"own session, ignores TERM":             `setsid sh -c 'trap "" TERM; ` + write + `while :; do sleep 1000; done' "$0" & ` + serve,
		"own session, without a parent":         `sh -c 'setsid sh -c "$1" "$0" &' "$0" '` + write + `exec sleep 1000 >/dev/null'; ` + serve,
		"own session, without environment":      `env -i PATH="$PATH" setsid sh -c '` + write + `exec sleep 1000 >/dev/null' "$0" & ` + serve,
		"own session, of a server that stays":   `setsid sh -c '` + write + `exec sleep 1000 >/dev/null' "$0" & exec sleep 1000`,
		"own session, of a server that ended":   `setsid sh -c '` + write + `exec sleep 1000 >/dev/null' "$0" & until test -e "$0"; do sleep 0.02; done`,
		"started by a process in own session":   `setsid sh -c 'env -i PATH="$PATH" setsid sh -c "$1" "$0"; :' "$0" '` + write + `exec sleep 1000 >/dev/null' & ` + serve,
		"own session, of a server without TERM": `trap "" TERM; setsid sh -c '` + write + `exec sleep 1000 >/dev/null' "$0" & while :; do sleep 1000; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			c, _ := run(t, program, file)
			await(t, file)
			t.Cleanup(func() {
				if text, err := os.ReadFile(file); err == nil && isRunning(t, file) {
					pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			c.Close()
			if isRunning(t, file) {
				t.Error("a process that the server has started is still running")
			}
		})
	}
}

// Processes that other servers have started are not ended.
func TestOnlyOwnDescendantsAreEnded(t *testing.T) {
	t.Parallel()
	const program = `setsid sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 1000 >/dev/null' "$0" & read -r line`
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	first, _ := run(t, program, one)
	second, _ := run(t, program, two)
	await(t, one)
	await(t, two)
	first.Close()
	if isRunning(t, one) || !isRunning(t, two) {
		t.Errorf("first: running %t; second: running %t", isRunning(t, one), isRunning(t, two))
	}
	second.Close()
	if isRunning(t, two) {
		t.Error("a process of the second server is still running")
	}
}
