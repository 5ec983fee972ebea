// Package email is a channel to mailboxes through an SMTP server. A mail describes a held
// call and has a link to its page in the inbox, where the approver signs in and decides.
//
// A mail contains arguments only if the configuration allows it. In the subject, text from
// agents and upstreams is written as encoded words, so that it cannot end the header or
// add another one.
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

// The values of Config.Security.
const (
	StartTLS = "starttls" // STARTTLS is required
	TLS      = "tls"      // TLS from the beginning
	None     = "none"
)

// A Config configures a [Mailer]. Username, Password and Arguments may be zero.
type Config struct {
	Server    string // host:port
	Security  string // StartTLS, TLS or None
	TLS       *tls.Config
	Username  string
	Password  string
	From      mail.Address
	To        []mail.Address
	Arguments bool // mails contain the redacted arguments
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

// Update implements [channel.Channel]. Only the final stage is mailed.
func (m *Mailer) Update(ctx context.Context, _ string, q channel.Question) error {
	if !q.Stage.Final() {
		return nil
	}
	return m.send(ctx, q)
}

// send sends the mail about q. The server accepts the mail when it has received its end.
func (m *Mailer) send(ctx context.Context, q channel.Question) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	conn, err := m.dial(ctx)
	if err != nil {
		return channel.NotSent(timeoutError(ctx, err))
	}
	defer conn.Close()                                          //nolint:errcheck // nothing depends on it
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // net/smtp has no contexts
	defer stop()
	c, end, err := m.write(ctx, conn, q)
	if err != nil {
		return channel.NotSent(timeoutError(ctx, err))
	}
	if err := end(); err != nil {
		if answer, ok := errors.AsType[*textproto.Error](err); ok && answer.Code >= 400 {
			return channel.NotSent(err)
		}
		return timeoutError(ctx, err)
	}
	_ = c.Quit() // the mail was accepted
	return nil
}

// timeoutError returns err, or an error about the time limit if ctx has ended.
func timeoutError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("mail server did not answer in time: %w", cause)
	}
	return err
}

// write sends the mail about q without its end, and returns the function that sends the end.
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
		return (&tls.Dialer{Config: m.tlsConfig()}).DialContext(ctx, "tcp", m.cfg.Server)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", m.cfg.Server)
}

func (m *Mailer) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.cfg.TLS != nil {
		c = m.cfg.TLS.Clone()
	}
	c.ServerName, _, _ = net.SplitHostPort(m.cfg.Server) // checked with the configuration
	return c
}

var errNoStartTLS = errors.New("mail server does not offer STARTTLS: set security to tls, or to none to send mails without encryption")

// greet begins the SMTP session: encryption and authentication.
func (m *Mailer) greet(conn net.Conn) (*smtp.Client, error) {
	host, _, _ := net.SplitHostPort(m.cfg.Server) // checked with the configuration
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return nil, err
	}
	if err := c.Hello(m.domain()); err != nil {
		return nil, err
	}
	if m.cfg.Security == StartTLS {
		if offered, _ := c.Extension("STARTTLS"); !offered {
			//mutate:swap "nil, errNoStartTLS" "c, nil" TestNothingIsSentUnencrypted a mail is sent without encryption if the server does not offer it
			return nil, errNoStartTLS
		}
		if err := c.StartTLS(m.tlsConfig()); err != nil {
			return nil, err
		}
	}
	if m.cfg.Username == "" {
		return c, nil
	}
	return c, c.Auth(m.auth(c, host))
}

// auth returns PLAIN if the server offers it, and LOGIN otherwise.
func (m *Mailer) auth(c *smtp.Client, host string) smtp.Auth {
	_, offered := c.Extension("AUTH")
	if slices.Contains(strings.Fields(strings.ToUpper(offered)), "PLAIN") {
		return smtp.PlainAuth("", m.cfg.Username, m.cfg.Password, host)
	}
	return &login{m.cfg.Username, m.cfg.Password}
}

// address sends the sender and the recipients. It fails only if the server refuses all
// recipients.
func (m *Mailer) address(ctx context.Context, c *smtp.Client) error {
	if err := c.Mail(m.cfg.From.Address); err != nil {
		return err
	}
	var refused []error
	for _, to := range m.cfg.To {
		if err := c.Rcpt(to.Address); err != nil {
			m.cfg.Log.WarnContext(ctx, "mail server refused a recipient", "recipient", to.Address, "err", err)
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

// login is the authentication method LOGIN.
type login struct{ username, password string }

// Start implements [smtp.Auth].
func (*login) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS {
		return "", nil, errors.New("password not sent without encryption: set security to starttls or tls")
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
		return nil, errors.New("mail server asks for something other than the username and the password")
	}
}
