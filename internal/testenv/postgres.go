package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a PostgreSQL server with an empty database.
type Postgres struct {
	bin     string // the directory of the programs
	dir     string
	port    int
	as      *account // nil means the user who runs the test
	server  *process
	log     *bytes.Buffer
	schemas atomic.Int64
}

// An account is a user of the system.
type account struct{ uid, gid uint32 }

const startTimeout = 30 * time.Second

// StartPostgres starts a server on a new port. It returns [ErrUnavailable]
// if PostgreSQL is not installed.
func StartPostgres(ctx context.Context) (*Postgres, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin}
	if p.port, err = FreePort(ctx); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "postgres"); err != nil {
		return nil, err
	}
	err = p.initialize(ctx)
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

// postgresPrograms returns the directory of the newest installed version.
func postgresPrograms() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL: %w: nothing in /usr/lib/postgresql; install Debian's package postgresql", ErrUnavailable)
	}
	return filepath.Dir(slices.Max(found)), nil
}

// FreePort returns an unused port of 127.0.0.1. The system does not assign it to other
// sockets, so it is still free when a server starts a moment later.
func FreePort(ctx context.Context) (int, error) {
	for {
		port := lowestPort + rand.IntN(highestPort-lowestPort) // a port; not security-sensitive
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case err == nil:
			return port, l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return 0, err
		}
	}
}

// The system does not assign ports in this range. So a server finds its port free when it is
// started again.
const lowestPort, highestPort = 15_000, 30_000

// initialize creates an empty database. The server refuses to run as root, so root runs it as
// the user postgres.
func (p *Postgres) initialize(ctx context.Context) error {
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return fmt.Errorf("PostgreSQL: %w: %w", ErrUnavailable, err)
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID, os.Chown(p.dir, int(uid), int(gid))); err != nil {
			return err
		}
		p.as = &account{uid: uint32(uid), gid: uint32(gid)}
	}
	out, err := p.command(ctx, "initdb", "-D", p.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-N").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	c.Dir = p.dir
	c.SysProcAttr = attributes(p.as)
	return c
}

// Start starts the server again after Stop or Kill, and waits until it is ready. It tries
// again if the server fails because its previous process has not released all resources yet.
func (p *Postgres) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.server == nil || p.server.over() {
			if err := p.launch(ctx); err != nil {
				return err
			}
		}
		conn, err := pgx.Connect(ctx, p.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			stopped := p.Kill()
			return fmt.Errorf("PostgreSQL did not start: %w: %w: %s", err, stopped, p.log)
		}
	}
}

func (p *Postgres) launch(ctx context.Context) (err error) {
	c := p.command(context.WithoutCancel(ctx), "postgres", "-D", p.data(), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200")
	p.log = new(bytes.Buffer)
	c.Stdout, c.Stderr = p.log, p.log
	p.server, err = launch(c)
	return err
}

// URL returns the URL of the server's database.
func (p *Postgres) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

// Schema creates a schema for one test and returns its URL. The schema is dropped when the
// test has ended.
func (p *Postgres) Schema(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", p.schemas.Add(1))
	p.exec(t.Context(), t, "CREATE SCHEMA "+name)
	t.Cleanup(func() { p.exec(context.WithoutCancel(t.Context()), t, "DROP SCHEMA "+name+" CASCADE") })
	return p.URL() + "&search_path=" + url.QueryEscape(name)
}

func (p *Postgres) exec(ctx context.Context, t testing.TB, statement string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Error(err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Kill ends the server as a crash does. Acknowledged writes are kept.
func (p *Postgres) Kill() error { return p.signal(syscall.SIGQUIT) }

// Crash is like Kill, but no process of the server can send its clients a last message.
func (p *Postgres) Crash() error {
	if p.server == nil {
		return nil
	}
	pid := p.server.Pid
	// The processes are in separate groups, so each must be found.
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return err
	}
	err = p.server.Kill()
	for child := range strings.FieldsSeq(string(list)) {
		n, _ := strconv.Atoi(child)
		if process, missing := os.FindProcess(n); missing == nil && n > 0 {
			_ = process.Kill() // fails if the process has ended
		}
	}
	<-p.server.ended
	p.server = nil
	return err
}

// Addr returns the address of the server.
func (p *Postgres) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Stop ends the server and deletes its data.
func (p *Postgres) Stop() error { return errors.Join(p.signal(syscall.SIGINT), os.RemoveAll(p.dir)) }

// signal ends the server with a signal, if it runs.
func (p *Postgres) signal(s syscall.Signal) error {
	if p.server == nil {
		return nil
	}
	err := p.server.end(s)
	p.server = nil
	return err
}
