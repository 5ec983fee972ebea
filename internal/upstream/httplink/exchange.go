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
)

// An exchange is what the client asked in one message, until the server has answered.
type exchange struct {
	l       *Link
	request upstream.Request
	ids     [][]byte // of requests that the server has not answered
	cancel  context.CancelFunc

	anyTime bool // the server's silence has no limit once its answer has begun: see [upstream.Blocks] and [upstream.Asks]
}

// run sends the message, and gives the client what the server says to it.
func (x *exchange) run(ctx context.Context) {
	all := slices.Clone(x.ids)
	defer x.cancel()
	defer x.l.forget(all)
	err := x.serve(ctx)
	if len(x.ids) > 0 {
		if err == nil {
			err = brokenOff(nil)
		}
		x.l.unanswered(x.ids, err)
	}
}

// serve returns an error if the server gives no answer.
func (x *exchange) serve(ctx context.Context) error {
	resp, err := x.l.Send(ctx, x.request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	x.setPatience(resp.Body)
	if resp.Events && resp.Status == http.StatusOK {
		return x.stream(ctx, resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(x.l.cfg.MaxLine)+1))
	switch {
	case err != nil:
		return brokenOff(err)
	case len(text) > x.l.cfg.MaxLine:
		return tooLarge()
	case resp.Status != http.StatusOK && !x.isAnswer(text):
		return refusal(resp.Status)
	}
	x.take(resp, text)
	return nil
}

// isAnswer reports whether a text is an answer to the request.
func (x *exchange) isAnswer(text []byte) bool {
	m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{Depth: x.l.cfg.Depth})
	return err == nil && m.Kind == jsonrpc.Response && m.ID.Present() && jsonrpc.SameID(m.ID.Bytes, x.ids[0])
}

// take gives the client a message.
func (x *exchange) take(resp *upstream.Response, text []byte) {
	if x.request.Message.Method == methodInitialize && x.isAnswer(text) {
		x.l.begun(resp.Session, text)
	}
	answered, asks := x.l.received(text, x.ids)
	x.anyTime = x.anyTime || asks
	for _, id := range answered {
		x.ids = slices.DeleteFunc(x.ids, func(other []byte) bool { return jsonrpc.SameID(id, other) })
	}
}

// setPatience lifts the limit on the server's silence, if there is none any more.
func (x *exchange) setPatience(body io.ReadCloser) {
	if x.anyTime {
		httpclient.WaitAnyTime(body)
	}
}

// stream takes the events of an answer. If it breaks off before all is answered, the
// rest is asked for behind the last event, if the server has said how. A server that has
// said nothing for too long is asked for nothing more.
func (x *exchange) stream(ctx context.Context, resp *upstream.Response) error {
	place := position{pause: shortPause}
	body := resp.Body
	take := func(text []byte) bool {
		x.take(resp, text)
		x.setPatience(body)
		return len(x.ids) > 0
	}
	err := x.l.follow(body, &place, take)
	silent := isSilence(err)
	for len(x.ids) > 0 && !silent && place.id != "" && place.failures < maxResumes && ctx.Err() == nil {
		place.wait(ctx)
		var rest *http.Response
		if rest, err = x.l.get(ctx, place.id); err != nil {
			place.failures++
			continue
		}
		if rest.StatusCode != http.StatusOK {
			_ = rest.Body.Close()
			return brokenOff(fmt.Errorf("the rest of the stream: status %d", rest.StatusCode))
		}
		before := place.id
		body = x.l.cfg.Client.AnswerBody(x.request, rest.Body)
		x.setPatience(body)
		err = x.l.follow(body, &place, take)
		silent = isSilence(err)
		if place.failures++; place.id != before {
			place.failures = 0
		}
	}
	if len(x.ids) == 0 {
		return nil
	}
	return brokenOff(err)
}
