package process_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/thoughtgate/thoughtgate-go/internal/process"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// accept returns a connection that a program of a user has opened, and that program.
func accept(t *testing.T, uid int) (net.Conn, testenv.Visitor) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program := testenv.ConnectAs(t, uid, l.Addr().String(), "")
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, program
}

// The process behind a connection is the one that opened it, and this process is among its
// ancestors.
func TestBehind(t *testing.T) {
	c, program := accept(t, os.Getuid())
	peer, err := process.Behind(c)
	if err != nil || len(peer.Holders) != 1 || peer.UID != os.Getuid() {
		t.Fatalf("%+v, %v", peer, err)
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	chain := process.Ancestors(peer.Holders[0])
	if len(chain) < 2 || chain[0] != peer.Holders[0] || chain[1] != self {
		t.Errorf("the ancestors are %v; this process is %v", chain, self)
	}
	about, err := process.Read(peer.Holders[0].PID)
	here, failed := process.Read(self.PID)
	if err := errors.Join(err, failed); err != nil || about.ID != peer.Holders[0] || about.UID != os.Getuid() ||
		about.Program == "" || about.Session != here.Session { // zero if the session began outside this set of process ids
		t.Errorf("the process is %s of user %d, program %q, session %d, want %d; %v", about.ID, about.UID, about.Program, about.Session, here.Session, err)
	}
	program.Leave()
	if peer, err := process.Behind(c); !errors.Is(err, process.ErrClosed) {
		t.Errorf("after the program has ended: %+v, %v", peer, err)
	}
	if process.Exists(chain[0]) || !process.Exists(self) {
		t.Error("an ended process exists, or this one does not")
	}
}

// A connection that several processes have open belongs to all of them.
func TestBehindSharedSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	file, err := client.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "cat")
	cmd.ExtraFiles = []*os.File{file}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := process.Behind(c)
	if err != nil || !slices.ContainsFunc(peer.Holders, func(p process.ID) bool { return p.PID == cmd.Process.Pid }) ||
		!slices.ContainsFunc(peer.Holders, func(p process.ID) bool { return p.PID == os.Getpid() }) {
		t.Errorf("%+v, %v", peer, err)
	}
	for _, last := range peer.Holders {
		if one, err := process.OneBehind(c, last); err != nil || !slices.Equal(one.Holders, []process.ID{last}) {
			t.Errorf("%+v, %v; want the last one, %v", one, err, last)
		}
		ended := process.ID{PID: last.PID, Start: last.Start - 1}
		if one, err := process.OneBehind(c, ended); err != nil || !slices.Equal(one.Holders, peer.Holders[:1]) {
			t.Errorf("%+v, %v; want the first one of %v", one, err, peer.Holders)
		}
	}
}

// A connection that only one thread of a process has open belongs to the process.
func TestBehindThread(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	left := make(chan struct{})
	defer close(left)
	connected := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: this thread ends
		fd := -1
		err := unix.Unshare(unix.CLONE_FILES)
		if err == nil {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		}
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}})
		}
		connected <- err
		<-left
	}()
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if peer, err := process.Behind(c); err != nil || len(peer.Holders) != 1 || peer.Holders[0].PID != os.Getpid() {
		t.Errorf("%+v, %v; want process %d", peer, err, os.Getpid())
	}
}

// A connection from another machine has no process here.
func TestBehindRemote(t *testing.T) {
	c, _ := accept(t, os.Getuid())
	remote := elsewhere{c, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711}}
	if peer, err := process.Behind(remote); !errors.Is(err, process.ErrRemote) {
		t.Errorf("%+v, %v", peer, err)
	}
}

// elsewhere is a connection with another remote address.
type elsewhere struct {
	net.Conn

	at net.Addr
}

func (c elsewhere) RemoteAddr() net.Addr { return c.at }

// A process id with another start time is another process, which has no ancestors here.
func TestReusedNumberIsAnotherProcess(t *testing.T) {
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	earlier := process.ID{PID: self.PID, Start: self.Start - 1}
	if chain := process.Ancestors(earlier); len(chain) != 0 || process.Exists(earlier) {
		t.Errorf("a process that has ended has the ancestors %v", chain)
	}
}
