package email

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

const (
	maxSubject   = 150     // characters of a subject
	maxName      = 300     // characters of a name in a mail
	maxArguments = 8 << 10 // bytes of the arguments
)

// message returns the mail about q with its headers.
func (m *Mailer) message(q channel.Question) []byte {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", encoded(m.cfg.From))
	var to []string
	for _, one := range m.cfg.To {
		to = append(to, encoded(one))
	}
	header("To", strings.Join(to, ",\r\n "))
	//mutate:swap "encodedWords(subject(q))" `q.Headline()+": "+q.Approval.Tool` TestHostileNamesStayInSubject a subject is sent without encoding
	header("Subject", encodedWords(subject(q)))
	header("Date", m.cfg.Now().Format(time.RFC1123Z))
	header("Message-ID", m.id(q.MessageID()))
	if asked := (channel.Question{Stage: channel.Pending, Approval: review.Approval{ID: q.Approval.ID}}).MessageID(); asked != q.MessageID() {
		header("In-Reply-To", m.id(asked))
		header("References", m.id(asked))
	}
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	text := quotedprintable.NewWriter(&b)
	_, _ = text.Write([]byte(strings.ReplaceAll(m.text(q), "\n", "\r\n"))) // to memory
	_ = text.Close()
	return b.Bytes()
}

// id returns the Message-ID for a message of a channel.
func (m *Mailer) id(message string) string { return "<" + message + "@" + m.domain() + ">" }

// encoded returns an address for a header.
func encoded(a mail.Address) string {
	if a.Name == "" {
		return "<" + a.Address + ">"
	}
	return encodedWords(a.Name) + " <" + a.Address + ">"
}

// encodedWords returns a text as encoded words (RFC 2047), one on each line. All of the text
// is encoded, so it cannot end the header or contain an encoded word of its own.
func encodedWords(text string) string {
	const most = 42 // bytes of a word before encoding
	var all []string
	for text = strings.ToValidUTF8(text, "�"); text != ""; {
		n := 0
		for n < len(text) {
			_, size := utf8.DecodeRuneInString(text[n:])
			if n+size > most {
				break
			}
			n += size
		}
		all = append(all, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(text[:n]))+"?=")
		text = text[n:]
	}
	return strings.Join(all, "\r\n ")
}

func subject(q channel.Question) string {
	text := q.Headline() + ": " + q.Approval.Tool
	if q.Reminder > 0 {
		text = "Reminder: " + text
	}
	return safetext.Truncate(text, maxSubject)
}

// text returns the body of the mail.
func (m *Mailer) text(q channel.Question) string {
	var b strings.Builder
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-15s %s\n", name+":", oneLine(value))
		}
	}
	b.WriteString(opening(q) + "\n\n")
	a := q.Approval
	fact("Tool", a.Tool)
	fact("Requested by", a.Principal)
	fact("Server", a.Upstream)
	fact("Held because", a.Reason)
	fact("Risk", string(a.Risk))
	if q.Stage == channel.Pending {
		fact("Decide before", a.ExpiresAt.UTC().Format("2 January 15:04 UTC"))
		fact("Escalated to", q.Escalated)
	}
	for _, d := range a.Approvals {
		fact("Approved by", d.ByText())
	}
	if a.Rejection != nil {
		fact("Rejected by", channel.Rejector(*a.Rejection))
	}
	b.WriteString(cautions(q))
	//mutate:swap "m.cfg.Arguments && " "" TestMailIsSentEncrypted a mail contains arguments although the configuration does not allow it
	if m.cfg.Arguments && q.Stage == channel.Pending {
		b.WriteString(arguments(a))
	}
	fmt.Fprintf(&b, "\n%s\n%s\n", link(q), q.Page)
	if q.Stage == channel.Pending {
		b.WriteString("\nSign in there to decide. Replies to this mail are not read.\n")
	}
	return b.String()
}

func opening(q channel.Question) string {
	switch {
	case q.NewlyEscalated:
		return "This call still waits for a decision. The approvers of the workflow " + q.Escalated + " may now decide as well."
	case q.Reminder > 0:
		return "This call still waits for a decision."
	case q.Stage == channel.Pending:
		return "An agent wants to make this call, and waits for your decision."
	default:
		return q.Headline() + "."
	}
}

func link(q channel.Question) string {
	if q.Stage == channel.Pending {
		return "Read the call and decide:"
	}
	return "See the outcome:"
}

// cautions returns warnings. They do not quote the arguments.
func cautions(q channel.Question) (text string) {
	if q.Changed != nil {
		text += "\nCaution: " + oneLine(q.Changed.Text()) + ".\n"
	}
	if len(q.Approval.Warnings) > 0 {
		text += "\nCaution: some names or values in this call contain characters that look like others.\n"
	}
	return text
}

// arguments returns the redacted arguments as indented JSON.
func arguments(a review.Approval) string {
	value := jsontext.Value(bytes.Clone(a.Arguments))
	if err := value.Indent(); err != nil || len(value) == 0 {
		return ""
	}
	text := safetext.Text(string(value), maxArguments)
	note := ""
	if len(value) > maxArguments || a.ArgumentsTruncated {
		note = " (truncated)"
	}
	return "\nArguments" + note + ":\n    " + strings.ReplaceAll(withoutLinks(text), "\n", "\n    ") + "\n"
}

// oneLine returns foreign text on one line, without links.
func oneLine(text string) string {
	return withoutLinks(strings.Join(strings.Fields(safetext.Text(text, maxName)), " "))
}

// withoutLinks changes URLs so that mail programs do not make links of them.
func withoutLinks(text string) string { return strings.ReplaceAll(text, "://", "[:]//") }
