package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// send returns what makes a held call in the name of this request: with its
// headers, so that the upstream sees the credentials and the session of a
// client that is there now.
func (x *exchange) send() approval.Sender {
	header, query, upstream := x.r.Header.Clone(), x.r.URL.RawQuery, x.upstream
	return func(ctx context.Context, message []byte) (approval.Outcome, error) {
		return upstream.execute(ctx, header, query, message)
	}
}

// Name returns the name of the upstream.
func (u *Upstream) Name() string { return u.cfg.Name }

// Sender returns what makes a held call with the gate's own credentials, in the
// name of no client.
func (u *Upstream) Sender() approval.Sender {
	return func(ctx context.Context, message []byte) (approval.Outcome, error) {
		return u.execute(ctx, make(http.Header), "", message)
	}
}

// execute sends a call that was held and returns the upstream's answer to it.
func (u *Upstream) execute(ctx context.Context, header http.Header, query string, message []byte) (approval.Outcome, error) {
	packet, err := jsonrpc.Parse(message, jsonrpc.Limits{})
	if err != nil {
		return approval.Outcome{}, &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: err}
	}
	m := &packet.Messages[0]
	resp, err := u.sendBy(ctx, u.patient, &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{RawQuery: query},
		Header: callHeader(header, m),
	}, plainCall(m))
	if err != nil {
		return approval.Outcome{}, sendError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return readOutcome(resp, m.ID.Bytes)
}

// callHeader turns the headers of a contact into those of the call itself,
// which the contact may have been about rather than made.
func callHeader(header http.Header, m *jsonrpc.Message) http.Header {
	header = header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	header.Del("Last-Event-Id")
	version, modern := m.Params.Meta.Member(wire.MetaVersion).Text()
	if !modern {
		return header
	}
	name := m.Params.Name
	if m.Params.URI.Present() {
		name = m.Params.URI
	}
	subject, _ := name.Text()
	header.Set("Mcp-Protocol-Version", version)
	header.Set("Mcp-Method", m.Method)
	header.Set("Mcp-Name", wire.EncodeHeader(subject))
	return header
}

// plainCall returns the call without any wish for a task: the gate keeps the
// task, and calls the tool like anybody else.
func plainCall(m *jsonrpc.Message) []byte {
	var patch jsonrpc.Patch
	extensions := m.Params.Meta.Member(wire.MetaCapabilities).Member("extensions")
	switch {
	case extensions.Member(wire.ExtensionTasks).Present():
		patch.Replace(extensions, extensions.Without(wire.ExtensionTasks))
	case m.Params.Task.Present():
		patch.Replace(m.Params.Value, m.Params.Without("task"))
	}
	return patch.Apply(m.Raw)
}

// sendError says how far a call got whose request failed.
func sendError(err error) error {
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return err
	}
	failure := &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: problem.Cause}
	switch problem.Type {
	case wire.UpstreamDown:
		failure.Stage, failure.Ran = task.StageUpstreamUnreachable, task.RanNo
	case wire.UpstreamTimeout:
		failure.Stage = task.StageUpstreamTimeout
	default:
	}
	return failure
}

// readOutcome reads the answer to the request with the given id.
func readOutcome(resp *http.Response, id []byte) (approval.Outcome, error) {
	if resp.StatusCode != http.StatusOK {
		return approval.Outcome{}, statusError(resp.StatusCode)
	}
	read := readJSONAnswer
	if mediaType(resp.Header.Get("Content-Type")) == "text/event-stream" {
		read = readStreamedAnswer
	}
	m, err := read(resp.Body, id)
	if err != nil {
		return approval.Outcome{}, &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: err}
	}
	if m.Error.Present() {
		return approval.Outcome{Body: bytes.NewReader(m.Error.Bytes), Error: true}, nil
	}
	return approval.Outcome{Body: bytes.NewReader(m.Result.Bytes)}, nil
}

// statusError tells what an HTTP status other than OK means for a call. A
// server that refuses a request has not run it.
func statusError(status int) error {
	failure := &approval.SendError{
		Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown,
		Err: fmt.Errorf("the upstream answered with status %d", status),
	}
	if status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		failure.Stage, failure.Ran = task.StageUpstreamError, task.RanNo
	}
	return failure
}

var errNoAnswer = errors.New("the upstream's answer is not one to the call")

func readJSONAnswer(body io.Reader, id []byte) (*jsonrpc.Message, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxRewritten+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxRewritten {
		return nil, jsonrpc.ErrTooLarge
	}
	m := answerIn(data, id)
	if m == nil {
		return nil, errNoAnswer
	}
	return m, nil
}

// readStreamedAnswer reads events until one is the answer. What the upstream
// says before is for a client that listens, and none does.
func readStreamedAnswer(body io.Reader, id []byte) (*jsonrpc.Message, error) {
	events := jsonrpc.NewEventReader(body, maxRewritten)
	for {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		if m := answerIn(event.Data, id); m != nil {
			return m, nil
		}
	}
}

// answerIn returns the message in data if it is the answer to the request with
// the given id, and nil otherwise.
func answerIn(data, id []byte) *jsonrpc.Message {
	packet, err := jsonrpc.Parse(data, jsonrpc.Limits{})
	if err != nil || packet.Batch {
		return nil
	}
	m := &packet.Messages[0]
	if m.Kind != jsonrpc.Response || !bytes.Equal(m.ID.Bytes, id) {
		return nil
	}
	return m
}
