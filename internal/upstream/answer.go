package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An answer is what an upstream says to a request that the gate makes itself.
// Its Body is read as it arrives, and must be closed.
type answer struct {
	approval.Outcome

	result jsonrpc.Value // its first 64 KiB, as an object; valid until the Body is read
}

// member returns a member of the result. It is absent if the result has none of
// that name, or if that ends more than 64 KiB behind the result's beginning.
func (a *answer) member(name string) jsonrpc.Value { return a.result.Member(name) }

// resultType returns of what type the result is. One that does not tell within
// 64 KiB is taken to be complete: all others are small. If it tells otherwise
// later, its Body fails.
func (a *answer) resultType() string {
	if kind, given := a.member(memberResultType).Text(); given {
		return kind
	}
	return resultComplete
}

const (
	memberResultType = "resultType"
	memberTask       = "task"    // of the result of a legacy call that became a task
	memberContent    = "content" // of the result of a tool
	resultComplete   = "complete"
)

func (a *answer) close() {
	if c, ok := a.Body.(io.Closer); ok {
		_ = c.Close()
	}
}

// clear reads an answer to its end of which the beginning does not tell whether
// it is a result or a task.
func (a *answer) clear() error {
	body := a.arriving()
	if body == nil || a.Error || !body.unclear() {
		return nil
	}
	body.called = true // which will show
	text, err := a.whole()
	a.Body, a.result = bytes.NewReader(text.Bytes), text
	return err
}

// arriving returns the Body if that is read as it arrives, and nil otherwise.
func (a *answer) arriving() *answerBody {
	switch body := a.Body.(type) {
	case *answerBody:
		return body
	case objectBody:
		return body.answerBody
	default:
		return nil
	}
}

// whole reads the answer to its end and returns the result, or the error.
func (a *answer) whole() (jsonrpc.Value, error) {
	defer a.close()
	text, err := io.ReadAll(io.LimitReader(a.Body, MaxWhole+1))
	if err == nil && len(text) > MaxWhole {
		err = invalidAnswer(jsonrpc.ErrTooLarge)
	}
	return jsonrpc.Value{Bytes: text}, err
}

// list is whole for a list, of which many may be read at once: there must be room
// for it. It may take until ctx ends.
func (a *answer) list(ctx context.Context, room Room) (jsonrpc.Value, error) {
	defer a.close()
	text, seat, err := room.ReadWhole(ctx, a.Body, longestList)
	defer seat.Leave() // what follows takes no time
	if errors.Is(err, ErrUnchecked) {
		err = invalidAnswer(jsonrpc.ErrTooLarge)
	}
	return jsonrpc.Value{Bytes: text}, err
}

// longestList is how long a list may wait for room. Its context ends sooner.
const longestList = time.Minute

// readAnswer reads the answer to the request m, as far as it takes to tell what
// it is. Resp is closed with the answer's Body, or when there
// is no answer. Interim, which may be nil, is called with messages that come before.
func readAnswer(resp *Response, m *jsonrpc.Message, interim func(message []byte)) (answer, error) {
	id := m.ID.Bytes
	find := findAnswer
	if resp.Events {
		find = func(body io.Reader, id []byte) (*jsonrpc.ResponseReader, jsonrpc.Head, error) {
			return findStreamedAnswer(body, id, interim)
		}
	}
	r, head, err := find(resp.Body, id)
	switch {
	case resp.Status != http.StatusOK && (err != nil || !head.Failed):
		err = statusError(resp.Status)
	case err != nil:
		err = invalidAnswer(err)
	}
	if err != nil {
		_ = resp.Body.Close()
		return answer{}, err
	}
	body := &answerBody{r: r, from: resp.Body, id: id, typed: head.Failed, called: head.Failed || !m.Params.Task.Present()}
	a := answer{Outcome: approval.Outcome{Body: body, Error: head.Failed}}
	if head.Begin.IsObject() {
		a.Body = objectBody{body}
	}
	if !head.Failed {
		a.result = head.Begin
		body.typed = a.member(memberResultType).Present()
		body.called = body.called || a.member(memberTask).Present()
	}
	return a, nil
}

// An answerBody is the result or the error in an upstream's answer.
type answerBody struct {
	r     *jsonrpc.ResponseReader
	from  io.Closer
	id    []byte
	typed bool // what the result is has been told at its beginning, or it is none

	// called says that the result is known to be that of a call, or to be a task:
	// the call did not ask for a task, or the task stands at the beginning.
	called bool
}

// An objectBody is an answerBody that is an object. It implements [approval.Checked].
type objectBody struct{ *answerBody }

// Member implements [approval.Checked].
func (b objectBody) Member(name string) jsonrpc.Value { return b.r.Member(name) }

// unclear reports whether the beginning does not tell if the result is that of a
// call or a task.
func (b *answerBody) unclear() bool { return !b.called && !b.r.Has(memberContent) }

// Read reads on. Only at the end is it known that the answer is one: until then
// it can turn out to be another message. No exchange is there to turn a panic
// into an answer.
func (b *answerBody) Read(p []byte) (n int, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &approval.SendError{
				Stage: task.StageExecutorLost, Ran: task.RanUnknown,
				Err: fmt.Errorf("panic: %v\n%s", cause, debug.Stack()),
			}
		}
	}()
	n, err = b.r.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, invalidAnswer(err)
	case !jsonrpc.SameID(b.r.ID().Bytes, b.id):
		return n, invalidAnswer(errNoAnswer)
	}
	if kind, given := b.r.Member(memberResultType).Text(); given && !b.typed && kind != resultComplete {
		return n, invalidType(kind)
	}
	if !b.called && b.r.Has(memberTask) {
		return n, invalidAnswer(errLateTask)
	}
	return n, io.EOF
}

// errLateTask says that an upstream made a task of a call, and told of so much
// else first that the answer was taken for the tool's.
var errLateTask = errors.New("the upstream's answer has a task behind its first 64 KiB")

// Close gives the rest of the answer up.
func (b *answerBody) Close() error { return b.from.Close() }

// invalidAnswer says that an answer is none that the gate can use.
func invalidAnswer(cause error) error {
	return &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: cause}
}

func invalidType(kind string) error {
	return invalidAnswer(fmt.Errorf("the upstream answered with a result of type %q", kind))
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

var errNoAnswer = errors.New("the upstream's answer does not belong to the call")

// findAnswer reads the beginning of the message in body, which must be the
// answer to the request with the given id, as far as the beginning tells.
func findAnswer(body io.Reader, id []byte) (*jsonrpc.ResponseReader, jsonrpc.Head, error) {
	r := jsonrpc.NewResponseReader(body, memberResultType, memberTask, memberContent, approval.MemberIsError)
	head, err := r.Head()
	if given := r.ID(); err == nil && (head.Kind != jsonrpc.Response || given.Present() && !jsonrpc.SameID(given.Bytes, id)) {
		err = errNoAnswer
	}
	return r, head, err
}

// findStreamedAnswer reads events until one is the answer. It passes the messages
// before that to interim, if that is not nil.
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

// A recorder keeps a copy of what is read, unless that is large.
type recorder struct {
	io.Reader

	text []byte
	off  bool // nothing is copied any more
}

// maxInterim is how large a message may be that an upstream sends before its
// answer, to be passed on.
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
