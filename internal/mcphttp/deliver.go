package mcphttp

import (
	"bufio"
	"context"
	"errors"
	"io"

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
func (w *waiting) deliver(ctx context.Context, t task.Task, shown func(task.Task) (mcptask.Answer, error)) {
	x := w.x
	x.told = true
	answer, err := shown(t)
	if err == nil {
		err = w.compose(x.outcomeText(t, answer), x.h.cfg.Desk.Open(ctx, t), func() { x.delivered(ctx, t) })
	}
	if errors.Is(err, approval.ErrBrokenOff) { // before anything of it was sent
		if t, err = x.h.cfg.Desk.Get(ctx, task.OwnedBy(t.Owner).Ref(t.ID)); err == nil && t.State.Terminal() {
			w.deliver(ctx, t, shown)
			return
		}
		if err == nil {
			w.endLater()
			return
		}
	}
	if err != nil {
		w.end(x.errorMessage(x.dialect().Error(err)))
	}
}

// endLater tells a client whose answer broke off that the upstream still has it.
func (w *waiting) endLater() {
	w.x.problem = &wire.Problem{
		Type: wire.UpstreamInvalid, Cause: approval.ErrBrokenOff, RetryAfter: 1, Hint: "the task goes on; ask again",
	}
	w.end(w.x.problem.AppendResponse(nil, w.x.era, w.x.id, w.x.correlationID()))
}

// compose answers with text, and the upstream's answer in its place, as JSON or
// as an event. It has that noted before the client can have read all of it: the
// client's next call, however soon it comes, must find the note. It returns an
// error if nothing has been sent; if something has, the exchange breaks off, so
// that nobody takes it for an answer.
func (w *waiting) compose(text mcptask.Text, answer io.Reader, note func()) error {
	x := w.x
	out := &output{x: x}
	buffered := bufio.NewWriterSize(out, upstream.PieceSize/2)
	var err error
	if w.events {
		data := jsonrpc.NewDataWriter(buffered)
		if err = text.Compose(data, answer); err == nil {
			err = data.Close()
		}
	} else {
		err = text.Compose(buffered, answer)
	}
	switch {
	case err != nil && out.begun:
		x.fail(err)
	case err != nil:
		return err
	}
	if x.began {
		_ = buffered.Flush()
		x.flush()
		note()
	} else {
		note() // all of it is still in the buffer
		_ = buffered.Flush()
	}
	out.finish()
	return nil
}

// An output writes the answer of an exchange, and holds its last byte back. It
// never fails: an exchange without a client ends.
type output struct {
	x     *exchange
	begun bool
	last  byte
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !o.x.began {
		o.x.w.Header().Set("Content-Type", "application/json")
		o.x.begin(200)
	}
	if o.begun {
		o.x.write([]byte{o.last})
	}
	end := len(p) - 1
	o.x.write(p[:end])
	o.begun, o.last = true, p[end]
	return len(p), nil
}

// finish writes the last byte.
func (o *output) finish() {
	o.x.write([]byte{o.last})
	o.x.flush()
}
