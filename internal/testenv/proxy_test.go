package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// An echo is a server that sends each line back to the client, and to the test.
func echo(t *testing.T) (addr string, heard <-chan string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					lines <- in.Text()
					io.WriteString(conn, in.Text()+"\n")
				}
				lines <- "end"
			})
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return listener.Addr().String(), lines
}

func setUp(t *testing.T) (*testenv.Proxy, <-chan string) {
	t.Helper()
	addr, heard := echo(t)
	p, err := testenv.StartProxy(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, heard
}

// A client sends and receives lines.
type client struct {
	net.Conn

	t  *testing.T
	in *bufio.Reader
}

func dial(t *testing.T, p *testenv.Proxy) *client {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &client{Conn: conn, t: t, in: bufio.NewReader(conn)}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hears(want string) {
	c.t.Helper()
	if got, err := c.in.ReadString('\n'); got != want+"\n" || err != nil {
		c.t.Fatalf("received %q, %v; want %q", got, err, want)
	}
}

// ends reads to the end, and returns the data and the error.
func (c *client) ends() (string, error) {
	rest, err := io.ReadAll(c.in)
	return string(rest), err
}

// silent checks that no data arrives within a moment.
func silent(t *testing.T, heard <-chan string) {
	t.Helper()
	select {
	case line := <-heard:
		t.Fatalf("%q was forwarded", line)
	case <-time.After(50 * time.Millisecond):
	}
}

func hears(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("the server received %q; want %q", got, want)
		}
	case <-ctx.Done():
		t.Fatalf("the server did not receive %q", want)
	}
}

// eventually waits until condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timed out")
		}
	}
}

func TestProxyForwardsWithoutFault(t *testing.T) {
	p, heard := setUp(t)
	c := dial(t, p)
	c.say("one")
	c.hears("one")
	hears(t, heard, "one")
	c.Close()
	hears(t, heard, "end")
	p.Cut() // without connections
}

// Data and ends of streams that a partition held back arrive after the partition.
func TestPartition(t *testing.T) {
	p, heard := setUp(t)
	a, b := dial(t, p), dial(t, p)
	a.say("before")
	a.hears("before")
	hears(t, heard, "before")
	p.Set(testenv.Partition())
	a.say("during")
	b.Close()
	eventually(t, func() bool { return p.Held() == 2 })
	silent(t, heard)
	p.Heal()
	a.hears("during")
	got := map[string]bool{<-heard: true, <-heard: true}
	if !got["during"] || !got["end"] {
		t.Errorf("the server received %v", got)
	}
}

// The server has sent an answer, which is lost.
func TestLostAnswer(t *testing.T) {
	p, heard := setUp(t)
	c := dial(t, p)
	p.Set(testenv.Fault{Down: testenv.Way{Drop: true}})
	c.say("do it")
	hears(t, heard, "do it")
	eventually(t, func() bool { return p.Lost() == 1 })
	p.Heal()
	if rest, err := c.ends(); rest != "" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that lost data ends with %q, %v", rest, err)
	}
	c = dial(t, p)
	c.say("again")
	c.hears("again")
}

func TestLostRequest(t *testing.T) {
	p, heard := setUp(t)
	c := dial(t, p)
	p.Set(testenv.Fault{Up: testenv.Way{Drop: true}})
	c.say("do it")
	eventually(t, func() bool { return p.Lost() == 1 })
	p.Heal()
	hears(t, heard, "end")
}

func TestDelay(t *testing.T) {
	p, _ := setUp(t)
	c := dial(t, p)
	const late = 60 * time.Millisecond
	p.Set(testenv.Fault{Up: testenv.Way{Delay: late}, Down: testenv.Way{Delay: late}})
	began := time.Now()
	c.say("slowly")
	c.hears("slowly")
	if took := time.Since(began); took < 2*late {
		t.Errorf("the round trip took %v", took)
	}
}

func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		way  testenv.Way
		want error
	}{
		"truncated": {testenv.Way{Truncate: 3}, nil},
		"reset":     {testenv.Way{Reset: 3}, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := setUp(t)
			c := dial(t, p)
			c.say("whole")
			c.hears("whole")
			p.Set(testenv.Fault{Down: tt.way})
			c.say("in part")
			rest, err := c.ends()
			if !errors.Is(err, tt.want) || tt.want == nil && rest != "in " {
				t.Errorf("got %q, %v", rest, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	p, heard := setUp(t)
	c := dial(t, p)
	c.say("hello")
	c.hears("hello")
	hears(t, heard, "hello")
	p.Set(testenv.Fault{Refuse: true})
	c.say("still here")
	c.hears("still here")
	hears(t, heard, "still here")
	p.Cut()
	if _, err := c.ends(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("cut: %v", err)
	}
	hears(t, heard, "end")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection: %v", err)
	}
	eventually(t, func() bool { return p.Connections() == 0 })
	p.Heal()
	c = dial(t, p)
	c.say("back")
	c.hears("back")
}

// Close closes all connections under every fault.
func TestClose(t *testing.T) {
	for name, f := range map[string]testenv.Fault{
		"healthy": {}, "partition": testenv.Partition(),
		"lost": {Down: testenv.Way{Drop: true}}, "slow": {Up: testenv.Way{Delay: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := setUp(t)
			c := dial(t, p)
			p.Set(f)
			c.say("hello")
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if _, err := c.ends(); err == nil && name != "healthy" {
				t.Error("the connection ended without a reset")
			}
		})
	}
}
