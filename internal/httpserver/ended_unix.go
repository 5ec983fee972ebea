//go:build unix && !aix

package httpserver

import (
	"errors"
	"net"
	"syscall"
)

// hasEnded reports whether the peer has closed the connection. It consumes no input and
// does not block.
func hasEnded(conn net.Conn) bool {
	below, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return errors.Is(err, net.ErrClosed)
	}
	var n int
	var one [1]byte
	if raw.Control(func(fd uintptr) { n, _, err = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT) }) != nil {
		return true // closed on this side
	}
	return n <= 0 && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
}
