package mcphttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// expectBody gives the client limited time to send its body. The server reads
// what the handler leaves of it, so this matters for refusals, too.
func (x *exchange) expectBody() error {
	if x.r.ContentLength == 0 {
		return nil
	}
	x.unread = true
	if err := x.control.SetReadDeadline(time.Now().Add(x.h.cfg.Limits.ReadTimeout)); err != nil {
		return errGone
	}
	return nil
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

// bodyPatience is how long a request waits for room for its body.
const bodyPatience = 2 * time.Second

// readAll reads the body in few pieces of known size. A client gets memory for
// what it has sent, not for what it announces, except that the room is reserved
// before: several clients that wait for each other's room would all get none.
func (x *exchange) readAll(limit int64) ([]byte, error) {
	size := x.r.ContentLength
	announced := size
	if size < 0 {
		announced = upstream.PieceSize
	}
	if err := x.reserve(announced); err != nil {
		return nil, err
	}
	if 0 <= size && size <= upstream.PieceSize {
		body := make([]byte, size)
		_, err := io.ReadFull(x.r.Body, body)
		return body, err
	}
	if size < 0 {
		return x.readUnannounced(limit)
	}
	first := make([]byte, upstream.PieceSize)
	n, err := io.ReadFull(x.r.Body, first)
	if err != nil {
		return nil, err
	}
	body := make([]byte, size)
	copy(body, first)
	_, err = io.ReadFull(x.r.Body, body[n:])
	return body, err
}

// readUnannounced reads a body whose size the client did not announce. There is
// room for one piece of it already.
func (x *exchange) readUnannounced(limit int64) ([]byte, error) {
	from := http.MaxBytesReader(x.w, x.r.Body, limit)
	var pieces [][]byte
	for {
		piece := make([]byte, upstream.PieceSize)
		n, err := fill(from, piece)
		pieces = append(pieces, piece[:n])
		switch {
		case errors.Is(err, io.EOF):
			return slices.Concat(pieces...), nil
		case err != nil:
			return nil, err
		case len(pieces) == 1 && limit > upstream.PieceSize:
			if err := x.reserve(limit - upstream.PieceSize); err != nil {
				return nil, err
			}
		}
	}
}

// reserve takes room for n bytes of a body, which the exchange gives back when
// it ends.
func (x *exchange) reserve(n int64) error {
	if err := x.h.cfg.Bodies.Wait(x.r.Context(), x.guest, n, bodyPatience); err != nil {
		return x.crowded(err)
	}
	x.reserved += n
	return nil
}

func bodyProblem(err error) *wire.Problem {
	if problem, ok := errors.AsType[*wire.Problem](err); ok {
		return problem
	}
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
