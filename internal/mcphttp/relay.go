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
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// A relay passes an upstream's answer on to the client.
type relay struct {
	h        *Handler
	client   *client
	reply    *reply
	request  *conversation.Request
	plan     *conversation.Plan
	resp     *http.Response
	use      httpclient.Use // the purpose of the request
	kind     string         // the media type of the answer
	begins   bool           // the answer may create a session
	silence  time.Duration  // how long the upstream may be silent
	patience time.Duration  // how long the answer may stall; zero means no limit
}

// run relays the answer.
func (a *relay) run(ctx context.Context) error {
	if problem := a.joinSession(); problem != nil {
		return a.fail(problem)
	}
	a.copyHeader()
	if a.client.checksAnswers() {
		a.plainType()
	}
	if a.kind == "text/event-stream" {
		return a.passEvents(ctx)
	}
	if a.resp.StatusCode >= http.StatusInternalServerError {
		if message := a.reply.substitute(a.plan, nil); message != nil {
			return a.reply.Answer(conversation.Answered, message)
		}
	}
	body := httpclient.NewTimeoutBody(a.resp.Body, a.patience)
	switch {
	case a.plan.ChangesBatch() && a.resp.StatusCode < http.StatusMultipleChoices:
		return a.batch(ctx, body)
	case a.plan.Rewrite != nil && a.resp.StatusCode == http.StatusOK:
		return a.rewritten(ctx, body)
	default:
		return a.passBody(body)
	}
}

// joinSession records the session that the answer creates, if any.
func (a *relay) joinSession() *mcp.Problem {
	given := a.resp.Header[sessionHeader]
	if len(given) == 0 || !a.begins || a.resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	return a.client.joinSession(given)
}

// kindOf returns the media type of an answer. Clients ignore event streams on non-2xx
// responses.
func kindOf(resp *http.Response) string {
	kind := httpclient.MediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" && resp.StatusCode >= http.StatusMultipleChoices {
		return ""
	}
	return kind
}

// forwardedHeaders are the upstream headers that clients get: those of MCP, the OAuth challenge
// and Retry-After. Others, such as cookies or browser policies, would be attributed to the
// gate.
var forwardedHeaders = [...]string{"Allow", "Cache-Control", "Content-Type", "Mcp-Protocol-Version", "Retry-After", "Www-Authenticate"}

// copyHeader sets the answer's headers.
func (a *relay) copyHeader() {
	from, to := a.resp.Header, a.reply.out.header()
	//mutate:swap "_, name := range forwardedHeaders" "name := range from" TestReplyHeaders every header of an upstream is passed on
	for _, name := range forwardedHeaders {
		if values := from[name]; values != nil {
			to[name] = values
		}
	}
	if challenge := from["Www-Authenticate"]; challenge != nil {
		to["Www-Authenticate"] = a.client.challenged(challenge)
	}
	if given := from[sessionHeader]; len(given) == 1 && (a.begins || given[0] == a.client.r.Header.Get(sessionHeader)) {
		to[sessionHeader] = given
	}
}

// plainType sets Content-Type to the media type that the gate has used to read the answer. Some
// clients search the whole header for a media type, and some decode the body by its parameters.
func (a *relay) plainType() {
	kind, header := a.kind, a.reply.out.header()
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

// namesMessages reports whether a client could take the Content-Type for that of messages.
func namesMessages(contentType string) bool {
	contentType = strings.ToLower(contentType)
	return strings.Contains(contentType, "application/json") || strings.Contains(contentType, "text/event-stream")
}

var pieces = sync.Pool{New: func() any { return new([upstream.PieceSize]byte) }}

// passBody relays a body that the gate does not change.
func (a *relay) passBody(body io.Reader) error {
	piece := pieces.Get().(*[upstream.PieceSize]byte)
	defer pieces.Put(piece)
	n, err := fill(body, piece[:])
	whole := errors.Is(err, io.EOF)
	problem := a.invalidAnswer(piece[:n], err)
	switch {
	case problem != nil:
	case whole:
		problem = a.checkWhole(piece[:n])
	case a.client.checksAnswers():
		body, problem = a.checked(piece[:n], body)
	}
	if problem != nil {
		return a.fail(problem)
	}
	if whole {
		return a.whole(piece[:n])
	}
	if a.resp.ContentLength >= 0 {
		a.reply.out.header().Set("Content-Length", strconv.FormatInt(a.resp.ContentLength, 10))
	}
	a.reply.out.begin(a.resp.StatusCode)
	return a.copy(body, piece[:], n)
}

// invalidAnswer returns a problem if a successful answer to a request is not a JSON-RPC
// message. Other answers pass unchanged.
func (a *relay) invalidAnswer(begin []byte, err error) *mcp.Problem {
	if err != nil && !errors.Is(err, io.EOF) {
		return brokenOff(err)
	}
	if a.request.ID() == nil || a.resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	text := bytes.TrimSpace(begin)
	whole := errors.Is(err, io.EOF)
	switch {
	case a.kind != "application/json" && len(text) > 0:
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream answered with neither JSON nor an event stream"}
	case whole && len(text) == 0:
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream's answer is empty"}
	case len(text) > 0 && text[0] != '{', whole && text[len(text)-1] != '}':
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream's answer is not a JSON object"}
	}
	return nil
}

// checkWhole checks a complete body. It keeps the upstream connection only if the body is the
// answer to this request, or is empty when the client sent no request. Any other body may
// belong to another request.
func (a *relay) checkWhole(body []byte) *mcp.Problem {
	answer, problem := a.request.CheckAnswer(body)
	//mutate:true TestAnswersStayWithTheirPrincipal a connection is kept after an answer to another request
	if answer != nil || problem == nil && len(body) == 0 && !a.request.ExpectsAnswer() && a.resp.StatusCode < http.StatusMultipleChoices {
		httpclient.Accept(a.resp.Body)
	}
	a.reply.account.Answered(answer)
	if !a.client.checksAnswers() {
		return nil
	}
	return problem
}

// checked checks the first bytes of a large body, and returns a reader that checks the rest.
func (a *relay) checked(begin []byte, rest io.Reader) (io.Reader, *mcp.Problem) {
	check := a.request.CheckText()
	if err := check.Pass(begin); err != nil {
		return nil, &mcp.Problem{Type: mcp.UpstreamUnasked, Cause: err}
	}
	return &checkedBody{rest: rest, check: check, body: a.resp.Body}, nil
}

// A checkedBody checks each piece of a body before passing it on. It keeps the upstream
// connection if the body is the answer to the request.
type checkedBody struct {
	rest  io.Reader
	check *conversation.Check
	body  io.ReadCloser // of the answer
}

// Read implements [io.Reader].
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.rest.Read(p)
	if refused := b.check.Pass(p[:n]); refused != nil {
		return 0, refused
	}
	if errors.Is(err, io.EOF) && b.check.IsAnswer() {
		httpclient.Accept(b.body)
	}
	return n, err
}

