package config

import (
	"net"
	"net/mail"
	"strings"
	"time"
)

// An Email sends questions to mailboxes through an SMTP server.
type Email struct {
	Server    string // host:port; empty if the channel is of another kind
	Security  string // starttls, tls or none
	CAFile    string // PEM file of the authorities to trust; empty means the system's
	Username  string
	Password  Secret
	From      string
	To        []string
	Arguments bool
	Timeout   time.Duration
}

func (e *Email) settings() group {
	return group{
		{"server", required{mailServer(&e.Server)}},
		{"security", oneOf(&e.Security, "starttls", "tls", "none")},
		{"ca_file", text(&e.CAFile)},
		{"username", line(&e.Username)},
		{"password", secretLine(&e.Password)},
		{"from", required{read(&e.From, isText, aMailbox, func(s string) (string, bool) { return s, isMailbox(s) })}},
		{"to", required{list{func() setting { return each(&e.To, aMailbox, isMailbox) }}}},
		{"arguments", boolean(&e.Arguments)},
		{"timeout", duration(&e.Timeout, time.Second)},
	}
}

const aMailbox = "an address such as ops@example.com or Ops <ops@example.com>"

// isMailbox reports whether s is an address of plain letters, as every mail server
// takes it, with or without a name.
func isMailbox(s string) bool {
	a, err := mail.ParseAddress(s)
	if err != nil || !isLine(s) {
		return false
	}
	user, domain, _ := strings.Cut(a.Address, "@")
	return user != "" && only(user, letters+digits+"!#$%&'*+-/=?^_`{|}~.") && isHost(domain)
}

func mailServer(p *string) leaf {
	return read(p, isText, "host:port, such as smtp.example.com:587", func(s string) (string, bool) {
		h, port, err := net.SplitHostPort(s)
		return s, err == nil && isPort(port) && port != "0" && isHost(h)
	})
}

func secretLine(p *Secret) leaf {
	return read(p, isText, "text on one line", func(s string) (Secret, bool) { return NewSecret(s), isLine(s) })
}

func (l *loader) checkEmail(at string, e Email) {
	l.need(at, "server", e.Server)
	l.need(at, "from", e.From)
	if len(e.To) == 0 && !l.faulty(at+".to") && !l.faulty(at+".to[0]") {
		l.report(l.origin(at+".to"), at+".to", "is required")
	}
	switch password := e.Password.Reveal(); {
	case l.faulty(at + ".password"):
	case e.Username != "" && password == "":
		l.report(l.origin(at+".username"), at+".username", "needs a password")
	case e.Username == "" && password != "":
		l.report(l.origin(at+".password"), at+".password", "needs a username")
	case password != "" && e.Security == "none":
		l.report(l.origin(at+".security"), at+".security", "a password is not sent without encryption")
	}
}
