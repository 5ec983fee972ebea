package mcphttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A requestBody is the body of an HTTP request, with the memory that it takes.
type requestBody struct {
	r        *http.Request
	out      *response
	limits   *Limits
	room     *admission.Pool  // in bytes
	guest    admission.Client // whose share of the room it takes
	reserved int64            // bytes of the room
	unread   bool             // whether the client may still be sending it
	until    time.Time        // when it must have arrived; zero if there is none
}

// expect gives the client limited time from then on to send its body. The server reads
// what the handler leaves of it, so this matters for refusals, too.
func (b *requestBody) expect(from time.Time) error {
	if b.r.ContentLength == 0 {
		return nil
	}
	b.unread, b.until = true, from.Add(b.limits.ReadTimeout)
	if err := b.out.control.SetReadDeadline(b.until); err != nil {
		return conversation.ErrGone
	}
	return nil
}

// jsonType is the Content-Type of every body that goes to an upstream.
const jsonType = "application/json"

// read reads the whole body, and refuses what the upstream might decode
// into something else than the gate sees. The upstream is told [jsonType],
// however the client has written that.
func (b *requestBody) read(ctx context.Context) ([]byte, *wire.Problem) {
	if !plainJSON(b.r.Header) {
		return nil, &wire.Problem{Type: wire.MediaType}
	}
	b.r.Header["Content-Type"][0] = jsonType
	if b.r.ContentLength > b.limits.Body {
		return nil, &wire.Problem{Type: wire.BodyTooLarge}
	}
	text, err := b.readAll(ctx)
	if err != nil {
		return nil, bodyProblem(err)
	}
	b.unread = false
	if err := b.out.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, &wire.Problem{Type: wire.Internal, Cause: err}
	}
	if err := b.r.Context().Err(); err != nil && !b.until.IsZero() && time.Now().After(b.until) {
		// The server has read on, found the time over, and takes the client for gone.
		return nil, &wire.Problem{Type: wire.SlowRequest, Cause: err}
	}
	return text, nil
}

// bodyPatience is how long a request waits for room for its body.
const bodyPatience = 2 * time.Second

// readAll reads the body in few pieces of known size. A client gets memory for
// what it has sent, not for what it announces: room for one piece at first, and
// for the rest when that has arrived.
func (b *requestBody) readAll(ctx context.Context) ([]byte, error) {
	size := b.r.ContentLength
	if size < 0 {
		return b.readUnannounced(ctx)
	}
	first := make([]byte, min(size, upstream.PieceSize))
	if err := b.reserve(ctx, int64(len(first))); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(b.r.Body, first); err != nil || size == int64(len(first)) {
		return first, err
	}
	if err := b.reserve(ctx, size-int64(len(first))); err != nil {
		return nil, err
	}
	text := make([]byte, size)
	_, err := io.ReadFull(b.r.Body, text[copy(text, first):])
	return text, err
}

// readUnannounced reads a body whose size the client did not announce. Each piece
// is as large as all before it, so that the room grows with what has arrived.
func (b *requestBody) readUnannounced(ctx context.Context) ([]byte, error) {
	limit := b.limits.Body
	from := http.MaxBytesReader(b.out.w, b.r.Body, limit)
	var pieces [][]byte
	read := int64(0)
	for {
		size := min(max(read, upstream.PieceSize), limit-read)
		if err := b.reserve(ctx, size); err != nil {
			return nil, err
		}
		piece := make([]byte, max(1, size)) // to see the end, if nothing else
		n, err := fill(from, piece)
		pieces = append(pieces, piece[:n])
		read += int64(n)
		if errors.Is(err, io.EOF) {
			b.giveBack(read)
			return slices.Concat(pieces...), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// reserve takes room for n bytes, until [requestBody.giveBack].
func (b *requestBody) reserve(ctx context.Context, n int64) error {
	if n == 0 {
		return nil
	}
	if err := b.room.Wait(ctx, b.guest, n, bodyPatience); err != nil {
		return crowded(b.out, err)
	}
	b.reserved += n
	return nil
}

// giveBack gives back all the room but that for the given number of bytes.
func (b *requestBody) giveBack(keep int64) {
	if rest := b.reserved - keep; rest > 0 {
		b.room.Release(b.guest, rest)
		b.reserved = keep
	}
}

// forgetBody gives back the room for a large body that the upstream has got, of
// an exchange that is going to last. It keeps what is still needed of the body,
// so that nothing refers to all of it any more. A small body stays with the
// request to the upstream.
func (x *exchange) forgetBody(p *conversation.Plan) {
	if x.body.reserved <= upstream.PieceSize {
		return
	}
	x.client.From() // for which the metadata is needed
	p.Body, x.client.meta = nil, jsonrpc.Value{}
	x.body.giveBack(int64(x.request.Keep()))
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
	return len(contentType) == 1 && (contentType[0] == jsonType || isJSON(contentType[0]))
}

// isJSON reports whether a Content-Type is that of JSON in UTF-8. It knows no other
// parameter than one charset: with charset* or a second charset, the upstream might
// go by another encoding than the gate.
func isJSON(contentType string) bool {
	media, parameter, _ := strings.Cut(strings.TrimRight(contentType, "; \t"), ";")
	if !strings.EqualFold(strings.Trim(media, " \t"), jsonType) {
		return false
	}
	if parameter == "" {
		return true
	}
	name, charset, _ := strings.Cut(parameter, "=")
	charset = strings.Trim(charset, " \t")
	return strings.EqualFold(strings.Trim(name, " \t"), "charset") &&
		(strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, `"utf-8"`))
}
