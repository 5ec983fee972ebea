package email_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server is a mail server that speaks SMTP over TCP.
type server struct {
	t       *testing.T
	address string
	roots   *x509.CertPool
	tls     *tls.Config

	implicit   bool     // TLS from the beginning
	noStartTLS bool     // do not offer STARTTLS
	methods    string   // the methods of AUTH
	refused    []string // refused recipients

	mu    sync.Mutex
	mails []received
	lines []string // the commands of all connections
	hang  bool     // do not answer
	end   string   // the answer to a complete mail, which is then not accepted; "-" for no answer
	conns sync.WaitGroup
}

// A received is an accepted mail.
type received struct {
	from      string
	to        []string
	text      string
	encrypted bool
	login     string // "user:password"
}

func newServer(t *testing.T, change func(*server)) *server {
	t.Helper()
	s := &server{t: t, methods: "PLAIN LOGIN"}
	s.certify()
	if change != nil {
		change(s)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	if s.implicit {
		listener = tls.NewListener(listener, s.tls)
	}
	s.conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.conns.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); s.conns.Wait() })
	return s
}

// certify creates a certificate for 127.0.0.1.
func (s *server) certify() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(cert)
	s.tls = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// A session is one SMTP session.
type session struct {
	*server
	net.Conn

	in   *bufio.Reader
	mail received
}

func (s *server) serve(conn net.Conn) {
	c := &session{server: s, Conn: conn, in: bufio.NewReader(conn)}
	defer func() { c.Close() }()
	conn.SetDeadline(time.Now().Add(time.Minute))
	c.mail.encrypted = s.implicit
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang {
		c.in.ReadString('\n') // until the client disconnects
		return
	}
	c.say("220 mail.example.com ready")
	for {
		line, err := c.line()
		if err != nil || !c.obey(line) {
			return
		}
	}
}

func (c *session) say(text string) { fmt.Fprintf(c.Conn, "%s\r\n", text) }

func (c *session) line() (string, error) {
	line, err := c.in.ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	c.mu.Lock()
	c.lines = append(c.lines, line)
	c.mu.Unlock()
	return line, err
}

// obey executes a command, and reports whether the session continues.
func (c *session) obey(line string) bool {
	command, argument, _ := strings.Cut(line, " ")
	switch strings.ToUpper(command) {
	case "EHLO":
		c.say("250-mail.example.com")
		if !c.noStartTLS && !c.mail.encrypted {
			c.say("250-STARTTLS")
		}
		c.say("250 AUTH " + c.methods)
	case "STARTTLS":
		c.say("220 go on")
		secure := tls.Server(c.Conn, c.tls)
		if secure.Handshake() != nil {
			return false
		}
		c.Conn, c.in, c.mail.encrypted = secure, bufio.NewReader(secure), true
	case "AUTH":
		c.auth(argument)
	case "MAIL":
		c.mail.from = argument
		c.say("250 ok")
	case "RCPT":
		for _, refused := range c.refused {
			if strings.Contains(argument, refused) {
				c.say("550 no such user")
				return true
			}
		}
		c.mail.to = append(c.mail.to, argument)
		c.say("250 ok")
	case "DATA":
		c.say("354 go on")
		c.data()
	case "QUIT":
		c.say("221 bye")
		return false
	default:
		c.say("500 what?")
	}
	return true
}

func (c *session) auth(argument string) {
	decoded := func(text string) string { b, _ := base64.StdEncoding.DecodeString(text); return string(b) }
	method, initial, _ := strings.Cut(argument, " ")
	if method == "PLAIN" {
		c.mail.login = strings.Join(strings.Split(decoded(initial), "\x00")[1:], ":")
	} else {
		c.say("334 " + base64.StdEncoding.EncodeToString([]byte("Username:")))
		user, _ := c.line()
		c.say("334 " + base64.StdEncoding.EncodeToString([]byte("Password:")))
		password, _ := c.line()
		c.mail.login = decoded(user) + ":" + decoded(password)
	}
	if c.mail.login != "gate:s3cret" {
		c.say("535 wrong password")
		return
	}
	c.say("235 welcome")
}

func (c *session) data() {
	var text strings.Builder
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return
		}
		if line == ".\r\n" {
			break
		}
		text.WriteString(strings.TrimPrefix(line, "."))
	}
	c.mail.text = text.String()
	c.mu.Lock()
	if end := c.end; end != "" {
		c.mu.Unlock()
		if end == "-" {
			_ = c.Close()
			return
		}
		c.say(end)
		return
	}
	c.mails = append(c.mails, c.mail)
	c.mu.Unlock()
	c.say("250 taken")
}

// last returns the last accepted mail, and fails unless there are n mails.
func (s *server) last(n int) received {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mails) != n || n == 0 {
		s.t.Fatalf("%d mails; want %d", len(s.mails), n)
	}
	return s.mails[n-1]
}

// heard reports whether a client has sent a text.
func (s *server) heard(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.lines, "\n"), text)
}
