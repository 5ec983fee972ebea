//go:build unix

package http1

import "syscall"

const canProbe = true

// A probe looks at what has arrived on a connection.
type probe struct {
	raw         syscall.RawConn
	take, count func(fd uintptr) // made once, because every exchange needs one
	one         [1]byte
	arrived     int // what count has counted
	err         error
}

func newProbe(of syscall.Conn) *probe {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	p := &probe{raw: raw}
	p.take = func(fd uintptr) { _, p.err = syscall.Read(int(fd), p.one[:]) }
	p.count = func(fd uintptr) { p.arrived, p.err = arrived(int(fd)) }
	return p
}

// quiet reports whether nothing has arrived: no byte, no end and no error. It takes the
// byte if there is one; the connection is of no use then.
func (p *probe) quiet() bool {
	return p.raw.Control(p.take) == nil && p.err == syscall.EAGAIN // Read would mind an old deadline
}

// hasArrived reports whether a byte has arrived.
func (p *probe) hasArrived() bool {
	return p.raw.Control(p.count) == nil && p.err == nil && p.arrived > 0
}
