package localuser_test

import (
	"net"
	"os"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// visit returns a connection that a program of a user has opened, and that program.
func visit(t *testing.T, uid int, l net.Listener) (net.Conn, testenv.Visitor) {
	t.Helper()
	visitor := testenv.ConnectAs(t, uid, l.Addr().String(), "hello")
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, visitor
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

// users returns users whose programs the test can start: root can start those of others.
func users() []int {
	if os.Getuid() == 0 {
		return []int{0, testenv.Nobody}
	}
	return []int{os.Getuid()}
}

// The system says whose program has opened a connection, for both versions of IP.
func TestOf(t *testing.T) {
	if err := localuser.Check(); err != nil {
		t.Fatal(err)
	}
	for _, l := range listen(t) {
		for _, uid := range users() {
			c, _ := visit(t, uid, l)
			if got, err := localuser.Of(c); got != uid || err != nil {
				t.Errorf("%s: user %d, %v; want %d", c.RemoteAddr(), got, err, uid)
			}
		}
	}
}

// The kernel says that root has a socket that its program has closed. It is nobody's: what
// another user sends before that must not count as root's.
func TestOfClosedConnection(t *testing.T) {
	for _, l := range listen(t) {
		for _, uid := range users() {
			c, visitor := visit(t, uid, l)
			visitor.Leave()
			if got, err := localuser.Of(c); err == nil {
				t.Errorf("a connection that user %d has closed is that of user %d", uid, got)
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
		if got, err := localuser.Of(to{c, c.LocalAddr(), l.Addr()}); got != os.Getuid() || err != nil {
			t.Errorf("the connection is that of user %d, %v", got, err)
		}
		if got, err := localuser.Of(to{c, l.Addr(), &net.TCPAddr{IP: l.Addr().(*net.TCPAddr).IP, Port: 1}}); err == nil {
			t.Errorf("a listener was taken for a connection of user %d", got)
		}
	}
}

// A to is a connection with other addresses.
type to struct {
	net.Conn

	remote, local net.Addr
}

func (c to) RemoteAddr() net.Addr { return c.remote }
func (c to) LocalAddr() net.Addr  { return c.local }
