// Package email is a channel to people's mailboxes, through an SMTP server. A mail says
// that somebody must decide, and has a link to the page of the inbox: nobody decides by
// a mail, or by following the link alone.
//
// A mail has nothing of the arguments unless the configuration says so. Everything that
// agents and upstreams wrote is in encoded words in the subject, and in the body as
// text: no name can end a header or begin another one.
package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
)

// How a connection is encrypted.
const (
	StartTLS = "starttls" // with STARTTLS, without which nothing is sent
	TLS      = "tls"      // from the beginning
	None     = "none"
)

// A Config says where mails go. Username, Password and Arguments may be zero.
type Config struct {
	Server    string // host:port
	Security  string // StartTLS, TLS or None
	TLS       *tls.Config
	Username  string
	Password  string
	From      mail.Address
	To        []mail.Address
	Arguments bool // mails have the redacted arguments
	Timeout   time.Duration
	Now       func() time.Time
	Log       *slog.Logger
}

// A Mailer is a channel that sends mails.
type Mailer struct{ cfg Config }

// New returns a mailer.
func New(c Config) *Mailer { return &Mailer{cfg: c} }

// Address implements [channel.Channel].
func (m *Mailer) Address() string {
	all := []string{m.cfg.Server, m.cfg.From.Address}
	for _, to := range m.cfg.To {
		all = append(all, to.Address)
	}
	return strings.Join(all, " ")
}

// Ask implements [channel.Channel].
func (m *Mailer) Ask(ctx context.Context, q channel.Question) (string, error) {
	return "", m.send(ctx, q)
}

// Remind implements [channel.Channel].
func (m *Mailer) Remind(ctx context.Context, _ string, q channel.Question) error {
	return m.send(ctx, q)
}

// Update implements [channel.Channel]: a mail says how the call ended.
func (m *Mailer) Update(ctx context.Context, _ string, q channel.Question) error {
	if !q.Stage.Final() {
		return nil // another mail follows in a moment
	}
	return m.send(ctx, q)
}

// send sends the mail about q. The server takes it when it is told that the mail ends,
// not before.
func (m *Mailer) send(ctx context.Context, q channel.Question) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	conn, err := m.dial(ctx)
	if err != nil {
		return channel.Unsent(late(ctx, err))
	}
	defer conn.Close()                                          //nolint:errcheck // nothing depends on it
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // net/smtp knows no context
	defer stop()
	c, end, err := m.write(ctx, conn, q)
	if err != nil {
		return channel.Unsent(late(ctx, err))
	}
	if err := end(); err != nil {
		if answer, ok := errors.AsType[*textproto.Error](err); ok && answer.Code >= 400 {
			return channel.Unsent(err)
		}
		return late(ctx, err)
	}
	_ = c.Quit() // the mail was taken
	return nil
}

// late returns err, or that it is due to the time that is over.
func late(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("the mail server does not answer in time: %w", cause)
	}
	return err
}

// write gives the server all of the mail about q but its end, and returns what ends it.
func (m *Mailer) write(ctx context.Context, conn net.Conn, q channel.Question) (c *smtp.Client, end func() error, err error) {
	if c, err = m.greet(conn); err != nil {
		return nil, nil, err
	}
	if err = m.address(ctx, c); err != nil {
		return nil, nil, err
	}
	body, err := c.Data()
	if err != nil {
		return nil, nil, err
	}
	_, err = body.Write(m.message(q))
	return c, body.Close, err
}

// dial connects to the server.
func (m *Mailer) dial(ctx context.Context) (net.Conn, error) {
	if m.cfg.Security == TLS {
		return (&tls.Dialer{Config: m.secure()}).DialContext(ctx, "tcp", m.cfg.Server)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", m.cfg.Server)
}

func (m *Mailer) secure() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.cfg.TLS != nil {
		c = m.cfg.TLS.Clone()
	}
	c.ServerName, _, _ = net.SplitHostPort(m.cfg.Server) // it was checked
	return c
}

// errPlain is the error of a server that would make the gate send in the clear.
var errPlain = errors.New("the mail server does not offer STARTTLS, and nothing is sent without encryption")

// greet says who the gate is.
func (m *Mailer) greet(conn net.Conn) (*smtp.Client, error) {
	host, _, _ := net.SplitHostPort(m.cfg.Server) // it was checked
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return nil, err
	}
	if err := c.Hello(m.domain()); err != nil {
		return nil, err
	}
	if m.cfg.Security == StartTLS {
		if offered, _ := c.Extension("STARTTLS"); !offered {
			return nil, errPlain
		}
		if err := c.StartTLS(m.secure()); err != nil {
			return nil, err
		}
	}
	if m.cfg.Username == "" {
		return c, nil
	}
	return c, c.Auth(m.auth(c, host))
}

// auth returns how to log in, as far as the server says what it takes.
func (m *Mailer) auth(c *smtp.Client, host string) smtp.Auth {
	_, offered := c.Extension("AUTH")
	if slices.Contains(strings.Fields(strings.ToUpper(offered)), "PLAIN") {
		return smtp.PlainAuth("", m.cfg.Username, m.cfg.Password, host)
	}
	return &login{m.cfg.Username, m.cfg.Password}
}

// address names the sender and those who receive the mail. It is sent to the others if
// the server refuses one of them.
func (m *Mailer) address(ctx context.Context, c *smtp.Client) error {
	if err := c.Mail(m.cfg.From.Address); err != nil {
		return err
	}
	var refused []error
	for _, to := range m.cfg.To {
		if err := c.Rcpt(to.Address); err != nil {
			m.cfg.Log.WarnContext(ctx, "mail server refuses a recipient", "recipient", to.Address, "error", err)
			refused = append(refused, fmt.Errorf("%s: %w", to.Address, err))
		}
	}
	if len(refused) == len(m.cfg.To) {
		return errors.Join(refused...)
	}
	return nil
}

// domain returns the domain of the sender.
func (m *Mailer) domain() string {
	return m.cfg.From.Address[strings.LastIndexByte(m.cfg.From.Address, '@')+1:]
}

// login is the method LOGIN, for servers that do not offer PLAIN.
type login struct{ username, password string }

// Start implements [smtp.Auth].
func (*login) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS {
		return "", nil, errors.New("the password is not sent without encryption")
	}
	return "LOGIN", nil, nil
}

// Next implements [smtp.Auth].
func (l *login) Next(prompt []byte, more bool) ([]byte, error) {
	switch {
	case !more:
		return nil, nil
	case strings.HasPrefix(strings.ToLower(string(prompt)), "user"):
		return []byte(l.username), nil
	case strings.HasPrefix(strings.ToLower(string(prompt)), "pass"):
		return []byte(l.password), nil
	default:
		return nil, errors.New("the mail server asks for something else than the user name and the password")
	}
}
