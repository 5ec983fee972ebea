package localuser_test

import (
	"net"
	"os"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// connectAs returns a connection that a program of a user has opened, and that program.
func connectAs(t *testing.T, uid int, l net.Listener) (net.Conn, testenv.Visitor) {
	t.Helper()
	program := testenv.ConnectAs(t, uid, l.Addr().String(), "hello")
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, program
}

// listen returns a listener for each version of IP that the machine has.
func listen(t *testing.T) (all []net.Listener) {
	t.Helper()
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		t.Cleanup(func() { l.Close() })
		all = append(all, l)
	}
	return all
}

// users returns users whose programs the test can start: root can start programs of all users.
func users() []int {
	if os.Getuid() == 0 {
		return []int{0, testenv.Nobody}
	}
	return []int{os.Getuid()}
}

// The uid of a connection is that of the program that opened it, for both versions of IP.
func TestOf(t *testing.T) {
	if err := localuser.Check(); err != nil {
		t.Fatal(err)
	}
	for _, l := range listen(t) {
		for _, uid := range users() {
			c, _ := connectAs(t, uid, l)
			if got, err := localuser.Of(c); got != uid || err != nil {
				t.Errorf("%s: user %d, %v; want %d", c.RemoteAddr(), got, err, uid)
			}
		}
	}
}

// The kernel reports that a closed socket belongs to root. The gate must not believe that: another
// user may have sent data before closing it.
func TestOfClosedConnection(t *testing.T) {
	for _, l := range listen(t) {
		for _, uid := range users() {
			c, program := connectAs(t, uid, l)
			program.Leave()
			if got, err := localuser.Of(c); err == nil {
				t.Errorf("a connection that user %d has closed belongs to user %d", uid, got)
			}
		}
	}
}

// A listener at the same address is not the other end of a connection.
func TestOfListener(t *testing.T) {
	for _, l := range listen(t) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := localuser.Of(readdressedConn{c, c.LocalAddr(), l.Addr()}); got != os.Getuid() || err != nil {
			t.Errorf("the connection belongs to user %d, %v", got, err)
		}
		if got, err := localuser.Of(readdressedConn{c, l.Addr(), &net.TCPAddr{IP: l.Addr().(*net.TCPAddr).IP, Port: 1}}); err == nil {
			t.Errorf("the listener counts as a connection of user %d", got)
		}
	}
}

// A readdressedConn is a connection with other addresses.
type readdressedConn struct {
	net.Conn

	remote, local net.Addr
}

func (c readdressedConn) RemoteAddr() net.Addr { return c.remote }
func (c readdressedConn) LocalAddr() net.Addr  { return c.local }
