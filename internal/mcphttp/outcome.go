package mcphttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An answer is what an upstream says to a request that the gate makes itself.
// Its Body is read as it arrives, and must be closed.
type answer struct {
	approval.Outcome

	result jsonrpc.Value // as far as it is known before the Body is read
}

// member returns a member of the result. It is absent if the result has none of
// that name, or only far behind its beginning.
func (a *answer) member(name string) jsonrpc.Value { return a.result.Member(name) }

// resultType returns of what type the result is.
func (a *answer) resultType() string {
	if kind, given := a.member("resultType").Text(); given {
		return kind
	}
	return resultComplete
}

const resultComplete = "complete"

func (a *answer) close() {
	if c, ok := a.Body.(io.Closer); ok {
		_ = c.Close()
	}
}

// readOutcome reads the answer to the call with the given id. Resp is closed
// with the Body of the outcome, or when there is none.
func readOutcome(resp *http.Response, id []byte) (approval.Outcome, error) {
	a, err := readAnswer(resp, id)
	if err != nil {
		return approval.Outcome{}, err
	}
	if kind := a.resultType(); kind != resultComplete {
		// A question, or a task of the upstream's: nobody is there to answer the
		// one or to follow the other, and neither is an outcome.
		a.close()
		return approval.Outcome{}, invalidAnswer(fmt.Errorf("the upstream answered with a result of type %q", kind))
	}
	return a.Outcome, nil
}

// readAnswer reads the answer to the request with the given id. Resp is closed
// with the answer's Body, or when there is no answer.
func readAnswer(resp *http.Response, id []byte) (answer, error) {
	read := readJSONAnswer
	if mediaType(resp.Header.Get("Content-Type")) == "text/event-stream" {
		read = readStreamedAnswer
	}
	m, err := read(resp.Body, id)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK && (err != nil || !m.Error.Present()) {
		return answer{}, statusError(resp.StatusCode)
	}
	if err != nil {
		return answer{}, invalidAnswer(err)
	}
	if m.Error.Present() {
		return answer{Outcome: approval.Outcome{Body: bytes.NewReader(m.Error.Bytes), Error: true}}, nil
	}
	return answer{Outcome: approval.Outcome{Body: bytes.NewReader(m.Result.Bytes)}, result: m.Result}, nil
}

// invalidAnswer says that an answer is none that the gate can use.
func invalidAnswer(cause error) error {
	return &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: cause}
}

// unrun are the statuses with which a server refuses a request, and so has not
// run it. With others, such as 408 or 409, it may have.
var unrun = []int{400, 401, 403, 404, 405, 406, 413, 415, 421, 429, 431}

// statusError tells what an HTTP status other than OK means for a call.
func statusError(status int) error {
	failure := &approval.SendError{
		Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown,
		Err: fmt.Errorf("the upstream answered with status %d", status),
	}
	if slices.Contains(unrun, status) {
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
