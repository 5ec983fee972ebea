package mcphttp_test

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
)

// The system says whose program has opened a connection, for both versions of IP.
// A program of another user is another's; tests that run as root try that too.
func TestSocketUser(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says whose a connection is")
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		defer l.Close()
		uids := []int{os.Getuid()}
		if os.Getuid() == 0 {
			uids = append(uids, 65534)
		}
		for _, uid := range uids {
			leave := connectAs(t, uid, l.Addr().String())
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			at, to := netip.MustParseAddrPort(c.RemoteAddr().String()), netip.MustParseAddrPort(c.LocalAddr().String())
			if got, err := mcphttp.SocketUser(at, to); got != uid || err != nil {
				t.Errorf("%s: user %d, %v; want %d", c.RemoteAddr(), got, err, uid)
			}
			if own := mcphttp.IsOwn(mcphttp.WithLocalUser(t.Context(), c)); own != (uid == os.Getuid()) {
				t.Errorf("a connection of user %d counts as the gate's own user's: %t", uid, own)
			}
			if got, err := mcphttp.SocketUser(to, netip.AddrPortFrom(at.Addr(), 1)); err == nil {
				t.Errorf("a listener at the same address was taken for a connection of user %d", got)
			}
			leave()
			c.Close()
		}
	}
}

// connectAs has a program of a user connect to an address, until leave is called.
func connectAs(t *testing.T, uid int, address string) (leave func()) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", `exec 3<>"/dev/tcp/$0/$1" && echo connected && read -r -u 0 _`, host, port)
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	cmd.Dir = "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("user %d did not connect to %s: %q, %v", uid, address, line, err)
	}
	return func() {
		in.Close()
		_ = cmd.Wait()
	}
}
