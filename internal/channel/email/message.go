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

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

const (
	maxSubject   = 150     // characters of a subject
	maxName      = 300     // characters of a name in a mail
	maxArguments = 8 << 10 // bytes of the arguments, if the mail has any
)

// message returns the mail about q, as it is sent.
func (m *Mailer) message(q channel.Question) []byte {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", encoded(m.cfg.From))
	var to []string
	for _, one := range m.cfg.To {
		to = append(to, encoded(one))
	}
	header("To", strings.Join(to, ",\r\n "))
	header("Subject", words(subject(q)))
	header("Date", m.cfg.Now().Format(time.RFC1123Z))
	header("Message-ID", m.id(q.MessageID()))
	if asked := (channel.Question{Stage: channel.Pending, Approval: casefile.Approval{ID: q.Approval.ID}}).MessageID(); asked != q.MessageID() {
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

// id returns the id of a mail, which is the same if it is sent again.
func (m *Mailer) id(message string) string { return "<" + message + "@" + m.domain() + ">" }

// encoded returns an address as a header has it.
func encoded(a mail.Address) string {
	if a.Name == "" {
		return "<" + a.Address + ">"
	}
	return words(a.Name) + " <" + a.Address + ">"
}

// words returns a text as encoded words, each on a line of its own: nothing in it can
// end the header, and none of it is read as an encoded word that somebody else wrote.
func words(text string) string {
	const most = 42 // bytes of a word before they are encoded
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
	return plain.Shown(text, maxSubject)
}

// text returns what the mail says.
func (m *Mailer) text(q channel.Question) string {
	var b strings.Builder
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-15s %s\n", name+":", foreign(value))
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
		fact("Approved by", d.By)
	}
	if a.Rejection != nil {
		fact("Rejected by", a.Rejection.By)
	}
	b.WriteString(cautions(q))
	if m.cfg.Arguments && q.Stage == channel.Pending {
		b.WriteString(arguments(a))
	}
	fmt.Fprintf(&b, "\n%s\n%s\n", link(q), q.Page)
	if q.Stage == channel.Pending {
		b.WriteString("\nYou are asked to sign in there. An answer to this mail decides nothing.\n")
	}
	return b.String()
}

func opening(q channel.Question) string {
	switch {
	case q.NewlyEscalated:
		return "Nobody has decided yet. The approvers of the workflow " + q.Escalated + " may decide now as well."
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
	return "What became of it:"
}

// cautions say what kind of thing to look for. The page shows the thing itself, which may
// be a part of the arguments.
func cautions(q channel.Question) (text string) {
	if q.Changed != nil {
		text += "\nCaution: " + foreign(q.Changed.Caution()) + ".\n"
	}
	if len(q.Approval.Warnings) > 0 {
		text += "\nCaution: some names or values in this call may not be what they look like.\n"
	}
	return text
}

// arguments returns the redacted arguments, each line of which is indented.
func arguments(a casefile.Approval) string {
	value := jsontext.Value(bytes.Clone(a.Arguments))
	if err := value.Indent(); err != nil || len(value) == 0 {
		return ""
	}
	text := plain.Text(string(value), maxArguments)
	note := ""
	if len(value) > maxArguments || a.ArgumentsTruncated {
		note = " (only their beginning)"
	}
	return "\nArguments" + note + ":\n    " + strings.ReplaceAll(defanged(text), "\n", "\n    ") + "\n"
}

// foreign returns a text of others on one line.
func foreign(text string) string {
	return defanged(strings.Join(strings.Fields(plain.Text(text, maxName)), " "))
}

// defanged returns a text in which mail programs find no link.
func defanged(text string) string { return strings.ReplaceAll(text, "://", "[:]//") }
