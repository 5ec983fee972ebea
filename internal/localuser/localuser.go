// Package localuser says which user of this machine has opened a connection to the
// process. Not every system lets a program know that: see [Check].
package localuser

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// Of returns the user whose program has the other end of a connection. It returns an
// error if that program is not on this machine, has closed the connection, or is not to be
// found on a system that does not say.
func Of(c net.Conn) (uid int, err error) {
	return ownerOf(c.RemoteAddr(), c.LocalAddr())
}

// ownerOf returns the user whose socket at one address is connected to the other.
func ownerOf(at, to net.Addr) (uid int, err error) {
	from, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return 0, fmt.Errorf("whose a connection is: %w", err)
	}
	other, err := netip.ParseAddrPort(to.String())
	if err != nil {
		return 0, fmt.Errorf("whose a connection is: %w", err)
	}
	uid, err = socketUser(from, other)
	if err != nil {
		return 0, fmt.Errorf("whose a connection is: %w", err)
	}
	return uid, nil
}

// Check returns an error if the system does not say who has opened a connection. It opens one
// to find that out.
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
