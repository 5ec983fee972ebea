package email_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/email"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mailer(s *server, change func(*email.Config)) *email.Mailer {
	c := email.Config{
		Server: s.address, Security: email.StartTLS, TLS: &tls.Config{RootCAs: s.roots}, Username: "gate", Password: "s3cret",
		From: mail.Address{Name: "Gate, the", Address: "gate@example.com"}, To: []mail.Address{{Address: "ops@example.com"}, {Name: "Änne", Address: "anne@example.com"}},
		Timeout: 20 * time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	return email.New(c)
}

// question returns a pending question about a tool.
func question(tool string) channel.Question {
	q := channel.Question{Stage: channel.Pending, Page: "https://gate.example.com/approvals/tg_1"}
	q.Approval = review.Approval{ID: "tg_1", Tool: tool, Principal: "ann", Upstream: "files", Arguments: jsontext.Value(`{"path":"/etc/shadow"}`), ExpiresAt: time.Now().Add(time.Hour)}
	q.Approval.Reason, q.Approval.Warnings = "rule deletions", []string{"value /etc/shadow: letters"}
	q.Approval.ClientReason = &review.Untrusted{Text: "because of /etc/shadow"}
	return q
}

// read returns the decoded header and body of a mail.
func read(t *testing.T, m received) (mail.Header, string) {
	t.Helper()
	parsed, err := mail.ReadMessage(strings.NewReader(m.text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, m.text)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(parsed.Body))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(m.text) {
		if len(line) > 200 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	return parsed.Header, string(body)
}

func subject(t *testing.T, h mail.Header) string {
	t.Helper()
	text, err := new(mime.WordDecoder).DecodeHeader(h.Get("Subject"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestMailIsSentEncrypted checks that a mail is sent after STARTTLS and authentication, with a
// link to the page and without arguments. Reminders and the outcome are in the same thread.
func TestMailIsSentEncrypted(t *testing.T) {
	s := newServer(t, nil)
	m := mailer(s, nil)
	q := question("delete_file")
	if _, err := m.Ask(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	got := s.last(1)
	if !got.encrypted || got.login != "gate:s3cret" || got.from != "FROM:<gate@example.com>" || strings.Join(got.to, " ") != "TO:<ops@example.com> TO:<anne@example.com>" {
		t.Errorf("the envelope: %+v", got)
	}
	h, body := read(t, got)
	if text := subject(t, h); text != "Approval needed: delete_file" {
		t.Errorf("subject %q", text)
	}
	if to, err := h.AddressList("To"); err != nil || len(to) != 2 || to[1].Name != "Änne" {
		t.Errorf("to %v, %v", to, err)
	}
	for _, want := range []string{"delete_file", "ann", "rule deletions", q.Page, "Replies to this mail are not read", "characters that look like others"} {
		if !strings.Contains(body, want) {
			t.Errorf("the mail lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(got.text, "shadow") {
		t.Errorf("the mail has a part of the arguments:\n%s", body)
	}
	q.Reminder = 1
	if err := m.Remind(t.Context(), "", q); err != nil {
		t.Fatal(err)
	}
	reminder, _ := read(t, s.last(2))
	if subject(t, reminder) != "Reminder: Approval needed: delete_file" || reminder.Get("In-Reply-To") != h.Get("Message-Id") || h.Get("Message-Id") != "<tg_1.pending@example.com>" {
		t.Errorf("the reminder: %v", reminder)
	}
	q.Reminder, q.Stage = 0, channel.Approved
	if err := m.Update(t.Context(), "", q); err != nil {
		t.Fatal(err)
	}
	q.Stage, q.Approval.Rejection = channel.Rejected, &gatetask.Decision{By: "bob", Reason: "no /etc/shadow"}
	if err := m.Update(t.Context(), "", q); err != nil {
		t.Fatal(err)
	}
	if _, body := read(t, s.last(3)); !strings.Contains(body, "Rejected by:    bob") || strings.Contains(body, "shadow") {
		t.Errorf("the outcome:\n%s", body)
	}
}

// TestArgumentsOnlyIfConfigured checks that a mail has the arguments if the configuration allows
// it. They are indented so that they cannot look like a line of the gate.
func TestArgumentsOnlyIfConfigured(t *testing.T) {
	s := newServer(t, nil)
	m := mailer(s, func(c *email.Config) { c.Arguments = true })
	q := question("delete_file")
	q.Approval.Arguments = jsontext.Value(`{"a":"x\nhttps://evil.example\n.\nTool: other"}`)
	if _, err := m.Ask(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	_, body := read(t, s.last(1))
	if !strings.Contains(body, `    	"a": "x\nhttps[:]//evil.example\n.\nTool: other"`) && !strings.Contains(body, `"a": "x\nhttps[:]//evil.example\n.\nTool: other"`) {
		t.Errorf("the mail:\n%s", body)
	}
}

// TestHostileNamesStayInSubject checks that a hostile name cannot end a header, begin another
// one, or act as an encoded word.
func TestHostileNamesStayInSubject(t *testing.T) {
	s := newServer(t, nil)
	m := mailer(s, nil)
	for i, tool := range []string{
		"x\r\nBcc: evil@example.com\r\n\r\n<script>", "x\nBcc: evil@example.com", "=?utf-8?q?Approved?=", "\u202egnp", strings.Repeat("ü", 5000),
		"x\r\n.\r\nMAIL FROM:<evil@example.com>", "\xff\xfe", "https://evil.example/approve",
	} {
		q := question(tool)
		q.Approval.Principal = tool
		if _, err := m.Ask(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		h, body := read(t, s.last(i+1))
		if len(h) != 9 || h.Get("Bcc") != "" || len(s.mails[i].to) != 2 {
			t.Errorf("%.30q: headers %v", tool, h)
		}
		if text := subject(t, h); !strings.HasPrefix(text, "Approval needed: ") || strings.ContainsAny(text, "\r\n\u202e") {
			t.Errorf("%.30q: subject %q", tool, text)
		}
		if strings.Contains(body, "\nBcc") || strings.Contains(body, "https://evil") || strings.Count(body, "https://") != 1 {
			t.Errorf("%.30q: the mail:\n%s", tool, body)
		}
	}
}

// TestNothingIsSentUnencrypted checks that nothing is sent to a server without STARTTLS or with
// an unknown certificate, and that no password is sent without encryption.
func TestNothingIsSentUnencrypted(t *testing.T) {
	plain := newServer(t, func(s *server) { s.noStartTLS = true })
	if _, err := mailer(plain, nil).Ask(t.Context(), question("a")); err == nil || !strings.Contains(err.Error(), "STARTTLS") {
		t.Errorf("without STARTTLS: %v", err)
	}
	for _, methods := range []string{"PLAIN", "LOGIN"} {
		s := newServer(t, func(s *server) { s.methods, s.noStartTLS = methods, true })
		remote := mailer(s, func(c *email.Config) { c.Security = email.None })
		_, err := remote.Ask(t.Context(), question("a"))
		if methods == "LOGIN" && err == nil {
			t.Error("a password was sent without encryption")
		}
	}
	unknown := newServer(t, nil)
	if _, err := mailer(unknown, func(c *email.Config) { c.TLS = nil }).Ask(t.Context(), question("a")); err == nil || unknown.heard("AUTH") {
		t.Errorf("a server with an unknown certificate: %v", err)
	}
	if plain.heard("AUTH") || plain.heard("MAIL") {
		t.Error("a mail was sent without encryption")
	}
}

// TestLoginMethods checks that the gate uses LOGIN if the server does not offer PLAIN, with TLS
// from the beginning, and that a server without authentication works.
func TestLoginMethods(t *testing.T) {
	s := newServer(t, func(s *server) { s.implicit, s.methods = true, "LOGIN" })
	if _, err := mailer(s, func(c *email.Config) { c.Security = email.TLS }).Ask(t.Context(), question("a")); err != nil {
		t.Fatal(err)
	}
	if got := s.last(1); got.login != "gate:s3cret" || !got.encrypted {
		t.Errorf("%+v", got)
	}
	relay := newServer(t, func(s *server) { s.noStartTLS = true })
	if _, err := mailer(relay, func(c *email.Config) { c.Security, c.Username = email.None, "" }).Ask(t.Context(), question("a")); err != nil {
		t.Fatal(err)
	}
	relay.last(1)
}

// TestServerRefusals checks that a mail is sent if the server refuses only some recipients.
// Other refusals are errors, and so is a server that does not answer.
func TestServerRefusals(t *testing.T) {
	s := newServer(t, func(s *server) { s.refused = []string{"anne@"} })
	if _, err := mailer(s, nil).Ask(t.Context(), question("a")); err != nil {
		t.Fatal(err)
	}
	if got := s.last(1); len(got.to) != 1 {
		t.Errorf("sent to %v", got.to)
	}
	s.refused = []string{"@example.com"}
	if _, err := mailer(s, nil).Ask(t.Context(), question("a")); err == nil || !strings.Contains(err.Error(), "no such user") {
		t.Errorf("no recipient: %v", err)
	}
	_, err := mailer(s, func(c *email.Config) { c.Password = "wrong-one" }).Ask(t.Context(), question("a"))
	if err == nil || !strings.Contains(err.Error(), "wrong password") || strings.Contains(err.Error(), "wrong-one") {
		t.Errorf("a wrong password: %v", err)
	}
	s.mu.Lock()
	s.hang = true
	s.mu.Unlock()
	if _, err := mailer(s, func(c *email.Config) { c.Timeout = 100 * time.Millisecond }).Ask(t.Context(), question("a")); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("a silent server: %v", err)
	}
	s.last(1)
}

// TestUnsentMailIsReported checks that the error is a NotSentError if the server certainly did
// not accept a mail. Then the outbox does not send the outcome of a question that did not
// arrive.
func TestUnsentMailIsReported(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, c := range map[string]struct {
		server func(*server)
		mailer func(*email.Config)
		unsent bool
	}{
		"no server":           {mailer: func(c *email.Config) { c.Server = gone.Addr().String() }, unsent: true},
		"a silent server":     {server: func(s *server) { s.hang = true }, mailer: func(c *email.Config) { c.Timeout = 100 * time.Millisecond }, unsent: true},
		"no STARTTLS":         {server: func(s *server) { s.noStartTLS = true }, unsent: true},
		"unknown certificate": {mailer: func(c *email.Config) { c.TLS = nil }, unsent: true},
		"a wrong password":    {mailer: func(c *email.Config) { c.Password = "wrong" }, unsent: true},
		"no recipient":        {server: func(s *server) { s.refused = []string{"@example.com"} }, unsent: true},
		"the mail is refused": {server: func(s *server) { s.end = "554 spam" }, unsent: true},
		"try again later":     {server: func(s *server) { s.end = "451 busy" }, unsent: true},
		"no answer":           {server: func(s *server) { s.end = "-" }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mailer(newServer(t, c.server), c.mailer).Ask(t.Context(), question("a"))
			if unsent := new(channel.NotSentError); err == nil || errors.As(err, &unsent) != c.unsent {
				t.Errorf("certainly not sent: %t, %v", !c.unsent, err)
			}
		})
	}
}
