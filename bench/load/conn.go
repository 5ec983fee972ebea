package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

// A Conn is one keep-alive connection. Its HTTP/1.1 client only sends prepared requests and
// reads answers with a length or in chunks, because on a small machine the load generator
// takes CPU time from the measured servers.
type Conn struct {
	net net.Conn
	in  *bufio.Reader
}

// Dial connects to addr. The read buffer has bufferSize bytes.
func Dial(ctx context.Context, addr string, bufferSize int) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{net: c, in: bufio.NewReaderSize(c, bufferSize)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.net.Close() }

// SetDeadline makes running operations fail at t.
func (c *Conn) SetDeadline(t time.Time) error { return c.net.SetDeadline(t) }

// Do sends e and reads the answer to its end. It fails unless every byte of the answer is as
// expected and the connection can be used again.
func (c *Conn) Do(e *workload.Exchange) error {
	if _, err := c.net.Write(e.Request); err != nil {
		return err
	}
	check := workload.NewChecker(e.Answer)
	if err := c.receive(e.Type, &check, untilEnd); err != nil {
		return err
	}
	if !check.Complete() {
		return fmt.Errorf("%w: it ends after %d of %d bytes", workload.ErrDiffers, check.Seen(), e.Answer.Len())
	}
	return nil
}

// Open sends a request for an event stream, and returns after the first event, which must be
// want. The stream stays open.
func (c *Conn) Open(request, want []byte) error {
	if _, err := c.net.Write(request); err != nil {
		return err
	}
	check := workload.NewChecker(workload.Body{Head: want})
	return c.receive(workload.TypeSSE, &check, check.Complete)
}

func untilEnd() bool { return false }

// receive reads an answer of the given type and passes its body to check, until the body ends
// or enough returns true.
func (c *Conn) receive(contentType string, check *workload.Checker, enough func() bool) error {
	head, err := c.readHead()
	if err != nil {
		return err
	}
	if head.status != "200" || !bytes.HasPrefix(head.contentType, []byte(contentType)) {
		return c.refused(head)
	}
	for !enough() {
		piece, err := c.piece(&head)
		if errors.Is(err, io.EOF) {
			return head.ended()
		}
		if err == nil {
			err = check.Accept(piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refused returns an error that describes an unexpected answer.
func (c *Conn) refused(head head) error {
	excerpt, err := c.piece(&head)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("status %s, %s: %.200s", head.status, head.contentType, excerpt)
}

// A head has the relevant headers of an answer, and the number of unread bytes in the current
// chunk.
type head struct {
	status      string
	contentType []byte
	chunked     bool
	closing     bool
	left        int64
	midBody     bool // a chunk was read, but not the line end after it
}

// ended returns an error if the connection cannot be used again after the answer.
func (h head) ended() error {
	if h.closing {
		return errors.New("the server closes the connection")
	}
	return nil
}

func (c *Conn) readHead() (head, error) {
	line, err := c.line()
	if err != nil {
		return head{}, err
	}
	const version = "HTTP/1.1 "
	if len(line) < len(version)+3 || string(line[:len(version)]) != version {
		return head{}, fmt.Errorf("status line %q", line)
	}
	h := head{status: "200"}
	if status := line[len(version) : len(version)+3]; string(status) != h.status {
		h.status = string(status)
	}
	for {
		line, err = c.line()
		if err != nil || len(line) == 0 {
			return h, err
		}
		if err := h.field(line); err != nil {
			return head{}, err
		}
	}
}

// field handles one header line.
func (h *head) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("Content-Type")):
		h.contentType = append(h.contentType, value...)
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("content length %q", value)
		}
		h.left = n
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		h.chunked = bytes.EqualFold(value, []byte("chunked"))
	case bytes.EqualFold(name, []byte("Connection")):
		h.closing = bytes.EqualFold(value, []byte("close"))
	}
	return nil
}

// piece returns the next bytes of the body, valid until the next read, or [io.EOF] after the
// last.
func (c *Conn) piece(h *head) ([]byte, error) {
	if h.left == 0 {
		if err := c.nextChunk(h); err != nil {
			return nil, err
		}
	}
	if _, err := c.in.Peek(1); err != nil {
		return nil, cut(err)
	}
	n := int(min(int64(c.in.Buffered()), h.left))
	piece, err := c.in.Peek(n)
	if err != nil {
		return nil, cut(err)
	}
	h.left -= int64(n)
	_, err = c.in.Discard(n)
	return piece, err
}

func (c *Conn) nextChunk(h *head) error {
	if !h.chunked {
		return io.EOF
	}
	if h.midBody {
		if err := c.emptyLine(); err != nil {
			return err
		}
	}
	h.midBody = true
	line, err := c.line()
	if err != nil {
		return err
	}
	if h.left, err = strconv.ParseInt(string(line), 16, 64); err != nil || h.left < 0 {
		return fmt.Errorf("chunk size %q", line)
	}
	if h.left > 0 {
		return nil
	}
	for len(line) > 0 { // trailers
		if line, err = c.line(); err != nil {
			return err
		}
	}
	return io.EOF
}

func (c *Conn) emptyLine() error {
	line, err := c.line()
	if err == nil && len(line) > 0 {
		return fmt.Errorf("%q behind a chunk", line)
	}
	return err
}

// line returns the next line without its end, valid until the next read.
func (c *Conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, cut(err)
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// cut changes io.EOF in the middle of an answer into an error that differs from the end of a
// body.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
