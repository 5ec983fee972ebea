//go:build unix

package http1

import "syscall"

const canProbe = true

// A probe looks at what has arrived on a connection.
type probe struct {
	raw         syscall.RawConn
	take, count func(fd uintptr) // made once, because every exchange needs one
	one         [1]byte
	nothing     bool // what take has found out
	some        bool // what count has found out
}

func newProbe(of syscall.Conn) *probe {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	p := &probe{raw: raw}
	p.take = func(fd uintptr) {
		_, err := syscall.Read(int(fd), p.one[:])
		p.nothing = err == syscall.EAGAIN
	}
	p.count = func(fd uintptr) {
		n, err := arrived(int(fd))
		p.some = err == nil && n > 0
	}
	return p
}

// quiet reports whether nothing has arrived: no byte, no end and no error. It takes the
// byte if there is one; the connection is of no use then.
func (p *probe) quiet() bool {
	return p.raw.Control(p.take) == nil && p.nothing // Read would mind an old deadline
}

// hasArrived reports whether a byte has arrived.
func (p *probe) hasArrived() bool { return p.raw.Control(p.count) == nil && p.some }
