package email

import (
	"crypto/tls"
	"net"
	"net/mail"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that sends questions to mailboxes through an SMTP server.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "email", New: func() config.Section { return &Settings{Security: StartTLS} }}
}

// Settings are the settings of an email channel.
type Settings struct {
	Server    string // host:port
	Security  string // StartTLS, TLS or None
	Username  string
	Password  config.Secret
	From      string
	To        []string
	Arguments bool
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{
		{Key: "server", To: config.Required(config.Read(&s.Server, "host:port, such as smtp.example.com:587", func(s string) (string, bool) { return s, isServer(s) }))},
		{Key: "security", To: config.OneOf(&s.Security, StartTLS, TLS, None)},
		{Key: "username", To: config.Line(&s.Username)},
		{Key: "password", To: config.Read(&s.Password, "text on one line", func(s string) (config.Secret, bool) { return config.NewSecret(s), config.IsLine(s) })},
		{Key: "from", To: config.Required(config.Read(&s.From, config.AMailbox, func(s string) (string, bool) { return s, config.IsMailbox(s) }))},
		{Key: "to", To: config.Required(config.List(func() config.Setting { return config.Each(&s.To, config.AMailbox, config.IsMailbox) }))},
		{Key: "arguments", To: config.Bool(&s.Arguments)},
	}
}

func isServer(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n != 0 && config.IsHost(host)
}

// Check implements [config.Section].
func (s *Settings) Check(c *config.Check) {
	switch password := s.Password.Reveal(); {
	case c.Faulty("password"):
	case s.Username != "" && password == "":
		c.Report("username", "needs a password")
	case s.Username == "" && password != "":
		c.Report("password", "needs a username")
	case password != "" && s.Security == None:
		c.Report("security", "a password is not sent without encryption")
	}
}

// timeout limits the sending of one mail.
const timeout = 15 * time.Second

// Open implements [channel.Settings].
func (s *Settings) Open(g channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	from, err := mail.ParseAddress(s.From)
	if err != nil {
		return nil, err
	}
	c := Config{
		Server: s.Server, Security: s.Security, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Username: s.Username, Password: s.Password.Reveal(), From: *from,
		Arguments: s.Arguments, Timeout: timeout, Now: g.Now, Log: g.Log,
	}
	for _, text := range s.To {
		to, err := mail.ParseAddress(text)
		if err != nil {
			return nil, err
		}
		c.To = append(c.To, *to)
	}
	return New(c), nil
}
