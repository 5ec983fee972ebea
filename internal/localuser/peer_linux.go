package localuser

import (
	"net"
	"syscall"
)

// peerUID returns the user that has opened a connection over a Unix socket.
func peerUID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return int(peer.Uid), nil
}