// announced is the size of the buffer of net/http. The server sets Content-Length itself for
// shorter bodies.
const announced = 2 << 10

// whole sends a complete body.
func (a *relay) whole(body []byte) error {
	if len(body) >= announced {
		a.reply.out.header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	a.reply.out.begin(a.resp.StatusCode)
	return a.reply.out.write(body)
}

// copy sends the first n bytes of piece, and then the rest of body.
func (a *relay) copy(body io.Reader, piece []byte, n int) error {
	var err error
	for {
		if err := a.reply.out.write(piece[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return a.reply.Fail(brokenOff(err))
		}
		n, err = body.Read(piece)
	}
}

// fill reads until p is full (nil error) or the reader ends.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// rewritten relays an answer that the gate must change.
func (a *relay) rewritten(ctx context.Context, body io.Reader) error {
	message, permit, err := a.client.upstream.AnswerLimit().ReadWhole(ctx, body, a.silence)
	defer permit.Release()
	if err == nil {
		err = io.EOF
	}
	problem := a.invalidAnswer(message, err)
	m, parseErr := a.h.readMessage(message)
	if problem == nil && (parseErr != nil || !a.request.IsAnswer(m)) {
		problem = uncheckable(parseErr)
	}
	if problem != nil {
		return a.fail(problem)
	}
	httpclient.Accept(a.resp.Body)
	a.reply.account.Answered(m)
	return a.whole(a.plan.Rewrite(m))
}

// batch relays the answer to the forwarded part of a batch, together with the gate's answers to
// the rest.
func (a *relay) batch(ctx context.Context, body io.Reader) error {
	answered, permit, err := a.client.upstream.AnswerLimit().ReadWhole(ctx, body, a.silence)
	defer permit.Release()
	var elements [][]byte
	if err == nil && (a.request.ExpectsAnswer() || len(answered) > 0) {
		elements, err = a.request.ReadBatch(a.plan, answered)
	}
	if err != nil {
		return a.fail(brokenOff(err))
	}
	a.reply.out.header().Del("Content-Length")
	return a.request.AnswerBatch(ctx, a.plan, elements)
}

// fail answers the client if the upstream's answer cannot be relayed.
func (a *relay) fail(problem *mcp.Problem) error {
	clear(a.reply.out.header())
	return a.reply.Fail(problem)
}

// uncheckable returns the problem of an answer that the gate must check and cannot parse.
func uncheckable(cause error) *mcp.Problem {
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream's answer cannot be checked", Cause: cause}
}

// brokenOff returns the problem of a body that ended early.
func brokenOff(err error) *mcp.Problem {
	switch {
	case errors.Is(err, upstream.ErrTooManyAnswers):
		return &mcp.Problem{Type: mcp.Overloaded, RetryAfter: 1, Detail: "too many large answers of the upstream at once, try again", Cause: err}
	case errors.Is(err, upstream.ErrUnchecked):
		return uncheckable(err)
	}
	problem := &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream broke off its answer", Cause: err}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		problem = &mcp.Problem{Type: mcp.UpstreamTimeout, Cause: err}
	}
	return problem
}
