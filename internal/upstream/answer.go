package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// An answer is the answer to a request of the gate. Its Body is read as it arrives, and must be
// closed.
type answer struct {
	approval.Outcome

	result jsonrpc.Value // the members in its first 64 KiB; valid until Body is read
	body   *answerBody   // the source of Body
}

// member returns a member of the result. It is absent if it does not end within the first 64 KiB of
// the result.
func (a *answer) member(name string) jsonrpc.Value { return a.result.Member(name) }

// resultType returns the type of the result. A result without a type in its first 64 KiB counts as
// complete: all other types are small. If a type follows later, reading Body fails.
func (a *answer) resultType() string {
	if kind, given := a.member(memberResultType).Text(); given {
		return kind
	}
	return resultComplete
}

const (
	memberResultType = "resultType"
	memberTask       = "task"    // in the result of a legacy call that became a task
	memberContent    = "content" // in the result of a tool
	resultComplete   = "complete"
)

func (a *answer) close() {
	if c, ok := a.Body.(io.Closer); ok {
		_ = c.Close()
	}
}

// resolveKind reads an answer to its end if its beginning does not tell whether it is a result or a
// task.
func (a *answer) resolveKind() error {
	if a.Error || !a.body.isAmbiguous() {
		return nil
	}
	a.body.isCallResult = true // checked by the caller, now that the whole text is known
	text, err := a.readAll()
	a.Body, a.result = bytes.NewReader(text.Bytes), text
	return err
}

// readAll reads the answer to its end and returns the result, or the error object.
func (a *answer) readAll() (jsonrpc.Value, error) {
	defer a.close()
	text, err := io.ReadAll(io.LimitReader(a.Body, MaxWhole+1))
	if err == nil && len(text) > MaxWhole {
		err = invalidAnswer(jsonrpc.ErrTooLarge)
	}
	return jsonrpc.Value{Bytes: text}, err
}

// readList reads a list to its end. It takes a permit of limit, because many lists may be read at
// once.
func (a *answer) readList(ctx context.Context, limit AnswerLimit) (jsonrpc.Value, error) {
	defer a.close()
	text, permit, err := limit.ReadWhole(ctx, a.Body, listWait)
	defer permit.Release() // the list is used at once and then dropped
	if errors.Is(err, ErrUnchecked) {
		err = invalidAnswer(jsonrpc.ErrTooLarge)
	}
	return jsonrpc.Value{Bytes: text}, err
}

// listWait is how long a list may wait for a permit. Its context ends sooner.
const listWait = time.Minute

// readAnswer reads the beginning of the answer to the request m. The answer's Body closes resp;
// without an answer, readAnswer closes it. Interim, which may be nil, gets the messages that
// precede the answer.
func readAnswer(resp *Response, m *jsonrpc.Message, interim func(message []byte)) (answer, error) {
	id := m.ID.Bytes
	find := findAnswer
	if resp.Events {
		find = func(body io.Reader, id []byte) (*jsonrpc.ResponseReader, jsonrpc.Head, error) {
			return findStreamedAnswer(body, id, interim)
		}
	}
	r, head, err := find(resp.Body, id)
	if err = answerError(resp, head, err); err != nil {
		_ = resp.Body.Close()
		return answer{}, err
	}
	body := &answerBody{r: r, closer: resp.Body, id: id, hasType: head.Failed, isCallResult: head.Failed || !m.Params.Task.Present()}
	a := answer{Outcome: approval.Outcome{Body: body, Error: head.Failed}, body: body}
	//mutate:true internal/mcphttp.TestUnusableLargeAnswers a result other than an object is kept
	if head.Begin.IsObject() {
		a.Body = objectBody{body, r}
	}
	if !head.Failed {
		a.result = head.Begin
		body.hasType = a.member(memberResultType).Present()
		body.isCallResult = body.isCallResult || a.member(memberTask).Present()
	}
	return a, nil
}

// answerError returns why a response cannot be the answer to a call. Head is the beginning of the
// message in it; err says why there is none.
func answerError(resp *Response, head jsonrpc.Head, err error) error {
	switch {
	case resp.Status == http.StatusOK && err != nil:
		return invalidAnswer(err)
	case resp.Status == http.StatusOK:
		return nil
	case err == nil && !head.Failed:
		//mutate:swap "resultWithRefusal" "statusError" internal/mcphttp.TestRefusalWithResultMayHaveRun an approval is kept although the result of the call came
		return resultWithRefusal(resp)
	case err != nil || resp.refusal() != nil:
		return statusError(resp)
	default:
		return nil
	}
}

// An answerBody reads the result or the error in an answer.
type answerBody struct {
	r       *jsonrpc.ResponseReader
	closer  io.Closer
	id      []byte
	hasType bool // the type of the result was at its beginning, or the answer is an error

	// isCallResult says that the beginning shows the kind of the result: the call did not
	// ask for a task, or the result has a task in its first 64 KiB.
	isCallResult bool
}

