// Package localuser finds out which user of this machine has opened a connection to the process:
// over TCP, or at a Unix socket of [Listen]. Only Linux supports that: see [Check].
package localuser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/user"
	"strconv"
)

// Find returns the uid of a user, who is given by name or uid.
func Find(name string) (uid int, err error) {
	if uid, err := strconv.Atoi(name); err == nil && uid >= 0 {
		return uid, nil // the uid need not have a name
	}
	found, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	//mutate:swap "Uid" `Gid + "1"` internal/app.TestNamedUsersReachTheInbox os_users lets in users that it does not name
	return strconv.Atoi(found.Uid)
}

// A Socket is the other end of a connection to the process.
type Socket struct {
	UID   int
	Inode uint32 // identifies the socket among the files of processes
}

// Errors of [SocketOf].
var (
	ErrNoSocket = errors.New("no such socket") // not on this machine, or no longer
	ErrClosed   = errors.New("the process has closed the socket")
)

// Of returns the uid of the process at the other end of a connection. It returns an error if that
// process is not on this machine or has closed the connection, or if the system does not support
// it.
func Of(c net.Conn) (uid int, err error) {
	s, err := SocketOf(c)
	return s.UID, err
}

// SocketOf returns the socket at the other end of a connection. It returns the same errors as [Of].
func SocketOf(c net.Conn) (Socket, error) { return socketOf(c.RemoteAddr(), c.LocalAddr()) }

// socketOf returns the socket at one address that is connected to the other.
func socketOf(at, to net.Addr) (s Socket, err error) {
	from, err := netip.ParseAddrPort(at.String())
	if err == nil {
		var other netip.AddrPort
		if other, err = netip.ParseAddrPort(to.String()); err == nil {
			s, err = findSocket(from, other)
		}
	}
	if err != nil {
		return Socket{}, fmt.Errorf("identify connection owner: %w", err)
	}
	return s, nil
}

// Check returns an error if the system does not support [Of]. It opens a connection to find out.
func Check() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = socketOf(c.LocalAddr(), c.RemoteAddr())
	return err
}
