package localdesk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/filelock"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

const (
	electEvery = 500 * time.Millisecond // how often a process tries to become the one that serves
	bindEvery  = 100 * time.Millisecond // how often that one tries to bind the address
	bindTries  = 30                     // before it takes another port
	endTimeout = 10 * time.Second       // for ending the sessions before that
	root       = 0                      // the user that can read the token anyway
)

// A Listener is where the inbox is served. Every gate of the user has one, and one
// of them accepts connections at a time: [Listener.Accept] of the others waits
// until it is their turn. It is always the same address, unless another program
// has taken that. Connections of other users are closed where the system says whose a
// connection is.
type Listener struct {
	desk        *Desk
	closed      chan struct{}
	endSessions func(context.Context) error
	userOf      func(net.Conn) (uid int, err error) // who has opened a connection; nil if the system does not say

	mu     sync.Mutex
	ended  bool
	at     *net.TCPAddr // where the inbox was when this process last looked
	leader *os.File     // locked; nil if another process serves
	served *os.File     // locked; nil if another process serves
	bound  net.Listener // nil if another process serves
}

// Listen returns the listener of this process. Close it, or no other process can
// serve as long as this one lives. Before the inbox moves to another address, endSessions
// is called: open pages of the inbox have sent their sessions to the program that has
// taken the address. If it fails, the inbox does not move yet.
func (d *Desk) Listen(endSessions func(context.Context) error) (*Listener, error) {
	at, err := d.address()
	if err != nil {
		return nil, fmt.Errorf("desk: %w", err)
	}
	l := &Listener{desk: d, closed: make(chan struct{}), endSessions: endSessions, at: at}
	if err := localuser.Check(); err != nil {
		d.log.Info("the inbox cannot refuse other users of this machine", "cause", err)
	} else {
		l.userOf = localuser.Of
	}
	return l, nil
}

// Addr implements [net.Listener]. It is where the inbox is, whichever process
// serves it.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound == nil {
		if at, err := l.desk.address(); err == nil {
			l.at = at
		}
	}
	return l.at
}

// Accept implements [net.Listener]. Only one goroutine may call it.
func (l *Listener) Accept() (net.Conn, error) {
	bound := l.current()
	if bound == nil {
		var err error
		if bound, err = l.takeOver(); err != nil {
			return nil, err
		}
	}
	for {
		conn, err := bound.Accept()
		switch {
		case err != nil && l.isClosed():
			return nil, net.ErrClosed
		case err != nil:
			return nil, err
		case l.admits(conn):
			return conn, nil
		}
		_ = conn.Close()
	}
}

// admits reports whether a connection is one of the user's, or of root, whose relays bring
// the browser of another system here. Others may have been sent the user's session: while
// nobody serves the inbox, anybody can bind its address, and open pages connect again.
func (l *Listener) admits(conn net.Conn) bool {
	if l.userOf == nil {
		return true
	}
	uid, err := l.userOf(conn)
	switch {
	case err != nil:
	case uid == os.Getuid(), uid == root:
		return true
	default:
		err = fmt.Errorf("user %d has opened it", uid)
	}
	ctx := logging.Limited(context.Background(), "another user", "")
	l.desk.log.WarnContext(ctx, "refused a connection to the inbox, which is for its user alone", "cause", err)
	return false
}

func (l *Listener) current() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bound
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// takeOver waits until no other process serves, and binds the address. Nothing but
// [Listener.Close] ends it: a gate can do its work without serving the inbox.
func (l *Listener) takeOver() (net.Listener, error) {
	logged := false
	for {
		err := l.lead()
		if err == nil {
			if bound, err := l.bind(); err != nil || bound != nil {
				return bound, err
			}
		} else if !errors.Is(err, filelock.ErrLocked) && !logged {
			l.desk.log.Warn("this process cannot serve the inbox", "err", err)
			logged = true
		}
		if !l.wait(electEvery) {
			return nil, net.ErrClosed
		}
	}
}

