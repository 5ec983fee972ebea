//go:build unix

package http1

import "syscall"

const canProbe = true

// newProbe returns a function that reports whether nothing has arrived on a
// connection: no byte, no end and no error. It takes the byte if there is one; the
// connection is of no use then.
func newProbe(of syscall.Conn) func() bool {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	var one [1]byte
	quiet := false
	look := func(fd uintptr) {
		_, err := syscall.Read(int(fd), one[:])
		quiet = err == syscall.EAGAIN
	}
	return func() bool { return raw.Control(look) == nil && quiet } // Read would mind an old deadline
}
