package mcphttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// expectBody gives the client limited time to send its body. The server reads
// what the handler leaves of it, so this matters for refusals, too.
func (x *exchange) expectBody() {
	if x.r.ContentLength == 0 {
		return
	}
	x.unread = true
	if err := x.control.SetReadDeadline(time.Now().Add(x.h.cfg.Limits.ReadTimeout)); err != nil {
		x.leave()
	}
}

// readBody reads the whole body, and refuses what the upstream might decode
// into something else than the gate sees.
func (x *exchange) readBody() ([]byte, *wire.Problem) {
	if !plainJSON(x.r.Header) {
		return nil, &wire.Problem{Type: wire.MediaType}
	}
	limit := x.h.cfg.Limits.Body
	if x.r.ContentLength > limit {
		return nil, &wire.Problem{Type: wire.BodyTooLarge}
	}
	body, err := x.readAll(limit)
	if err != nil {
		return nil, bodyProblem(err)
	}
	x.unread = false
	if err := x.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, &wire.Problem{Type: wire.Internal, Cause: err}
	}
	return body, nil
}

func (x *exchange) readAll(limit int64) ([]byte, error) {
	if x.r.ContentLength < 0 || x.r.ContentLength > pieceSize {
		// A client gets memory for what it has sent, not for what it announces.
		return io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, limit))
	}
	body := make([]byte, x.r.ContentLength)
	_, err := io.ReadFull(x.r.Body, body)
	return body, err
}

func bodyProblem(err error) *wire.Problem {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &wire.Problem{Type: wire.BodyTooLarge, Cause: err}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &wire.Problem{Type: wire.SlowRequest, Cause: err}
	}
	return &wire.Problem{Type: wire.InvalidRequest, Detail: "the body ended early", Cause: err}
}

// plainJSON reports whether a body is announced as JSON in UTF-8, and not
// compressed.
func plainJSON(h http.Header) bool {
	for _, encoding := range h["Content-Encoding"] {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return false
		}
	}
	contentType := h["Content-Type"]
	if len(contentType) != 1 {
		return false
	}
	if contentType[0] == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType[0])
	charset, given := params["charset"]
	return err == nil && media == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}
