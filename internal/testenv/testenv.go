// Package testenv starts and stops servers for tests. Their programs come from system
// packages, which tools/setup installs.
package testenv

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// ErrUnavailable reports that a program is not installed and cannot be installed.
var ErrUnavailable = errors.New("not available on this machine")

// Complete reports whether this is the complete suite, in which every test must run. The
// Makefile target test-all installs the programs and then sets the variable.
func Complete() bool { return os.Getenv("TEST_ALL") != "" }

// Available reports whether err, from starting a server, is nil. If the program is not
// installed, Available logs that and the test should return; in the complete suite, and for
// any other error, the test fails.
func Available(t testing.TB, err error) bool {
	t.Helper()
	if errors.Is(err, ErrUnavailable) && !Complete() {
		t.Logf("PASSED OVER: %v", err)
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// NeedNode skips the test if Node.js or npm is not installed; in the complete suite the test fails.
func NeedNode(t testing.TB) {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		_, err := exec.LookPath(name)
		switch {
		case err == nil:
		case Complete():
			t.Fatalf("this test needs Node.js 20 or newer, and npm: %v", err)
		default:
			t.Skipf("this test needs Node.js 20 or newer, and npm: %v", err)
		}
	}
}
