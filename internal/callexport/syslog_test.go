package callexport_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/callexport"
)

// An ending says how a receiver ends a connection.
type ending int

const (
	reset ending = iota // after some bytes, with a reset
	early               // after some bytes
	kept                // never: it is closed with the receiver
	whole               // when it has read all
)

// A syslog is a receiver of messages over TCP or TLS.
type syslog struct {
	target callexport.Target
	end    func(connection int) ending

	done chan struct{}
	work sync.WaitGroup

	mu       sync.Mutex
	messages []string
	refused  int // connections without a handshake
}

func newSyslog(t *testing.T, secure bool, end func(int) ending) *syslog {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &syslog{end: end, done: make(chan struct{}), target: callexport.Target{URL: "tcp://" + l.Addr().String(), Host: "gate\n<1>"}}
	var config *tls.Config
	if secure {
		web := httptest.NewTLSServer(nil) // for its certificate
		defer web.Close()
		config = web.TLS.Clone()
		config.NextProtos = nil
		pool := x509.NewCertPool()
		pool.AddCert(web.Certificate())
		s.target.URL = "tls://" + l.Addr().String()
		s.target.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	s.work.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { s.serve(conn, config, s.end(n)) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(s.done)
		s.work.Wait()
	})
	return s
}

func (s *syslog) serve(plain net.Conn, config *tls.Config, how ending) {
	defer plain.Close()
	conn := plain
	if config != nil {
		secure := tls.Server(plain, config)
		if secure.Handshake() != nil {
			s.mu.Lock()
			s.refused++
			s.mu.Unlock()
			return
		}
		conn = secure
	}
	if how == reset || how == early {
		_, _ = io.ReadFull(conn, make([]byte, 700))
		if how == reset {
			_ = plain.(*net.TCPConn).SetLinger(0)
		}
		return
	}
	messages, err := readMessages(bufio.NewReader(conn))
	if err != nil {
		return
	}
	s.mu.Lock()
	s.messages = append(s.messages, messages...)
	s.mu.Unlock()
	if how == kept {
		<-s.done
	}
	_ = conn.Close()
}

// readMessages reads messages with their lengths until the end of a connection.
func readMessages(r *bufio.Reader) (all []string, err error) {
	for {
		length, err := r.ReadString(' ')
		if errors.Is(err, io.EOF) && length == "" {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		n, err := strconv.Atoi(strings.TrimSuffix(length, " "))
		if err != nil {
			return all, err
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(r, message); err != nil {
			return all, err
		}
		all = append(all, string(message))
	}
}

// message is the form of RFC 5424, with only printable ASCII in it.
var message = regexp.MustCompile(`^<(\d+)>1 (2026-11-19T12:00:0\d\.\d{6}Z) gate_<1> thoughtgate - judged - (\{[ -~]*\})$`)

func (s *syslog) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, m := range s.messages {
		parts := message.FindStringSubmatch(m)
		if parts == nil {
			return []string{"no message: " + m}
		}
		all = append(all, parts[3])
	}
	return all
}

func TestSyslog(t *testing.T) {
	s, want := recorded(t, 200)
	for _, secure := range []bool{false, true} {
		r := newSyslog(t, secure, func(n int) ending {
			switch n {
			case 1:
				return reset
			case 2:
				return early
			default:
				return whole
			}
		})
		x := newExporter(t, s, r.target)
		must(t, x.run(t.Context()))
		if got := check(t, r.bodies(), want); len(got) != len(want) || len(r.messages) != len(want) || len(x.warnings) != 2 {
			t.Errorf("%d of %d entries arrived in %d messages; warnings: %q", len(got), len(want), len(r.messages), x.warnings)
		}
		for _, m := range r.messages {
			if denied := strings.Contains(m, `"outcome":"denied"`); strings.HasPrefix(m, "<108>") != denied || strings.HasPrefix(m, "<110>") == denied {
				t.Fatalf("priority of %q", m)
			}
		}
	}
}

// Entries count as accepted when the receiver has closed the connection.
func TestSyslogIsConfirmed(t *testing.T) {
	s, want := recorded(t, 10)
	r := newSyslog(t, false, func(int) ending { return kept })
	x := newExporter(t, s, r.target)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.run(ctx) }()
	for len(r.bodies()) < len(want) {
		select {
		case err := <-ended:
			t.Fatalf("the export ended: %v", err)
		default:
		}
	}
	stop()
	if err := <-ended; err == nil || x.accepted > 0 {
		t.Errorf("err = %v; %d pages were accepted", err, x.accepted)
	}
}

// A receiver whose certificate is not trusted gets nothing.
func TestSyslogOfAnotherAuthority(t *testing.T) {
	s, _ := recorded(t, 10)
	r := newSyslog(t, true, func(int) ending { return whole })
	r.target.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	x := newExporter(t, s, r.target)
	if err := x.run(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") || x.accepted > 0 || len(r.bodies()) > 0 || len(x.warnings) > 0 {
		t.Errorf("err = %v; %d pages were accepted; warnings: %q", err, x.accepted, x.warnings)
	}
}
