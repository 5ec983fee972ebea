// Package localhost knows the names of this machine, and binds both of its addresses.
package localhost

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
)

// Is reports whether a host, in lower case and without a port, is this machine.
func Is(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Both returns a listener that has the port of l, which listens at 127.0.0.1, on both loopback addresses.
// Browsers may use either of them for localhost, and must not reach another program there. After an error, l is
// still open.
func Both(l net.Listener) (net.Listener, error) {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	six, err := new(net.ListenConfig).Listen(context.Background(), "tcp6", net.JoinHostPort("::1", port))
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return l, nil // without IPv6, browsers cannot use it either
	}
	if err != nil {
		return nil, err
	}
	p := &pair{Listener: l, other: six, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, one := range []net.Listener{l, six} {
		p.running.Go(func() { p.acceptFrom(one) })
	}
	return p, nil
}

// A pair is two listeners that look like the first one.
type pair struct {
	net.Listener

	other    net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
	running  sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func (p *pair) acceptFrom(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case p.accepted <- accepted{conn, err}:
		case <-p.closed:
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept implements [net.Listener].
func (p *pair) Accept() (net.Conn, error) {
	select {
	case a := <-p.accepted:
		return a.conn, a.err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pair) Close() (err error) {
	p.once.Do(func() {
		close(p.closed)
		err = errors.Join(p.other.Close(), p.Listener.Close()) // whoever gets the first one gets both
		p.running.Wait()
	})
	return err
}
