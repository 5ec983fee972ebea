// Package localuser finds out which user of this machine has opened a TCP connection to the
// process. Only Linux supports that: see [Check].
package localuser

import (
	"context"
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

// Of returns the uid of the process at the other end of a connection. It returns an error if that
// process is not on this machine or has closed the connection, or if the system does not support
// it.
func Of(c net.Conn) (uid int, err error) {
	return ownerOf(c.RemoteAddr(), c.LocalAddr())
}

// ownerOf returns the uid of the socket at one address that is connected to the other.
func ownerOf(at, to net.Addr) (uid int, err error) {
	from, err := netip.ParseAddrPort(at.String())
	if err == nil {
		var other netip.AddrPort
		if other, err = netip.ParseAddrPort(to.String()); err == nil {
			uid, err = socketUser(from, other)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("identify connection owner: %w", err)
	}
	return uid, nil
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
	_, err = ownerOf(c.LocalAddr(), c.RemoteAddr())
	return err
}
