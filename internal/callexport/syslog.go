package callexport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
)

// A syslog takes entries as messages of RFC 5424, with their length before each (RFC 6587 and
// RFC 5425).
//
// Receivers of syslog do not confirm what they have got. So each batch has a connection, whose end
// the receiver sees after it has read the batch. A receiver that closes it then has read all.
type syslog struct {
	address string
	tls     *tls.Config // nil for TCP
	host    string
}

const syslogTimeout = 30 * time.Second // of one batch

var (
	errClosedEarly = errors.New("the receiver closed the connection before it had read all")
	errNotRead     = fmt.Errorf("the receiver did not read all and close the connection within %v", syslogTimeout)
)

// Send implements [Receiver].
func (s *syslog) Send(ctx context.Context, entries []callrecord.Entry) error {
	var messages []byte
	for i := range entries {
		var err error
		if messages, err = s.append(messages, &entries[i]); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, syslogTimeout)
	defer cancel()
	conn, err := s.dial(limited)
	if err == nil {
		err = transmit(limited, conn, messages)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		err = errNotRead
	}
	return &TemporaryError{err, -1}
}

func (s *syslog) dial(ctx context.Context) (net.Conn, error) {
	if s.tls == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", s.address)
	}
	return (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.address)
}

// transmit writes messages to conn, waits until the receiver closes it, and closes it.
func transmit(ctx context.Context, conn net.Conn, messages []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	closed := make(chan error, 1) // by the receiver
	go func() {
		_, err := io.Copy(io.Discard, conn)
		closed <- err
	}()
	_, err := conn.Write(messages)
	if err == nil {
		select {
		case err = <-closed:
			closed <- err
			err = errors.Join(errClosedEarly, err)
		default:
			err = closeWrite(conn)
		}
	}
	if err != nil {
		_ = conn.Close() // ends the reading
		<-closed
		return err
	}
	err = <-closed
	_ = conn.Close()
	return err
}

// closeWrite tells the receiver that nothing follows.
func closeWrite(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		if err := secure.CloseWrite(); err != nil {
			return err
		}
		conn = secure.NetConn() // some receivers do not take the alert for the end
	}
	return conn.(*net.TCPConn).CloseWrite()
}

const (
	audit   = 13 << 3 // the facility
	warning = 4       // the severities
	info    = 6
)

// append appends e as a message, with its length.
func (s *syslog) append(b []byte, e *callrecord.Entry) ([]byte, error) {
	var line bytes.Buffer
	if err := e.Write(&line); err != nil {
		return b, err
	}
	severity := info
	if notable(e) {
		severity = warning
	}
	message := fmt.Appendf(nil, "<%d>1 %s %s thoughtgate - %s - ",
		audit|severity, e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, headerField(string(e.Event), 32))
	message = appendASCII(message, bytes.TrimSuffix(line.Bytes(), []byte("\n")))
	b = strconv.AppendInt(b, int64(len(message)), 10)
	return append(append(b, ' '), message...), nil
}

// appendASCII appends JSON with escapes for control characters and everything that is not ASCII.
// So it needs no byte order mark, which many receivers take for a part of the text, and no text of
// an agent can end a message, even for receivers that ignore the length.
func appendASCII(b, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r >= ' ' && r < 0x7F:
			b = append(b, text[0])
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[size:]
	}
	return b
}

// headerField returns text as a field of the header of a message: without spaces and special
// characters, at most limit bytes, and not empty.
func headerField(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7F {
			return r
		}
		return '_'
	}, text)
	if text == "" {
		return "-"
	}
	return text[:min(len(text), limit)]
}
