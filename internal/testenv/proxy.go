package testenv

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A Fault is a fault of the network. The zero Fault is a working network.
type Fault struct {
	Up, Down Way  // from clients to the server, and back
	Refuse   bool // new connections are reset
}

// Partition is a partitioned network: nothing arrives in either direction, and neither side
// gets an error.
func Partition() Fault { return Fault{Up: Way{Hold: true}, Down: Way{Hold: true}} }

// A Way is the fault of one direction.
type Way struct {
	Delay time.Duration // the delay of each piece of data

	// Hold delays all data and ends of streams until the fault changes, like lost packets that
	// TCP sends again.
	Hold bool

	// Drop discards all data. A connection that lost data is reset when the fault changes.
	Drop bool

	// Truncate and Reset end a connection after this many bytes, counted from the time when
	// the fault is set: Truncate with an orderly end, Reset with a reset. Zero does not end
	// it; use [Proxy.Cut] to reset connections at once.
	Truncate, Reset int
}

// A Proxy forwards connections to a server and simulates faults of the network: it discards,
// delays and holds back data, ends connections in the middle of a message, and resets them,
// until it is healed.
type Proxy struct {
	target   string
	listener net.Listener
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed when fault changes
	links   map[*link]bool
	lost    int
	held    int
}

// StartProxy starts a proxy to a server, on a new port.
func StartProxy(ctx context.Context, target string) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, changed: make(chan struct{}), links: make(map[*link]bool)}
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() { p.accept(ctx) })
	return p, nil
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set changes the fault, also of open connections.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Heal ends every fault.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Cut resets every connection on both sides. New connections are possible unless the fault
// refuses them.
func (p *Proxy) Cut() {
	for _, l := range p.all() {
		l.reset()
	}
}

// Connections returns the number of open connections.
func (p *Proxy) Connections() int { return len(p.all()) }

// Lost returns how many connections have lost data so far.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) countLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost++
}

// Held returns how many pieces of data are held back.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (p *Proxy) hold(pieces int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += pieces
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var links []*link
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// Close ends every connection and the proxy.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	return err
}

// state returns the current fault, and a channel that is closed when it changes.
func (p *Proxy) state() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		client, ok := conn.(*net.TCPConn)
		if !ok {
			continue // a TCP listener accepts only TCP connections
		}
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	l := &link{proxy: p, client: client, over: make(chan struct{})}
	if f, _ := p.state(); f.Refuse || !l.dial(ctx) {
		abort(client)
		return
	}
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	if ctx.Err() != nil {
		l.reset() // the proxy was closed before the connection was registered
	}
	var both sync.WaitGroup
	both.Go(func() {
		l.pump(flow{from: client, to: l.server, way: func(f Fault) Way { return f.Up }})
	})
	both.Go(func() {
		l.pump(flow{from: l.server, to: client, way: func(f Fault) Way { return f.Down }})
	})
	both.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// A link is one connection, in two halves.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	ended, lost    sync.Once
	over           chan struct{} // closed when the connection has ended
}

func (l *link) dial(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.proxy.target)
	if err != nil {
		return false
	}
	server, ok := conn.(*net.TCPConn)
	l.server = server
	return ok
}

// abort closes a connection with a reset.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (l *link) reset() {
	l.ended.Do(func() {
		close(l.over)
		abort(l.client)
		abort(l.server)
	})
}

func (l *link) close() {
	l.ended.Do(func() {
		close(l.over)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// A flow is one direction of a link.
type flow struct {
	from, to *net.TCPConn
	way      func(Fault) Way

	since <-chan struct{} // the fault under which sent is counted
	sent  int
}

// errLost ends a flow whose connection was closed deliberately.
var errLost = errors.New("lost on purpose")

// pump forwards data until one side ends.
func (l *link) pump(f flow) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := f.from.Read(buffer)
		if n > 0 && l.pass(&f, buffer[:n]) != nil {
			return
		}
		if err != nil {
			_ = l.pass(&f, nil) // faults also apply to the end of a stream
			return
		}
	}
}

// pass forwards one piece of data under the current fault.
func (l *link) pass(f *flow, piece []byte) error {
	fault, changed := l.proxy.state()
	way := f.way(fault)
	if f.since != changed {
		f.since, f.sent = changed, 0
	}
	switch {
	case way.Hold:
		l.proxy.hold(+1)
		goOn := l.wait(changed)
		l.proxy.hold(-1)
		if !goOn {
			return errLost
		}
		return l.pass(f, piece)
	case way.Drop:
		l.lose(changed)
		return nil
	case way.Delay > 0 && !l.linger(way.Delay):
		return errLost
	}
	limit := max(way.Truncate, way.Reset)
	if limit == 0 || f.sent+len(piece) < limit {
		return f.write(piece)
	}
	_, _ = f.to.Write(piece[:limit-f.sent])
	l.lost.Do(l.proxy.countLost)
	if way.Reset > 0 {
		l.reset()
	} else {
		l.close()
	}
	return errLost
}

// write writes a piece of data, or the end of the stream if the piece is nil.
func (f *flow) write(piece []byte) error {
	if piece == nil {
		return f.to.CloseWrite()
	}
	f.sent += len(piece)
	_, err := f.to.Write(piece)
	return err
}

// lose resets the link when the fault changes, because the link has lost data.
func (l *link) lose(changed <-chan struct{}) {
	l.lost.Do(func() {
		l.proxy.countLost()
		l.proxy.running.Go(func() {
			if l.wait(changed) {
				l.reset()
			}
		})
	})
}

// wait waits until the channel is closed. It returns false if the link ends first.
func (l *link) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-l.over:
		return false
	}
}

// linger waits for a duration. It returns false if the link ends first.
func (l *link) linger(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.over:
		return false
	}
}
