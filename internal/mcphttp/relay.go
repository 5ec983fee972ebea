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

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

var pieces = sync.Pool{New: func() any { return new([upstream.PieceSize]byte) }}

// relay passes the upstream's answer on.
func (x *exchange) relay(ctx context.Context, resp *http.Response) {
	x.copyReplyHeader(resp.Header)
	kind := httpclient.MediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" && resp.StatusCode < 300 {
		x.relayEvents(ctx, resp)
		return
	}
	if resp.StatusCode >= http.StatusInternalServerError && x.fallBack() {
		return
	}
	body := &patientBody{ReadCloser: resp.Body, patience: x.silence}
	defer body.stop()
	if (x.refusals != nil || x.lists != nil) && resp.StatusCode < http.StatusMultipleChoices {
		x.relayBatch(ctx, body)
		return
	}
	if x.rewrite != nil && resp.StatusCode == http.StatusOK {
		x.relayRewritten(ctx, resp, kind, body)
		return
	}
	x.relayBody(resp, kind, body)
}

// relayBody passes on a body that the gate has no need to change.
func (x *exchange) relayBody(resp *http.Response, kind string, body io.Reader) {
	piece := pieces.Get().(*[upstream.PieceSize]byte)
	defer pieces.Put(piece)
	n, err := fill(body, piece[:])
	problem := x.nonsense(resp, kind, piece[:n], err)
	governed := x.h.cfg.Gate.Governs()
	if problem == nil && governed && errors.Is(err, io.EOF) {
		problem = x.unasked(piece[:n])
	}
	if problem != nil {
		clear(x.w.Header())
		x.fail(problem)
		return
	}
	x.noteAnswer(piece[:n])
	if errors.Is(err, io.EOF) {
		x.w.Header().Set("Content-Length", strconv.Itoa(n))
		x.begin(resp.StatusCode)
		x.write(piece[:n])
		return
	}
	if resp.ContentLength >= 0 {
		x.w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	x.begin(resp.StatusCode)
	if governed && kind == "application/json" && x.h.awaited.any(x.peer()) {
		begin := bytes.NewReader(bytes.Clone(piece[:n]))
		x.copy(newCheckedBody(x, io.MultiReader(begin, body)), piece[:], 0)
		return
	}
	x.copy(body, piece[:], n)
}

// relayRewritten passes on an answer that the gate has to change.
func (x *exchange) relayRewritten(ctx context.Context, resp *http.Response, kind string, body io.Reader) {
	message, seat, err := x.upstream.Room().ReadWhole(ctx, body, x.silence)
	defer seat.Leave()
	if err == nil {
		err = io.EOF
	}
	problem := x.nonsense(resp, kind, message, err)
	m, parseErr := x.readMessage(message)
	if problem == nil && (parseErr != nil || !x.answeredBy(m)) {
		problem = uncheckable(parseErr)
	}
	if problem != nil {
		clear(x.w.Header())
		x.fail(problem)
		return
	}
	x.failed = m.Error.Present()
	message = x.rewrite(m)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(message)))
	x.begin(resp.StatusCode)
	x.write(message)
}

// relayBatch passes on the answer to what was forwarded of a batch, together
// with the refusals of the rest.
func (x *exchange) relayBatch(ctx context.Context, body io.Reader) {
	answered, seat, err := x.upstream.Room().ReadWhole(ctx, body, x.silence)
	defer seat.Leave()
	var elements [][]byte
	if err == nil && (len(x.ids) > 0 || len(answered) > 0) {
		elements, err = x.readBatch(answered)
	}
	if err != nil {
		clear(x.w.Header())
		x.fail(brokenOff(err))
		return
	}
	x.w.Header().Del("Content-Length")
	x.answer(jsonrpc.Array(append(elements, x.refusals...)))
	x.handOver(ctx)
}

// readBatch returns the messages of an upstream's answer to a batch.
func (x *exchange) readBatch(answered []byte) ([][]byte, error) {
	packet, err := jsonrpc.Parse(answered, jsonrpc.Limits{Depth: x.h.cfg.Limits.Parse.Depth, Batch: upstream.MaxWhole})
	var messages [][]byte
	for i := range packet.Messages {
		if !x.expects(&packet.Messages[i]) {
			x.dropped()
			continue
		}
		shown, shownErr := x.shownInBatch(packet.Messages[i].Raw)
		messages, err = append(messages, shown), errors.Join(err, shownErr)
	}
	return messages, err
}

// nonsense returns the problem if a request was answered by something that is
// no JSON-RPC message. Other statuses than success, and answers to what is no
// request, are between the client and the upstream.
func (x *exchange) nonsense(resp *http.Response, kind string, begin []byte, err error) *wire.Problem {
	if err != nil && !errors.Is(err, io.EOF) {
		return brokenOff(err)
	}
	if x.id == nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	text := bytes.TrimSpace(begin)
	whole := errors.Is(err, io.EOF)
	switch {
	case kind != "application/json":
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
func (x *exchange) copy(body io.Reader, piece []byte, n int) {
	var err error
	for {
		x.write(piece[:n])
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			x.fail(brokenOff(err))
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
