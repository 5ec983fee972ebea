package testenv

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Nobody is a user that runs no tests. Only root can start its programs.
const Nobody = 65534

// A Visitor is a program of some user that has connected to an address.
type Visitor struct {
	// Leave ends the program, which closes its connection.
	Leave func()
	// Heard returns what the program was sent, once the other end has closed the connection.
	Heard func() string
}

// ConnectAs has a program of a user connect to an address and send it a text.
func ConnectAs(t testing.TB, uid int, address, text string) Visitor {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	const script = `exec 3<>"/dev/tcp/$0/$1" && printf %s "$2" >&3 && echo connected && exec cat <&3`
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", script, host, port, text) //nolint:gosec // a test says where
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} //nolint:gosec // no user is less than 0
	}
	cmd.Dir = "/"
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if line, err := in.ReadString('\n'); err != nil {
		t.Fatalf("user %d did not connect to %s: %q, %v", uid, address, line, err)
	}
	end := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(end)
	return Visitor{Leave: end, Heard: func() string {
		heard, _ := io.ReadAll(in)
		return string(heard)
	}}
}
