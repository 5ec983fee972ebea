package deadline_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/deadline"
)

// A countingConn counts changes of its deadlines.
type countingConn struct {
	net.Conn

	reads, writes int
}

func (c *countingConn) SetReadDeadline(t time.Time) error {
	c.reads++
	return c.Conn.SetReadDeadline(t)
}

func (c *countingConn) SetWriteDeadline(t time.Time) error {
	c.writes++
	return c.Conn.SetWriteDeadline(t)
}

// pipe returns a deadline.Conn, the underlying connection, and its peer.
func pipe(t *testing.T) (*deadline.Conn, *countingConn, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close(); _ = there.Close() })
	below := &countingConn{Conn: here}
	return deadline.New(below), below, there
}

// answer makes the peer send one byte for each that it gets.
func answer(peer net.Conn) {
	var one [1]byte
	for {
		if _, err := io.ReadFull(peer, one[:]); err != nil {
			return
		}
		if _, err := peer.Write(one[:]); err != nil {
			return
		}
	}
}

// Messages that arrive in time rarely change the underlying deadlines.
func TestTimelyMessagesSetFewDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, below, peer := pipe(t)
		go answer(peer)
		one := []byte("x")
		for range 1000 {
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(one); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(one); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		const most = 1000/60 + 2
		if below.reads > most || below.writes > most {
			t.Errorf("%d and %d deadlines were set; want at most %d each", below.reads, below.writes, most)
		}
		_ = peer.Close()
	})
}

// A step changes the deadline, a while after the previous step.
type step struct {
	after time.Duration
	until time.Duration // the new deadline from then on; negative means none
}

// waits reads or writes while the deadline changes, and returns the time at the end.
func waits(conn net.Conn, wait func() error, move func(time.Time) error, steps []step) string {
	began := time.Now()
	var changing sync.WaitGroup
	changing.Go(func() {
		for _, s := range steps {
			time.Sleep(s.after)
			at := time.Now().Add(s.until)
			if s.until < 0 {
				at = time.Time{}
			}
			_ = move(at)
		}
		time.Sleep(time.Hour)
		_ = conn.Close()
	})
	err := wait()
	took := time.Since(began)
	changing.Wait()
	return fmt.Sprintf("after %s, too late: %t", took, errors.Is(err, os.ErrDeadlineExceeded))
}

// A deadline expires exactly as on a plain connection, with or without a pending read or write.
func TestDeadlinesAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var steps []step
		for range 1 + random.IntN(6) {
			steps = append(steps, step{
				after: time.Duration(random.IntN(20)) * time.Second,
				until: time.Duration(random.IntN(40)-5)*time.Second + time.Nanosecond,
			})
		}
		for name, wait := range map[string]func(net.Conn, []byte) (int, error){"read": net.Conn.Read, "write": net.Conn.Write} {
			plain, cheap := both(t, wait, steps)
			if plain != cheap {
				t.Errorf("%+v, %s: %s; want %s", steps, name, cheap, plain)
			}
		}
	}
}

func both(t *testing.T, wait func(net.Conn, []byte) (int, error), steps []step) (plain, cheap string) {
	t.Helper()
	one := func(wrap func(net.Conn) net.Conn) (result string) {
		synctest.Test(t, func(*testing.T) {
			here, there := net.Pipe()
			conn := wrap(here)
			for _, set := range []time.Duration{time.Second, 15 * time.Second} { // the deadline has passed, or is still ahead
				_ = conn.SetDeadline(time.Now().Add(set))
				_, _ = conn.Read(make([]byte, 1))
			}
			_ = conn.SetDeadline(time.Time{})
			result = waits(conn, func() error {
				_, err := wait(conn, make([]byte, 1))
				return err
			}, conn.SetDeadline, steps)
			_ = there.Close()
		})
		return result
	}
	return one(func(c net.Conn) net.Conn { return c }), one(func(c net.Conn) net.Conn { return deadline.New(c) })
}

// A write continues after the underlying deadline has expired too early.
func TestWriteContinuesAfterEarlyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, peer := pipe(t)
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		go func() { _, _ = peer.Read(make([]byte, 1)) }()
		if _, err := conn.Write([]byte("1")); err != nil { // sets the underlying deadline
			t.Fatal(err)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
		var got []byte
		var reading sync.WaitGroup
		reading.Go(func() {
			part := make([]byte, 3)
			n, _ := peer.Read(part)
			got = append(got, part[:n]...)
			time.Sleep(10 * time.Second)
			rest, _ := io.ReadAll(peer)
			got = append(got, rest...)
		})
		n, err := conn.Write([]byte("one message"))
		if n != len("one message") || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		_ = conn.Close()
		reading.Wait()
		if string(got) != "one message" {
			t.Errorf("the peer got %q", got)
		}
	})
}

// A readsConn counts reads.
type readsConn struct {
	net.Conn

	reads int
}

func (c *readsConn) Read(p []byte) (int, error) {
	c.reads++
	return c.Conn.Read(p)
}

// The first read after an expired and renewed deadline succeeds.
func TestReadAfterExpiredDeadline(t *testing.T) {
	for name, until := range map[string]time.Time{"a deadline": time.Now().Add(time.Hour), "none": {}} {
		client, server := tcp(t)
		below := &readsConn{Conn: server}
		conn := deadline.New(below)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read = %v", err)
		}
		_ = conn.SetReadDeadline(until)
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		below.reads = 0
		if _, err := conn.Read(make([]byte, 1)); err != nil || below.reads != 1 {
			t.Errorf("%s: %v after %d reads; want one", name, err, below.reads)
		}
	}
}

// A server aborts a read of another goroutine with a deadline in the past.
func TestPastDeadlineAbortsRead(t *testing.T) {
	client, server := tcp(t)
	conn := deadline.New(server)
	for range 100 {
		failed := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			failed <- err
		}()
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the read ended with %v", err)
		}
		_ = conn.SetReadDeadline(time.Time{})
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the next read ended with %v", err)
		}
	}
}

func tcp(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}
