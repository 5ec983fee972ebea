//go:build unix && !aix

package listener

import (
	"errors"
	"net"
	"syscall"
)

// hasEnded reports whether the peer of a connection is known to have closed it. It reads
// nothing that has arrived, and does not wait.
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
		return true // this side has closed it
	}
	return n <= 0 && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
}
