//go:build unix

package http1

import "syscall"

// A probe finds out whether bytes have arrived on a connection, without blocking.
type probe struct {
	raw         syscall.RawConn
	take, count func(fd uintptr) // made once, because every exchange uses them
	one         [1]byte
	readBlocked bool // result of take
	hasBytes    bool // result of count
}

func newProbe(of syscall.Conn) *probe {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	p := &probe{raw: raw}
	p.take = func(fd uintptr) {
		_, err := syscall.Read(int(fd), p.one[:])
		p.readBlocked = err == syscall.EAGAIN
	}
	p.count = func(fd uintptr) {
		n, err := bytesAvailable(int(fd))
		p.hasBytes = err == nil && n > 0
	}
	return p
}

// nothingArrived reports whether no byte, end or error has arrived. It consumes a byte; after that,
// the connection must be closed.
func (p *probe) nothingArrived() bool {
	return p.raw.Control(p.take) == nil && p.readBlocked // RawConn.Read would fail after an old deadline
}

// hasArrived reports whether a byte has arrived.
func (p *probe) hasArrived() bool { return p.raw.Control(p.count) == nil && p.hasBytes }
