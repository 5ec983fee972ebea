package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

var pieces = sync.Pool{New: func() any { return new([upstream.PieceSize]byte) }}

// relay passes the upstream's answer on.
func (x *exchange) relay(ctx context.Context, p *conversation.Plan, resp *http.Response) error {
	x.copyReplyHeader(resp.Header)
	kind := kindOf(resp)
	if x.h.cfg.Hub.Governs() {
		x.plainType(kind)
	}
	if kind == "text/event-stream" {
		return x.relayEvents(ctx, p, resp)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		if message := x.substitute(p); message != nil {
			return x.Answer(conversation.Answered, message)
		}
	}
	body := &patientBody{ReadCloser: resp.Body, patience: x.silence}
	defer body.stop()
	switch {
	case p.ChangesBatch() && resp.StatusCode < http.StatusMultipleChoices:
		return x.relayBatch(ctx, p, body)
	case p.Rewrite != nil && resp.StatusCode == http.StatusOK:
		return x.relayRewritten(ctx, p, resp, kind, body)
	default:
		return x.relayBody(resp, kind, body)
	}
}

// kindOf returns the media type of an answer. Nobody reads one that is no success
// as events.
func kindOf(resp *http.Response) string {
	kind := httpclient.MediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" && resp.StatusCode >= http.StatusMultipleChoices {
		return ""
	}
	return kind
}

// relayBody passes on a body that the gate has no need to change.
func (x *exchange) relayBody(resp *http.Response, kind string, body io.Reader) error {
	piece := pieces.Get().(*[upstream.PieceSize]byte)
	defer pieces.Put(piece)
	n, err := fill(body, piece[:])
	whole := errors.Is(err, io.EOF)
	problem := x.nonsense(resp, kind, piece[:n], err)
	if problem == nil && x.h.cfg.Hub.Governs() {
		if whole {
			problem = x.request.Unasked(piece[:n])
		} else {
			body, problem = x.checked(piece[:n], body)
		}
	}
	if problem != nil {
		return x.failRelay(problem)
	}
	x.noteAnswer(piece[:n])
	if whole {
		return x.relayWhole(resp.StatusCode, piece[:n])
	}
	if resp.ContentLength >= 0 {
		x.w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	x.begin(resp.StatusCode)
	return x.copy(body, piece[:], n)
}

// relayWhole passes on a body that is at hand.
func (x *exchange) relayWhole(status int, body []byte) error {
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.begin(status)
	return x.write(body)
}

// failRelay tells the client that the upstream's answer is not one to pass on.
func (x *exchange) failRelay(problem *wire.Problem) error {
	clear(x.w.Header())
	return x.Fail(problem)
}

// relayRewritten passes on an answer that the gate has to change.
func (x *exchange) relayRewritten(ctx context.Context, p *conversation.Plan, resp *http.Response, kind string, body io.Reader) error {
	message, seat, err := x.upstream.Room().ReadWhole(ctx, body, x.silence)
	defer seat.Leave()
	if err == nil {
		err = io.EOF
	}
	problem := x.nonsense(resp, kind, message, err)
	m, parseErr := x.readMessage(message)
	if problem == nil && (parseErr != nil || !x.request.IsAnswer(m)) {
		problem = uncheckable(parseErr)
	}
	if problem != nil {
		return x.failRelay(problem)
	}
	x.failed = m.Error.Present()
	return x.relayWhole(resp.StatusCode, p.Rewrite(m))
}

// relayBatch passes on the answer to what was forwarded of a batch, together
// with the refusals of the rest.
func (x *exchange) relayBatch(ctx context.Context, p *conversation.Plan, body io.Reader) error {
	answered, seat, err := x.upstream.Room().ReadWhole(ctx, body, x.silence)
	defer seat.Leave()
	var elements [][]byte
	if err == nil && (x.request.Asks() || len(answered) > 0) {
		elements, err = x.request.ReadBatch(p, answered)
	}
	if err != nil {
		return x.failRelay(brokenOff(err))
	}
	x.w.Header().Del("Content-Length")
	return x.request.AnswerBatch(ctx, p, elements)
}

// nonsense returns the problem if a request was answered by something that is
// no JSON-RPC message, as if that were one. Other statuses than success, and
// answers to what is no request, are between the client and the upstream.
func (x *exchange) nonsense(resp *http.Response, kind string, begin []byte, err error) *wire.Problem {
	if err != nil && !errors.Is(err, io.EOF) {
		return brokenOff(err)
	}
	if x.id() == nil || resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	text := bytes.TrimSpace(begin)
	whole := errors.Is(err, io.EOF)
	switch {
	case kind != "application/json" && len(text) > 0:
		return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream answered with neither JSON nor an event stream"}
	case whole && len(text) == 0:
		return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream's answer is empty"}
	case len(text) > 0 && text[0] != '{', whole && text[len(text)-1] != '}':
		return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream's answer is not a JSON object"}
	}
	return nil
}

// uncheckable returns the problem of an answer that the gate has to change and
// cannot.
func uncheckable(cause error) *wire.Problem {
	return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream's answer cannot be checked", Cause: cause}
}

// brokenOff returns the problem of a body that ended before its time.
func brokenOff(err error) *wire.Problem {
	switch {
	case errors.Is(err, upstream.ErrNoRoom):
		return &wire.Problem{Type: wire.Overloaded, RetryAfter: 1, Detail: "too many large answers of the upstream at once, try again", Cause: err}
	case errors.Is(err, upstream.ErrUnchecked):
		return uncheckable(err)
	}
	problem := &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream broke off its answer", Cause: err}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		problem = &wire.Problem{Type: wire.UpstreamTimeout, Cause: err}
	}
	return problem
}

// A checkedBody is a body of which each piece is checked before it is given on.
type checkedBody struct {
	io.Reader

	check *conversation.Check
}

// Read implements [io.Reader].
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if refused := b.check.Pass(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

// checked returns the rest of a body that begins with the given bytes, checked
// while it is read, or the problem with those bytes.
func (x *exchange) checked(begin []byte, rest io.Reader) (io.Reader, *wire.Problem) {
	check := x.request.CheckText()
	if err := check.Pass(begin); err != nil {
		return nil, &wire.Problem{Type: wire.UpstreamUnasked, Cause: err}
	}
	return &checkedBody{Reader: rest, check: check}, nil
}

// fill reads until p is full (nil error) or the reader has no more.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// copy sends the first n bytes of piece, and the rest of body after them.
func (x *exchange) copy(body io.Reader, piece []byte, n int) error {
	var err error
	for {
		if err := x.write(piece[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return x.Fail(brokenOff(err))
		}
		n, err = body.Read(piece)
	}
}

// A patientBody gives up on an upstream that stops in the middle of a body.
type patientBody struct {
	io.ReadCloser

	patience time.Duration
	timer    *time.Timer
	gaveUp   atomic.Bool
}

func (b *patientBody) Read(p []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.patience, b.giveUp)
	} else {
		b.timer.Reset(b.patience)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.gaveUp.Load() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func (b *patientBody) giveUp() {
	b.gaveUp.Store(true)
	_ = b.Close()
}

func (b *patientBody) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
