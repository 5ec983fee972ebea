package localdesk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

const (
	electInterval      = 500 * time.Millisecond // between attempts to become the serving process
	bindInterval       = 100 * time.Millisecond // between attempts to bind the address
	bindTries          = 30                     // before the inbox moves to another port
	endSessionsTimeout = 10 * time.Second
	root               = 0 // the user id of root, which can read the token anyway
)

// A Listener serves the inbox. Every gate of the user has one, but only one process
// accepts connections at a time: [Listener.Accept] of the others waits for its turn.
// The address stays the same unless another program has taken it. The listener closes
// connections of other users, where the system tells the user of a connection.
type Listener struct {
	desk        *Desk
	ctx         context.Context // ends when the listener is closed
	cancel      context.CancelFunc
	endSessions func(context.Context) error
	userOf      func(net.Conn) (uid int, err error) // nil if the system cannot tell
	users       []int                               // the users that may connect

	mu     sync.Mutex
	addr   *net.TCPAddr // the address of the inbox when this process last read it
	leader *os.File     // the lock on leaderName; nil if another process serves
	served *os.File     // the lock on servedName; nil if another process serves
	bound  net.Listener // nil if another process serves
}

// Listen returns the listener of this process. Close it to let another process serve.
// The listener accepts connections of the gate's own user and of users, which are names or
// numbers. Listen calls endSessions before the inbox moves to another address, because
// open pages have sent their session cookies to the program at the old address. If
// endSessions fails, the inbox stays where it is and tries again later.
func (d *Desk) Listen(users []string, endSessions func(context.Context) error) (*Listener, error) {
	addr, err := d.address()
	if err != nil {
		return nil, fmt.Errorf("desk: %w", err)
	}
	l := &Listener{desk: d, endSessions: endSessions, addr: addr, users: []int{os.Getuid(), root}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := localuser.Check(); err != nil {
		d.log.Info("the inbox cannot refuse other users of this machine", "err", err)
		return l, nil
	}
	l.userOf = localuser.Of
	for _, name := range users {
		uid, err := localuser.Find(name)
		if err != nil {
			return nil, fmt.Errorf("desk: operators.os_users: %w", err)
		}
		l.users = append(l.users, uid)
	}
	return l, nil
}

// Addr implements [net.Listener]. It returns the address of the inbox, even if another
// process serves it.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound == nil {
		if addr, err := l.desk.address(); err == nil {
			l.addr = addr
		}
	}
	return l.addr
}

// Accept implements [net.Listener]. Only one goroutine may call it.
func (l *Listener) Accept() (net.Conn, error) {
	bound := l.current()
	if bound == nil {
		var err error
		if bound, err = l.waitForTurn(); err != nil {
			return nil, err
		}
	}
	for {
		conn, err := bound.Accept()
		switch {
		case err != nil && l.ctx.Err() != nil:
			return nil, net.ErrClosed
		case err != nil:
			return nil, err
		case l.accepts(conn):
			return conn, nil
		}
		_ = conn.Close()
	}
}

// accepts reports whether the user of a connection may use the inbox. Root may, because
// its relays forward the browser of another system, such as the host of WSL. Other users
// must not: one of them may have bound the address while no gate served it, and collected
// the session cookie of an open page.
func (l *Listener) accepts(conn net.Conn) bool {
	if l.userOf == nil {
		return true
	}
	uid, err := l.userOf(conn)
	switch {
	case err != nil:
	//mutate:swap "slices.Contains(l.users, uid)" "slices.Contains(l.users, uid), uid >= root" TestOtherUsersAreRefused other users of the machine use the inbox of a desk
	case slices.Contains(l.users, uid):
		return true
	default:
		err = fmt.Errorf("opened by user %d", uid)
	}
	ctx := logging.Limited(context.Background(), "another user", "")
	l.desk.log.WarnContext(ctx, "refused a connection to the inbox of a user that is not in operators.os_users", "err", err)
	return false
}

func (l *Listener) current() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bound
}

