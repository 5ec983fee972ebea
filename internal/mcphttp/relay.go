package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

var pieces = sync.Pool{New: func() any { return new([upstream.PieceSize]byte) }}

// A relay passes the upstream's answer on to the client of an exchange.
type relay struct {
	x       *exchange
	plan    *conversation.Plan
	resp    *http.Response
	kind    string        // the media type of the answer; see kindOf
	silence time.Duration // how long the upstream may say nothing
}

// run passes the answer on.
func (a relay) run(ctx context.Context) error {
	a.copyHeader()
	if a.x.h.cfg.Hub.Governs() {
		a.plainType()
	}
	if a.kind == "text/event-stream" {
		return a.events(ctx)
	}
	if a.resp.StatusCode >= http.StatusInternalServerError {
		if message := a.x.substitute(a.plan); message != nil {
			return a.x.Answer(conversation.Answered, message)
		}
	}
	body := a.patient()
	switch {
	case a.plan.ChangesBatch() && a.resp.StatusCode < http.StatusMultipleChoices:
		return a.batch(ctx, body)
	case a.plan.Rewrite != nil && a.resp.StatusCode == http.StatusOK:
		return a.rewritten(ctx, body)
	default:
		return a.body(body)
	}
}

// patient returns the body of the answer with the limit on the upstream's silence.
func (a relay) patient() *httpclient.PatientBody {
	if a.x.blocks {
		return httpclient.NewPatientBody(a.resp.Body, 0)
	}
	return httpclient.NewPatientBody(a.resp.Body, a.silence)
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

// body passes on a body that the gate has no need to change.
func (a relay) body(body io.Reader) error {
	piece := pieces.Get().(*[upstream.PieceSize]byte)
	defer pieces.Put(piece)
	n, err := fill(body, piece[:])
	whole := errors.Is(err, io.EOF)
	problem := a.invalidAnswer(piece[:n], err)
	switch {
	case problem != nil:
	case !a.x.h.cfg.Hub.Governs():
		a.noteAnswer(piece[:n])
	case whole:
		a.x.failed, problem = a.x.request.CheckAnswer(piece[:n])
	default:
		a.noteAnswer(piece[:n])
		body, problem = a.checked(piece[:n], body)
	}
	if problem != nil {
		return a.fail(problem)
	}
	if whole {
		return a.whole(piece[:n])
	}
	if a.resp.ContentLength >= 0 {
		a.x.out.header().Set("Content-Length", strconv.FormatInt(a.resp.ContentLength, 10))
	}
	a.x.out.begin(a.resp.StatusCode)
	return a.copy(body, piece[:], n)
}

// announced is how much of a body the server of net/http holds back to find out its
// length. It announces the length of a shorter one itself.
const announced = 2 << 10

// whole passes on a body that is at hand.
func (a relay) whole(body []byte) error {
	if len(body) >= announced {
		a.x.out.header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	a.x.out.begin(a.resp.StatusCode)
	return a.x.out.write(body)
}

// fail answers the client that the upstream's answer cannot be passed on.
func (a relay) fail(problem *wire.Problem) error {
	clear(a.x.out.header())
	return a.x.Fail(problem)
}

// rewritten passes on an answer that the gate has to change.
func (a relay) rewritten(ctx context.Context, body io.Reader) error {
	message, seat, err := a.x.upstream.Room().ReadWhole(ctx, body, a.silence)
	defer seat.Leave()
	if err == nil {
		err = io.EOF
	}
	problem := a.invalidAnswer(message, err)
	m, parseErr := a.x.readMessage(message)
	if problem == nil && (parseErr != nil || !a.x.request.IsAnswer(m)) {
		problem = uncheckable(parseErr)
	}
	if problem != nil {
		return a.fail(problem)
	}
	a.x.failed = m.Error.Present()
	return a.whole(a.plan.Rewrite(m))
}

// batch passes on the answer to what was forwarded of a batch, together
// with the refusals of the rest.
func (a relay) batch(ctx context.Context, body io.Reader) error {
	answered, seat, err := a.x.upstream.Room().ReadWhole(ctx, body, a.silence)
	defer seat.Leave()
	var elements [][]byte
	if err == nil && (a.x.request.Asks() || len(answered) > 0) {
		elements, err = a.x.request.ReadBatch(a.plan, answered)
	}
	if err != nil {
		return a.fail(brokenOff(err))
	}
	a.x.out.header().Del("Content-Length")
	return a.x.request.AnswerBatch(ctx, a.plan, elements)
}

// invalidAnswer returns a problem if a successful answer to a request is no JSON-RPC
// message. An answer with another status, or to what is no request, passes as it is.
func (a relay) invalidAnswer(begin []byte, err error) *wire.Problem {
	if err != nil && !errors.Is(err, io.EOF) {
		return brokenOff(err)
	}
	if a.x.id() == nil || a.resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	text := bytes.TrimSpace(begin)
	whole := errors.Is(err, io.EOF)
	switch {
	case a.kind != "application/json" && len(text) > 0:
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
func (a relay) checked(begin []byte, rest io.Reader) (io.Reader, *wire.Problem) {
	check := a.x.request.CheckText()
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
func (a relay) copy(body io.Reader, piece []byte, n int) error {
	var err error
	for {
		if err := a.x.out.write(piece[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return a.x.Fail(brokenOff(err))
		}
		n, err = body.Read(piece)
	}
}

// A watchfulBody calls f before each read that may wait for the upstream, and reports
// whether it does.
type watchfulBody interface{ BeforeWait(f func()) bool }

// beforeWait returns a body that has f called before each read that may wait.
func beforeWait(body io.Reader, f func()) io.Reader {
	if watchful, ok := body.(watchfulBody); ok && watchful.BeforeWait(f) {
		return body
	}
	return &waitingBody{Reader: body, before: f}
}

// A waitingBody is a body of which any read may wait.
type waitingBody struct {
	io.Reader

	before func()
}

// Read implements [io.Reader].
func (b *waitingBody) Read(p []byte) (int, error) {
	b.before()
	return b.Reader.Read(p)
}

// copyHeader sets the headers that the client gets of the upstream's answer.
func (a relay) copyHeader() {
	from, to := a.resp.Header, a.x.out.header()
	for _, name := range passedOn {
		if values := from[name]; values != nil {
			to[name] = values
		}
	}
	const session = "Mcp-Session-Id"
	if given := from[session]; len(given) == 1 && (a.x.label == "initialize" && a.x.client.era == wire.Legacy || given[0] == a.x.r.Header.Get(session)) {
		to[session] = given
	}
}

// plainType sets the Content-Type of an answer to the kind as which the gate has
// read it, without parameters by which a client may read it as another one. There
// are clients that look for a kind anywhere in the header, and some that decode a
// message as the header says.
func (a relay) plainType() {
	kind, header := a.kind, a.x.out.header()
	given := header["Content-Type"]
	message := kind == "application/json" || kind == "text/event-stream"
	switch {
	case len(given) == 1 && (given[0] == kind || strings.EqualFold(strings.ReplaceAll(given[0], " ", ""), kind+";charset=utf-8")):
	case message:
		header.Set("Content-Type", kind)
	case slices.ContainsFunc(given, namesMessages):
		header.Set("Content-Type", "application/octet-stream")
	}
}
