package mcphttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// resultText returns the message with a result.
func (x *exchange) resultText(result mcptask.Text) mcptask.Text {
	return result.Around(`{"jsonrpc":"2.0","id":`+string(x.id)+`,"result":`, "}")
}

// outcomeText returns the message that tells what became of t. What the upstream
// has answered stays as it is.
func (x *exchange) outcomeText(t task.Task, a mcptask.Answer) mcptask.Text {
	switch {
	case !a.Error.Present():
		return x.resultText(a.Result)
	case t.Result == nil:
		return mcptask.Text{}.Around(string(x.errorMessage(a.Err(nil))), "")
	default:
		return a.Error.Around(`{"jsonrpc":"2.0","id":`+string(x.id)+`,"error":`, "}")
	}
}

// deliver answers a client that has waited with what became of t, as shown tells
// it, and notes that only if it can be sent.
func (w *waiting) deliver(ctx context.Context, t task.Task, shown func(task.Task) (mcptask.Answer, error)) error {
	x := w.x
	x.told = true
	answer, err := shown(t)
	if err == nil {
		err = w.compose(x.outcomeText(t, answer), x.h.cfg.Desk.Open(ctx, t), func() { x.delivered(ctx, t) })
	}
	if errors.Is(err, approval.ErrBrokenOff) { // before anything of it was sent
		if t, err = x.h.cfg.Desk.Get(ctx, task.OwnedBy(t.Owner).Ref(t.ID)); err == nil && t.State.Terminal() {
			return w.deliver(ctx, t, shown)
		}
		if err == nil {
			return w.endLater()
		}
	}
	return w.endUnsent(err)
}

// endUnsent answers with err if that kept an answer from being sent. Once part of
// an answer was sent, err is why it was broken off.
func (w *waiting) endUnsent(err error) error {
	if err == nil || errors.Is(err, errGone) || errors.Is(err, errBrokenOff) {
		return err
	}
	return w.end(w.x.errorMessage(w.x.dialect().Error(err)))
}

// endLater tells a client whose answer broke off that the upstream still has it.
func (w *waiting) endLater() error {
	w.x.problem = &wire.Problem{
		Type: wire.UpstreamInvalid, Cause: approval.ErrBrokenOff, RetryAfter: 1, Hint: "the task is still running; ask again",
	}
	return w.end(w.x.problem.AppendResponse(nil, w.x.era, w.x.id, w.x.correlationID()))
}

// compose answers with text, and the upstream's answer in its place, as JSON or
// as an event. It has that noted before the client can have read all of it: the
// client's next call, however soon it comes, must find the note. If something has
// been sent when it fails, the error is errGone or errBrokenOff, and the exchange
// ends so that nobody takes what was sent for an answer.
func (w *waiting) compose(text mcptask.Text, answer io.Reader, note func()) error {
	x := w.x
	out := &output{x: x}
	buffered := bufio.NewWriterSize(out, upstream.PieceSize/2)
	if err := w.composeInto(buffered, text, answer); err != nil {
		if out.begun && !errors.Is(err, errGone) {
			return x.fail(err)
		}
		return err
	}
	if !x.began {
		note() // all of it is still in the buffer
		return errors.Join(buffered.Flush(), out.finish())
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := x.flush(); err != nil {
		return err
	}
	note()
	return out.finish()
}

func (w *waiting) composeInto(out io.Writer, text mcptask.Text, answer io.Reader) error {
	if !w.events {
		return text.Compose(out, answer)
	}
	data := jsonrpc.NewDataWriter(out)
	if err := text.Compose(data, answer); err != nil {
		return err
	}
	return data.Close()
}

// An output writes the answer of an exchange, and holds its last byte back.
type output struct {
	x     *exchange
	begun bool
	last  byte
}

// Write implements [io.Writer]. Its error is errGone.
func (o *output) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !o.x.began {
		o.x.w.Header().Set("Content-Type", "application/json")
		o.x.begin(http.StatusOK)
	}
	if o.begun {
		if err := o.x.write([]byte{o.last}); err != nil {
			return 0, err
		}
	}
	end := len(p) - 1
	if err := o.x.write(p[:end]); err != nil {
		return 0, err
	}
	o.begun, o.last = true, p[end]
	return len(p), nil
}

// finish writes the last byte.
func (o *output) finish() error { return o.x.sendNow([]byte{o.last}) }
