package localuser

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// socketScheme begins the address of a Unix socket in the configuration.
const socketScheme = "unix:"

// SocketPath returns the path in the address of a Unix socket, such as unix:/run/agents.sock.
func SocketPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, socketScheme)
}

// Inside is the address of agents that the process itself connects. It is no path.
const Inside = socketScheme

// A Peer is the name of the user at the other end of a connection over a Unix socket. It is the
// remote address of the connection.
type Peer string

// peerPrefix begins the text of a Peer. No address of a network begins like that.
const peerPrefix = "local:"

// Network implements [net.Addr].
func (Peer) Network() string { return "unix" }

// String implements [net.Addr].
func (p Peer) String() string { return peerPrefix + string(p) }

// IsPeer reports whether a remote address is the text of a [Peer].
func IsPeer(address string) bool { return strings.HasPrefix(address, peerPrefix) }

// Listen returns a listener at a Unix socket. It accepts connections of the process's own user and
// of users, which are names or numbers; refused is called for any other. The remote address of a
// connection is a [Peer], as the kernel reports it: what the client sends cannot change it.
func Listen(path string, users []string, refused func(error)) (net.Listener, error) {
	l := &listener{names: map[int]string{}, refused: refused}
	for _, name := range append([]string{fmt.Sprint(os.Getuid())}, users...) {
		uid, err := Find(name)
		if err != nil {
			return nil, err
		}
		l.names[uid] = name
	}
	var err error
	if l.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); errors.Is(err, syscall.EADDRINUSE) && isAbandoned(path) {
		_ = os.Remove(path) // otherwise the next line fails again
		l.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	}
	if err != nil {
		return nil, err
	}
	// Accept checks the user. Permissions could not name one user of another group.
	if err := syscall.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// isAbandoned reports whether a process that was killed has left this socket behind.
func isAbandoned(path string) bool {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// A listener accepts connections of some users.
type listener struct {
	*net.UnixListener

	names   map[int]string // by uid
	refused func(error)
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(c)
		if err == nil {
			//mutate:swap `name, ok := l.names[uid]; ok` `name := l.names[uid]; true` TestListenRefusesOtherUsers every user of the machine is an agent
			if name, ok := l.names[uid]; ok {
				return &peerConn{c, Peer(name)}, nil
			}
			err = fmt.Errorf("opened by user %d", uid)
		}
		_ = c.Close()
		l.refused(err)
	}
}

// A peerConn is a connection whose remote address is a user.
type peerConn struct {
	*net.UnixConn

	peer Peer
}

// RemoteAddr implements [net.Conn].
func (c *peerConn) RemoteAddr() net.Addr { return c.peer }