// waitForTurn waits until this process may serve, and binds the address. Only
// [Listener.Close] ends it early: a gate works without serving the inbox.
func (l *Listener) waitForTurn() (net.Listener, error) {
	logged := false
	for {
		err := l.lockLeader()
		if err == nil {
			if bound, err := l.bind(); err != nil || bound != nil {
				return bound, err
			}
		} else if !errors.Is(err, ErrLocked) && !logged {
			l.desk.log.Warn("this process cannot serve the inbox", "err", err)
			logged = true
		}
		if !pause.For(l.ctx, electInterval) {
			return nil, net.ErrClosed
		}
	}
}

// lockLeader makes this process the serving one, or returns an error.
func (l *Listener) lockLeader() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || l.leader != nil {
		return nil
	}
	lock, err := Lock(filepath.Join(l.desk.dir, leaderName))
	if err != nil {
		return err
	}
	l.leader = lock
	return nil
}

// bind binds the address of the inbox. If another program keeps it, bind moves the inbox
// to another port. It returns nil without an error if the caller should try again later.
func (l *Listener) bind() (net.Listener, error) {
	var err error
	for try := range bindTries {
		address := l.Addr().String()
		var bound net.Listener
		if bound, err = l.bindAt(address); bound != nil || errors.Is(err, net.ErrClosed) {
			return bound, err
		}
		if try == 0 {
			l.desk.log.Warn("the address of the inbox is in use", "address", address, "err", err)
		}
		if !pause.For(l.ctx, bindInterval) {
			return nil, net.ErrClosed
		}
	}
	address, moveErr := l.changeAddress()
	if moveErr != nil {
		l.desk.log.Warn("the inbox is not served", "err", errors.Join(err, moveErr))
		return nil, nil // waitForTurn tries again
	}
	l.desk.log.Warn("another program uses the address of the inbox; the inbox has moved, and all sessions have ended", "url", "http://"+address)
	bound, err := l.bindAt(address)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return nil, nil // waitForTurn tries again
	}
	return bound, err
}

// bindAt binds one address, and its port at localhost.
func (l *Listener) bindAt(address string) (net.Listener, error) {
	first, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	bound, err := localhost.Both(first) // the inbox is opened at localhost for passkeys
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, errors.Join(net.ErrClosed, bound.Close())
	}
	if l.served, err = l.desk.publish(bound.Addr().String()); err != nil {
		return nil, errors.Join(err, bound.Close())
	}
	l.bound = bound
	if addr, ok := bound.Addr().(*net.TCPAddr); ok {
		l.addr = addr
	}
	l.desk.log.Info("this process serves the inbox", "url", "http://"+bound.Addr().String())
	return bound, nil
}

// publish writes the address at which the inbox is served, and on a second line whether it
// accepts the secret of the person. Both count until the returned file is closed. The lock comes after the write, because the file may still hold
// the address of an earlier process, which another program may use by now.
func (d *Desk) publish(address string) (*os.File, error) {
	name := filepath.Join(d.dir, servedName)
	if d.signIn != "" {
		address += "\n" + signInName
	}
	if err := os.WriteFile(name, []byte(address+"\n"), 0o600); err != nil {
		return nil, err
	}
	return Lock(name)
}

// changeAddress gives the inbox another address. First it ends all sessions, because the
// program at the old address may have received them.
func (l *Listener) changeAddress() (address string, err error) {
	if address, err = freeAddress(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), endSessionsTimeout)
	defer cancel()
	//mutate:swap "l.endSessions(ctx)" "ctx.Err()" TestMoveEndsSessions stolen sessions outlive the move of the inbox
	if err := l.endSessions(ctx); err != nil {
		return "", fmt.Errorf("end sessions: %w", err)
	}
	file := filepath.Join(l.desk.dir, addressName)
	return address, l.desk.write(address, func(name string) error { return os.Rename(name, file) })
}

// Close implements [net.Listener]. Another process then serves the inbox.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil
	}
	l.cancel()
	var errs []error
	if l.bound != nil {
		errs = append(errs, l.served.Close(), l.bound.Close()) // in this order: once unbound, another program may take the address
	}
	if l.leader != nil {
		errs = append(errs, l.leader.Close())
	}
	return errors.Join(errs...)
}

// The address is chosen from these ports. They are below the ephemeral ports that systems
// give to connections, so that no other program gets one by accident.
const (
	firstPort = 20000
	portCount = 10000
	portTries = 100
)

// freeAddress returns an unused loopback address.
func freeAddress() (string, error) {
	var last error
	for range portTries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(portCount))) // any port will do
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
