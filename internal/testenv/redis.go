package testenv

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Redis is an empty Redis or Valkey server that flushes every write to disk before it answers.
type Redis struct {
	program  string
	settings []string
	dir      string
	port     int
	bus      int // the port for the other nodes of a cluster
	server   *process
	log      *bytes.Buffer
}

// StartRedis starts a server on a new port, with additional command-line settings. It returns
// [ErrUnavailable] if neither Redis nor Valkey is installed.
func StartRedis(ctx context.Context, settings ...string) (*Redis, error) {
	program, err := redisProgram()
	if err != nil {
		return nil, err
	}
	r := &Redis{program: program, settings: settings}
	if r.port, err = FreePort(ctx); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "redis"); err != nil {
		return nil, err
	}
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	return r, nil
}

func redisProgram() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("redis: %w: install Debian's package redis-server", ErrUnavailable)
}

// Start starts the server again after Kill, and waits until it is ready. It tries again if the
// server fails because its port is not free yet.
func (r *Redis) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r.server == nil || r.server.over() {
			if err := r.launch(ctx); err != nil {
				return err
			}
		}
		_, err := r.Do(ctx, "PING")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			stopped := r.Kill()
			return errors.Join(fmt.Errorf("%s did not start: %w: %s", r.program, err, r.log), stopped)
		}
	}
}

func (r *Redis) launch(ctx context.Context) (err error) {
	args := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "",
	}, r.settings...)
	c := exec.CommandContext(context.WithoutCancel(ctx), r.program, args...)
	c.SysProcAttr = attributes(nil)
	r.log = new(bytes.Buffer)
	c.Stdout, c.Stderr = r.log, r.log
	r.server, err = launch(c)
	return err
}

// URL returns the URL of the server.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// Addr returns the address of the server.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Do sends the server a command without quoted words, and returns the first line of the
// answer.
func (r *Redis) Do(ctx context.Context, words ...string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer was read
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := fmt.Fprintf(conn, "%s\r\n", strings.Join(words, " ")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	answer := strings.TrimSpace(line)
	if refusal, refused := strings.CutPrefix(answer, "-"); refused {
		return "", errors.New(refusal)
	}
	return answer, nil
}

// Kill ends the server as a crash does. Acknowledged writes are kept.
func (r *Redis) Kill() error {
	if r.server == nil {
		return nil
	}
	err := r.server.end(os.Kill)
	r.server = nil
	return err
}

// Crash is Kill.
func (r *Redis) Crash() error { return r.Kill() }

// Stop ends the server and deletes its data.
func (r *Redis) Stop() error { return errors.Join(r.Kill(), os.RemoveAll(r.dir)) }

// StartRedisCluster starts a cluster of two servers, each with half of the keys.
func StartRedisCluster(ctx context.Context) ([]*Redis, error) {
	var nodes []*Redis
	for range 2 {
		bus, err := FreePort(ctx)
		if err != nil {
			return nil, errors.Join(err, stopAll(nodes))
		}
		node, err := StartRedis(ctx, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
		if err != nil {
			return nil, errors.Join(err, stopAll(nodes))
		}
		node.bus, nodes = bus, append(nodes, node)
	}
	if err := join(ctx, nodes[0], nodes[1]); err != nil {
		return nil, errors.Join(err, stopAll(nodes))
	}
	return nodes, nil
}

// join creates a cluster of two servers, and waits until both have joined.
func join(ctx context.Context, a, b *Redis) error {
	_, errA := a.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", "0", "8191")
	_, errB := b.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	_, errMeet := a.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(b.port), strconv.Itoa(b.bus))
	if err := errors.Join(errA, errB, errMeet); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !a.clustered(ctx) || !b.clustered(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no cluster has formed: %w: %s%s", ctx.Err(), a.log, b.log)
		}
	}
	return nil
}

// clustered reports whether the server knows the node of every key.
func (r *Redis) clustered(ctx context.Context) bool {
	_, err := r.Do(ctx, "GET", "x")
	return err == nil || strings.HasPrefix(err.Error(), "MOVED ")
}

func stopAll(servers []*Redis) error {
	var errs []error
	for _, r := range servers {
		errs = append(errs, r.Stop())
	}
	return errors.Join(errs...)
}
