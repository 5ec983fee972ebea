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

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// expectBody gives the client limited time to send its body. The server reads
// what the handler leaves of it, so this matters for refusals, too.
func (x *exchange) expectBody() error {
	if x.r.ContentLength == 0 {
		return nil
	}
	x.unread = true
	if err := x.control.SetReadDeadline(time.Now().Add(x.h.cfg.Limits.ReadTimeout)); err != nil {
		return conversation.ErrGone
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
// what it has sent, not for what it announces: room for one piece at first, and
// for the rest when that has arrived.
func (x *exchange) readAll(limit int64) ([]byte, error) {
	size := x.r.ContentLength
	if size < 0 {
		return x.readUnannounced(limit)
	}
	first, err := x.readPiece(x.r.Body, min(size, upstream.PieceSize))
	if err != nil || size == int64(len(first)) {
		return first, err
	}
	if err := x.reserve(size - int64(len(first))); err != nil {
		return nil, err
	}
	body := make([]byte, size)
	_, err = io.ReadFull(x.r.Body, body[copy(body, first):])
	return body, err
}

// readPiece reserves room for a piece of the body and reads it.
func (x *exchange) readPiece(from io.Reader, size int64) ([]byte, error) {
	if err := x.reserve(size); err != nil {
		return nil, err
	}
	piece := make([]byte, size)
	_, err := io.ReadFull(from, piece)
	return piece, err
}

// readUnannounced reads a body whose size the client did not announce. Each piece
// is as large as all before it, so that the room grows with what has arrived.
func (x *exchange) readUnannounced(limit int64) ([]byte, error) {
	from := http.MaxBytesReader(x.w, x.r.Body, limit)
	var pieces [][]byte
	read := int64(0)
	for {
		size := min(max(read, upstream.PieceSize), limit-read)
		if err := x.reserve(size); err != nil {
			return nil, err
		}
		piece := make([]byte, max(1, size)) // to see the end, if nothing else
		n, err := fill(from, piece)
		pieces = append(pieces, piece[:n])
		read += int64(n)
		if errors.Is(err, io.EOF) {
			x.giveBack(read)
			return slices.Concat(pieces...), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// reserve takes room for n bytes of a body, which the exchange gives back when
// it ends, or with giveBack.
func (x *exchange) reserve(n int64) error {
	if n == 0 {
		return nil
	}
	if err := x.h.cfg.Bodies.Wait(x.ctx, x.guest, n, bodyPatience); err != nil {
		return x.crowded(err)
	}
	x.reserved += n
	return nil
}

// giveBack gives back all the room for a body but that for the given number of
// bytes.
func (x *exchange) giveBack(keep int64) {
	if rest := x.reserved - keep; rest > 0 {
		x.h.cfg.Bodies.Release(x.guest, rest)
		x.reserved = keep
	}
}

// forgetBody gives back the room for a large body that the upstream has got, of
// an exchange that is going to last. It keeps what is still needed of the body,
// so that nothing refers to all of it any more. A small body stays with the
// request to the upstream.
func (x *exchange) forgetBody(p *conversation.Plan) {
	if x.reserved <= upstream.PieceSize {
		return
	}
	x.From() // for which the metadata is needed
	p.Body, x.meta = nil, jsonrpc.Value{}
	x.giveBack(int64(x.request.Keep()))
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
