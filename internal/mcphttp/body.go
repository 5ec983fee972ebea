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
	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A requestBody reads the body of an HTTP request and reserves memory for it.
type requestBody struct {
	h        *Handler
	r        *http.Request
	out      *response
	client   admission.Client // the owner of the share of [Config.Bodies]
	reserved int64            // reserved bytes
	unread   bool             // the client may still be sending it
	until    time.Time        // deadline for its arrival; zero if there is no body
	text     []byte           // the body, if it was read before
}

// expect sets the deadline for the body. The deadline also limits how long the server drains
// the body after a refusal.
func (b *requestBody) expect(from time.Time) error {
	if b.r.ContentLength == 0 {
		return nil
	}
	b.unread, b.until = true, from.Add(b.h.cfg.Limits.ReadTimeout)
	if err := b.out.control.SetReadDeadline(b.until); err != nil {
		return conversation.ErrGone
	}
	return nil
}

// jsonType is the Content-Type of every body sent upstream.
const jsonType = "application/json"

// read reads the whole body. It refuses a media type that the upstream might decode
// differently, and replaces equivalent spellings by [jsonType].
func (b *requestBody) read(ctx context.Context) ([]byte, *mcp.Problem) {
	if b.text != nil {
		return b.text, nil
	}
	if !plainJSON(b.r.Header) {
		return nil, &mcp.Problem{Type: mcp.MediaType}
	}
	b.r.Header["Content-Type"][0] = jsonType
	if b.r.ContentLength > b.h.cfg.Limits.Body {
		return nil, tooLarge(b.h.cfg.Limits.Body)
	}
	text, err := b.readAll(ctx)
	if err != nil {
		return nil, bodyProblem(err)
	}
	b.unread = false
	if err := b.out.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, &mcp.Problem{Type: mcp.Internal, Cause: err}
	}
	if err := b.r.Context().Err(); err != nil && !b.until.IsZero() && time.Now().After(b.until) {
		// The server's background read hit the deadline and cancelled the context.
		return nil, &mcp.Problem{Type: mcp.SlowRequest, Cause: err}
	}
	return text, nil
}

// bodyWait is how long a request waits for memory for its body.
const bodyWait = 2 * time.Second

// readAll reads a body of announced size. A client gets memory for bytes that it has sent, not
// for those that it announces: one piece first, and the rest after that piece has arrived.
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

// readUnannounced reads a body of unknown size. Each piece is as large as all pieces before it,
// so the memory grows with the bytes that have arrived.
func (b *requestBody) readUnannounced(ctx context.Context) ([]byte, error) {
	limit := b.h.cfg.Limits.Body
	from := http.MaxBytesReader(b.out.w, b.r.Body, limit)
	var pieces [][]byte
	read := int64(0)
	for {
		size := min(max(read, upstream.PieceSize), limit-read)
		if err := b.reserve(ctx, size); err != nil {
			return nil, err
		}
		piece := make([]byte, max(1, size)) // at least one byte, to detect the end
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

// reserve takes memory for n bytes, until [requestBody.giveBack].
func (b *requestBody) reserve(ctx context.Context, n int64) error {
	if n == 0 {
		return nil
	}
	if err := b.h.cfg.Bodies.Acquire(ctx, b.client, n, bodyWait); err != nil {
		return overloaded(b.out, err)
	}
	b.reserved += n
	return nil
}

// giveBack releases all reserved memory except for keep bytes.
func (b *requestBody) giveBack(keep int64) {
	if rest := b.reserved - keep; rest > 0 {
		b.h.cfg.Bodies.Release(b.client, rest)
		b.reserved = keep
	}
}

func bodyProblem(err error) *mcp.Problem {
	if problem, ok := errors.AsType[*mcp.Problem](err); ok {
		return problem
	}
	if exceeded, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(exceeded.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &mcp.Problem{Type: mcp.SlowRequest, Cause: err}
	}
	return &mcp.Problem{Type: mcp.InvalidRequest, Detail: "the body ended early", Cause: err}
}

func tooLarge(limit int64) *mcp.Problem {
	return &mcp.Problem{Type: mcp.BodyTooLarge, Detail: "the body is larger than " + human.Size(limit) + " (limits.max_request_body)"}
}

// plainJSON reports whether the headers announce uncompressed JSON in UTF-8.
func plainJSON(h http.Header) bool {
	for _, encoding := range h["Content-Encoding"] {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return false
		}
	}
	contentType := h["Content-Type"]
	//mutate:swap "(contentType[0] == jsonType || isJSON(contentType[0]))" "strings.HasPrefix(contentType[0], jsonType)" TestMediaTypeOfRequests another charset counts as UTF-8
	return len(contentType) == 1 && (contentType[0] == jsonType || isJSON(contentType[0]))
}

// isJSON reports whether a Content-Type means JSON in UTF-8. It accepts one charset parameter
// and no other: with charset* or a second charset, the upstream could choose another encoding.
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
