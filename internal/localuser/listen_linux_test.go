package localuser_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// dialAs connects to a socket as a user. It makes only its own thread that user.
func dialAs(t *testing.T, uid int, path string) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if uid != os.Getuid() {
			if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); failed != 0 {
				err = failed
				return
			}
		}
		c, err = net.Dial("unix", path)
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// openDir returns a directory that all users can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The address of a connection names the user that opened it, as the configuration names that user.
func TestListen(t *testing.T) {
	path := filepath.Join(openDir(t), "s")
	l, err := localuser.Listen(path, []string{"nobody"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := map[int]string{os.Getuid(): fmt.Sprintf("local:%d", os.Getuid()), testenv.Nobody: "local:nobody"}
	for _, uid := range users() {
		dialAs(t, uid, path)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RemoteAddr().String(); got != want[uid] || !localuser.IsPeer(got) {
			t.Errorf("the address is %s; want %s", got, want[uid])
		}
		c.Close()
	}
}

// A user that is not named gets no answer, and the listener goes on.
func TestListenRefusesOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	path := filepath.Join(openDir(t), "s")
	refusals := make(chan error, 1)
	l, err := localuser.Listen(path, []string{"daemon"}, func(err error) { refusals <- err })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	foreign := dialAs(t, testenv.Nobody, path)
	dialAs(t, os.Getuid(), path)
	c, err := l.Accept()
	if err != nil || c.RemoteAddr().String() != "local:0" {
		t.Fatalf("%v, %v", c, err)
	}
	defer c.Close()
	if err := <-refusals; !strings.Contains(err.Error(), "user 65534") {
		t.Error(err)
	}
	if _, err := foreign.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other user's connection is not closed: %v", err)
	}
}

// A socket that a killed process has left is replaced; one that is in use is not.
func TestListenReplacesAbandonedSocket(t *testing.T) {
	path := filepath.Join(openDir(t), "s")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	if _, err := localuser.Listen(path, nil, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: %v", err)
	}
	old.Close()
	l, err := localuser.Listen(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// A listener with an unknown user is refused.
func TestListenUnknownUser(t *testing.T) {
	if _, err := localuser.Listen(filepath.Join(t.TempDir(), "s"), []string{"no-such-user"}, nil); err == nil {
		t.Error("no error")
	}
}
