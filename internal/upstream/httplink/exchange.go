package httplink

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// An exchange is one message of the client with requests, until the server has answered them.
type exchange struct {
	link    *Link
	request upstream.Request
	ids     [][]byte // ids of unanswered requests
	cancel  context.CancelFunc

	noReadTimeout bool // the answer has no read timeout; see [upstream.WaitsForTask] and [upstream.AsksClient]
}

// run sends the message and passes the server's messages to the client.
func (x *exchange) run(ctx context.Context) {
	all := slices.Clone(x.ids)
	defer x.cancel()
	defer x.link.forget(all)
	err := x.serve(ctx)
	if len(x.ids) > 0 {
		if err == nil {
			err = incompleteProblem(nil)
		}
		x.link.unanswered(x.ids, err)
	}
}

// serve returns an error if the server does not answer.
func (x *exchange) serve(ctx context.Context) error {
	resp, err := x.link.Send(ctx, x.request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	x.applyReadTimeout(resp.Body)
	if resp.Events && resp.Status == http.StatusOK {
		return x.stream(ctx, resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(x.link.cfg.MaxLine)+1))
	isAnswer := err == nil && x.isAnswer(text)
	switch {
	case err != nil:
		return incompleteProblem(err)
	case len(text) > x.link.cfg.MaxLine:
		return upstream.TooLarge()
	case resp.Status != http.StatusOK && !isAnswer:
		return statusProblem(resp.Status)
	//mutate:swap "isAnswer && " "" TestConnectionEndsAtStrayAnswer a link keeps a connection after an answer to another request
	case isAnswer && len(x.ids) == 1:
		httpclient.Accept(resp.Body)
	}
	x.take(resp, text)
	return nil
}

// isAnswer reports whether text is an answer to the request.
func (x *exchange) isAnswer(text []byte) bool {
	m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{Depth: x.link.cfg.Depth})
	return err == nil && m.Kind == jsonrpc.Response && m.ID.Present() && jsonrpc.SameID(m.ID.Bytes, x.ids[0])
}

// take passes a message to the client.
func (x *exchange) take(resp *upstream.Response, text []byte) {
	if x.request.Message.Method == mcpname.Initialize && x.isAnswer(text) {
		x.link.noteSession(resp.Session, text)
	}
	answered, asks := x.link.received(text, x.ids)
	//mutate:drop TestQuestionLiftsTimeout a server over HTTP gets no more time for a question than for its answer
	x.noReadTimeout = x.noReadTimeout || asks
	for _, id := range answered {
		x.ids = slices.DeleteFunc(x.ids, func(other []byte) bool { return jsonrpc.SameID(id, other) })
	}
}

// applyReadTimeout removes the read timeout of a body, if the exchange has none.
func (x *exchange) applyReadTimeout(body io.ReadCloser) {
	if x.noReadTimeout {
		httpclient.DisableReadTimeout(body)
	}
}

// stream passes on the events of an answer. If the stream ends before all requests are answered,
// and its events have ids, stream requests the rest. It does not do so after a read timeout.
func (x *exchange) stream(ctx context.Context, resp *upstream.Response) error {
	resume := position{pause: shortPause}
	body := resp.Body
	take := func(text []byte) bool {
		x.take(resp, text)
		x.applyReadTimeout(body)
		return len(x.ids) > 0
	}
	err := x.link.follow(body, &resume, take)
	silent := isTimeout(err)
	for len(x.ids) > 0 && !silent && resume.id != "" && resume.failures < maxResumes && ctx.Err() == nil {
		resume.wait(ctx)
		var rest *http.Response
		if rest, err = x.link.get(ctx, resume.id); err != nil {
			resume.failures++
			continue
		}
		if rest.StatusCode != http.StatusOK {
			_ = rest.Body.Close()
			return incompleteProblem(fmt.Errorf("the rest of the stream: status %d", rest.StatusCode))
		}
		before := resume.id
		//mutate:swap "x.link.cfg.Client.AnswerBody(x.request, rest.Body)" "rest.Body" TestSilentServerTimesOut the rest of a stream may never come
		body = x.link.cfg.Client.AnswerBody(x.request, rest.Body)
		x.applyReadTimeout(body)
		err = x.link.follow(body, &resume, take)
		silent = isTimeout(err)
		if resume.failures++; resume.id != before {
			resume.failures = 0
		}
	}
	if len(x.ids) == 0 {
		return nil
	}
	return incompleteProblem(err)
}