// wait returns false if the listener is closed meanwhile.
func (l *Listener) wait(long time.Duration) bool {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-l.closed:
		return false
	case <-timer.C:
		return true
	}
}

// lead makes this process the one that serves, or returns an error.
func (l *Listener) lead() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.leader != nil {
		return nil
	}
	lock, err := filelock.Lock(filepath.Join(l.desk.dir, leaderName))
	if err != nil {
		return err
	}
	l.leader = lock
	return nil
}

// bind binds the address. If another program has it, and keeps it, bind takes
// another port, which is the address of the inbox from then on. It returns nothing
// if none can be had.
func (l *Listener) bind() (net.Listener, error) {
	var err error
	for try := range bindTries {
		at, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			break
		}
		var bound net.Listener
		if bound, err = l.bindAt(at.String()); bound != nil || errors.Is(err, net.ErrClosed) {
			return bound, err
		}
		if try == 0 {
			l.desk.log.Warn("the address of the inbox is in use", "address", at.String(), "err", err)
		}
		if !l.wait(bindEvery) {
			return nil, net.ErrClosed
		}
	}
	return l.move(err)
}

// bindAt binds one address.
func (l *Listener) bindAt(address string) (net.Listener, error) {
	bound, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, errors.Join(net.ErrClosed, bound.Close())
	}
	if l.served, err = l.desk.publish(bound.Addr().String()); err != nil {
		return nil, errors.Join(err, bound.Close())
	}
	l.bound = bound
	if at, ok := bound.Addr().(*net.TCPAddr); ok {
		l.at = at
	}
	l.desk.log.Info("this process serves the inbox", "url", "http://"+bound.Addr().String())
	return bound, nil
}

// publish says where the inbox is served, until the file that it returns is closed. It
// locks the file after it has written the address: nobody takes the address of an earlier
// process, which a stranger may have by now, for that of this one.
func (d *Desk) publish(address string) (*os.File, error) {
	name := filepath.Join(d.dir, servedName)
	if err := os.WriteFile(name, []byte(address+"\n"), 0o600); err != nil {
		return nil, err
	}
	return filelock.Lock(name)
}

// move binds another address, and has all gates and the command line find it.
func (l *Listener) move(why error) (net.Listener, error) {
	address, err := l.relocate()
	if err != nil {
		l.desk.log.Warn("the inbox is not served", "err", errors.Join(why, err))
		return nil, nil //nolint:nilnil // it is tried again
	}
	l.desk.log.Warn("another program has the address of the inbox, which has moved; all sessions have ended", "url", "http://"+address)
	bound, err := l.bindAt(address)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return nil, nil //nolint:nilnil // it is tried again
	}
	return bound, err
}

// relocate gives the inbox another address. Before that it ends the sessions that the program at
// the former one may have.
func (l *Listener) relocate() (address string, err error) {
	if address, err = freeAddress(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := l.endSessions(ctx); err != nil {
		return "", fmt.Errorf("end sessions: %w", err)
	}
	file := filepath.Join(l.desk.dir, addressName)
	return address, l.desk.write(address, func(name string) error { return os.Rename(name, file) })
}

// Close implements [net.Listener]. From then on another process serves.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	close(l.closed)
	var errs []error
	if l.bound != nil {
		errs = append(errs, l.served.Close(), l.bound.Close()) // in this order: another may bind the address
	}
	if l.leader != nil {
		errs = append(errs, l.leader.Close())
	}
	return errors.Join(errs...)
}

// The ports from which an address is chosen. Systems give connections ports above
// these, so that no other program gets one of these by accident.
const (
	firstPort = 20000
	portCount = 10000
	portTries = 100
)

// freeAddress returns a loopback address that nobody uses.
func freeAddress() (string, error) {
	var last error
	for range portTries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(portCount))) //nolint:gosec // any port will do
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err == nil {
			return address, l.Close()
		}
		if last = err; !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			break
		}
	}
	return "", fmt.Errorf("find a port for the inbox: %w", last)
}
