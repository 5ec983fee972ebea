package httpserver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	maxCopied         = 4 << 10          // larger writes are not copied into the buffer
	maxKept           = 512              // capacity of the buffer that an idle stream keeps
	finalWriteTimeout = 10 * time.Second // for the client to read the end of its answer
)

// A streamWriter writes an HTTP/1.1 answer to a hijacked connection. The connection is
// closed after the answer.
type streamWriter struct {
	conn  net.Conn
	leave context.CancelFunc // ends the request; called when a write fails

	header  http.Header
	status  int    // 0 before the answer begins
	chunked bool   // the length of the body is not known
	pending []byte // not sent yet
	err     error  // of the first failed write
}

// Header implements [http.ResponseWriter].
func (w *streamWriter) Header() http.Header { return w.header }

// hasBody reports whether an answer has a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// WriteHeader implements [http.ResponseWriter].
func (w *streamWriter) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	w.chunked = hasBody(status) && w.header.Get("Content-Length") == ""
	if w.chunked {
		w.header.Set("Transfer-Encoding", "chunked")
	}
	w.header.Set("Connection", "close")
	w.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = w.header.Write(&head) // cannot fail
	head.WriteString("\r\n")
	w.pending = head.Bytes()
	w.header = http.Header{} // frees memory: the stream may last long
}

// Write implements [http.ResponseWriter].
func (w *streamWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	case !hasBody(w.status):
		return 0, http.ErrBodyNotAllowed
	}
	if w.chunked {
		w.pending = append(strconv.AppendInt(w.pending, int64(len(p)), 16), "\r\n"...)
	}
	if len(p) <= maxCopied {
		w.pending = append(w.pending, p...)
	} else {
		w.write(w.pending)
		w.write(p)
		w.pending = w.pending[:0]
	}
	if w.chunked {
		w.pending = append(w.pending, "\r\n"...)
	}
	if len(w.pending) > maxCopied {
		_ = w.FlushError()
	}
	return len(p), w.err
}

// write sends p at once, unless an earlier write failed.
func (w *streamWriter) write(p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}
	if _, w.err = w.conn.Write(p); w.err != nil {
		w.leave()
	}
}

// FlushError sends the pending bytes. [http.ResponseController] calls it.
func (w *streamWriter) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.write(w.pending)
	w.pending = w.pending[:0]
	if cap(w.pending) > maxKept {
		w.pending = nil
	}
	return w.err
}

// SetWriteDeadline sets the deadline of writes. [http.ResponseController] calls it.
func (w *streamWriter) SetWriteDeadline(deadline time.Time) error {
	return w.conn.SetWriteDeadline(deadline)
}

// end completes the answer.
func (w *streamWriter) end() {
	if w.status == 0 {
		w.header.Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	}
	if w.chunked {
		w.pending = append(w.pending, "0\r\n\r\n"...)
	}
	if w.SetWriteDeadline(time.Now().Add(finalWriteTimeout)) == nil {
		_ = w.FlushError() // the client may have left
	}
}
