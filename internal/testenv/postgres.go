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
	as      *account // nil for whoever runs the test
	server  *process
	log     *bytes.Buffer
	schemas atomic.Int64
}

// An account is a user of the system.
type account struct{ uid, gid uint32 }

const startTimeout = 30 * time.Second

// StartPostgres starts a server on a port of its own. It needs Debian's
// package, which it installs if it may. It returns [ErrUnavailable] if there
// is none.
func StartPostgres(ctx context.Context) (*Postgres, error) {
	bin, err := postgresPrograms(ctx)
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

func postgresPrograms(ctx context.Context) (string, error) {
	find := func() string {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		slices.Sort(found)
		if len(found) == 0 {
			return ""
		}
		return filepath.Dir(found[len(found)-1])
	}
	bin := find()
	if bin == "" && os.Getuid() == 0 {
		install := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", "postgresql")
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("PostgreSQL: %w: %w: %s", ErrUnavailable, err, out)
		}
		bin = find()
	}
	if bin == "" {
		return "", fmt.Errorf("PostgreSQL: %w: nothing in /usr/lib/postgresql; install Debian's package postgresql", ErrUnavailable)
	}
	return bin, nil
}

// FreePort returns a port of 127.0.0.1 that nobody uses. The system does not hand it out
// to others, so that a server which is started a moment later finds it free.
func FreePort(ctx context.Context) (int, error) {
	for {
		port := lowestPort + rand.IntN(highestPort-lowestPort) //nolint:gosec // a port; not security-sensitive
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case err == nil:
			return port, l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return 0, err
		}
	}
}

// Ports between these are not handed out by the system. A server that is stopped
// for a while finds its port free when it is started again.
const lowestPort, highestPort = 15_000, 30_000

// initialize makes an empty database. The server refuses to run as root, so
// that root runs it as the user postgres.
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
	c := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...) //nolint:gosec // the system's own programs
	c.Dir = p.dir
	c.SysProcAttr = attributes(p.as)
	return c
}

// Start starts the server again after Stop or Kill, and waits until it is
// ready. It tries again if the server gives up, because something of its last
// life is not gone yet.
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

// URL names the server's database.
func (p *Postgres) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

// Schema makes a schema for one test and returns the URL for it. It is dropped
// when the test has ended.
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

// Kill ends the server as a crash does. Acknowledged writes are there when it is
// started again.
func (p *Postgres) Kill() error { return p.signal(syscall.SIGQUIT) }

// Crash is Kill without a chance for any of the server's processes to say a
// last word to its clients.
func (p *Postgres) Crash() error {
	if p.server == nil {
		return nil
	}
	pid := p.server.Pid
	// They are in groups of their own, so that each must be found.
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return err
	}
	err = p.server.Kill()
	for child := range strings.FieldsSeq(string(list)) {
		n, _ := strconv.Atoi(child)
		if process, missing := os.FindProcess(n); missing == nil && n > 0 {
			_ = process.Kill() // it may have ended by itself
		}
	}
	<-p.server.ended
	p.server = nil
	return err
}

// Addr is where the server listens.
func (p *Postgres) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Stop ends the server and deletes its data.
func (p *Postgres) Stop() error { return errors.Join(p.signal(syscall.SIGINT), os.RemoveAll(p.dir)) }

// signal ends the server, if it runs.
func (p *Postgres) signal(s syscall.Signal) error {
	if p.server == nil {
		return nil
	}
	err := p.server.end(s)
	p.server = nil
	return err
}
