package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// attributes runs a process as the account, if there is one, and ends it with the test that
// started it.
func attributes(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// Nobody is the id of an unprivileged user. Only root can start programs as this user.
const Nobody = 65534

// A Visitor is a program of a user that has connected to an address.
type Visitor struct {
	// Leave ends the program, which closes its connection.
	Leave func()
	// Heard returns the data that the program received, after the other side has closed the
	// connection.
	Heard func() string
}

// ConnectAs runs a program of a user that connects to an address and sends a text.
func ConnectAs(t testing.TB, uid int, address, text string) Visitor {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	const script = `exec 3<>"/dev/tcp/$0/$1" && echo connected && printf %s "$2" >&3 && exec cat <&3`
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", script, host, port, text) // the tests supply the address
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} // user ids are not negative
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

// SmallDisk returns a directory on a separate file system of this size in bytes. It returns
// [ErrUnavailable] without permission to mount one.
func SmallDisk(t testing.TB, bytes int) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	err = syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		return "", fmt.Errorf("mount: %w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, nil
}

// Freeze makes every write to the files fail, even through open descriptors, until the test
// ends or the returned function is called. It returns [ErrUnavailable] if the file system does
// not support it.
func Freeze(t testing.TB, files ...string) (thaw func(), err error) {
	t.Helper()
	change := func(how string) error {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "chattr", append([]string{how}, files...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("chattr: %w: %w: %s", ErrUnavailable, err, out)
		}
		return nil
	}
	if err := change("+i"); err != nil {
		return nil, errors.Join(err, change("-i"))
	}
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			if err := change("-i"); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(thaw)
	return thaw, nil
}