// An objectBody is the body of an answer that is an object. It implements [approval.Checked].
type objectBody struct {
	io.ReadCloser

	r *jsonrpc.ResponseReader
}

// Member implements [approval.Checked].
func (b objectBody) Member(name string) jsonrpc.Value { return b.r.Member(name) }

// isAmbiguous reports whether the beginning does not tell a call's result from a task.
func (b *answerBody) isAmbiguous() bool { return !b.isCallResult && !b.r.Has(memberContent) }

// Read implements [io.Reader]. The id may follow the result, so only at the end is it certain that
// this is the answer to the request. No HTTP handler recovers a panic here.
func (b *answerBody) Read(p []byte) (n int, err error) {
	defer recovered(&err)
	n, err = b.r.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, invalidAnswer(err)
	case !jsonrpc.SameID(b.r.ID().Bytes, b.id):
		return n, invalidAnswer(errNoAnswer)
	}
	if kind, given := b.r.Member(memberResultType).Text(); given && !b.hasType && kind != resultComplete {
		return n, invalidType(kind)
	}
	if !b.isCallResult && b.r.Has(memberTask) {
		return n, invalidAnswer(errLateTask)
	}
	return n, io.EOF
}

// errLateTask reports a task behind the part of a result that was checked for one.
var errLateTask = errors.New("the upstream's answer has a task behind its first 64 KiB")

// Close drops the rest of the answer.
func (b *answerBody) Close() error { return b.closer.Close() }

// invalidAnswer reports an answer that the gate cannot use.
func invalidAnswer(cause error) error {
	return &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown, Err: cause}
}

func invalidType(kind string) error {
	return invalidAnswer(fmt.Errorf("the upstream answered with a result of type %q", kind))
}

// notRunStatuses are the statuses that refuse a request before it runs. With others, such as 408 or
// 409, it may have run.
var notRunStatuses = []int{400, 401, 403, 404, 405, 406, 413, 415, 421, 429, 431}

// statusError returns the error of a call that was answered with a status other than 200.
func statusError(resp *Response) error {
	failure := &approval.SendError{
		Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown, Refusal: resp.refusal(),
		Err: fmt.Errorf("the upstream answered with status %d", resp.Status),
	}
	switch {
	case failure.Refusal != nil:
		failure.Stage, failure.Ran = lifecycle.StageSessionGone, task.RanNo
	case slices.Contains(notRunStatuses, resp.Status):
		failure.Stage, failure.Ran = lifecycle.StageUpstreamError, task.RanNo
	}
	return failure
}

// resultWithRefusal reports a refusal whose body has a result: the call may have run.
func resultWithRefusal(resp *Response) error {
	return invalidAnswer(fmt.Errorf("the upstream answered with status %d and a result", resp.Status))
}

var errNoAnswer = errors.New("the upstream's answer does not belong to the call")

// findAnswer reads the beginning of the message in body, which must be the answer to the request
// with this id.
func findAnswer(body io.Reader, id []byte) (*jsonrpc.ResponseReader, jsonrpc.Head, error) {
	r := jsonrpc.NewResponseReader(body, memberResultType, memberTask, memberContent, approval.MemberIsError)
	head, err := r.Head()
	if given := r.ID(); err == nil && (head.Kind != jsonrpc.Response || given.Present() && !jsonrpc.SameID(given.Bytes, id)) {
		err = errNoAnswer
	}
	return r, head, err
}

// findStreamedAnswer reads events up to the answer. Interim, which may be nil, gets the messages
// before it.
func findStreamedAnswer(body io.Reader, id []byte, interim func([]byte)) (*jsonrpc.ResponseReader, jsonrpc.Head, error) {
	events := jsonrpc.NewDataReader(body)
	for {
		if err := events.Next(); err != nil {
			return nil, jsonrpc.Head{}, err
		}
		recorded := &recorder{Reader: events, off: interim == nil}
		r, head, err := findAnswer(recorded, id)
		if _, none := errors.AsType[*jsonrpc.ParseError](err); !none && !errors.Is(err, errNoAnswer) {
			recorded.off = true
			return r, head, err
		}
		if _, err := io.Copy(io.Discard, recorded); err != nil {
			return nil, jsonrpc.Head{}, err
		}
		if !recorded.off {
			interim(recorded.text)
		}
	}
}

// A recorder keeps a copy of the bytes that are read, up to maxInterim.
type recorder struct {
	io.Reader

	text []byte
	off  bool // stop copying
}

// maxInterim is the size up to which messages before an answer are passed on.
const maxInterim = 1 << 20

// Read implements [io.Reader].
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.off {
		r.text = append(r.text, p[:n]...)
		r.off = len(r.text) > maxInterim
	}
	return n, err
}
