package mcphttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// readTimeout is how long a result may take to be read for a notification.
const readTimeout = 5 * time.Second

// TaskChanged tells the owner of a task how it stands, on one of the streams
// on which a legacy client listens, and on those on which a modern client
// asked for it. It does not wait for them.
func (h *Handler) TaskChanged(ctx context.Context, t task.Task) {
	ctx = context.WithoutCancel(ctx) // whoever changed the task need not wait
	for _, s := range h.listeners.of(t.Owner) {
		if s.x.hears(t.ID) {
			h.telling.Go(func() { s.tellStatus(ctx, t) })
		}
	}
}

// hears reports whether the listening client is told of a task. Legacy clients
// hear of all their tasks, modern ones of those they named. Who cannot be told
// from others hears of none unasked: the id alone would give it access.
func (x *exchange) hears(id task.ID) bool {
	if x.era == wire.Legacy {
		_, shared := x.owner()
		return !shared
	}
	for named := range x.asked.Member("taskIds").Elements() {
		if text, _ := named.Text(); text == string(id) {
			return true
		}
	}
	return false
}

// tellStatus tells how a task stands, unless it has gone on since: whoever made
// it do so tells that, and what is told last must be true.
func (s *eventRelay) tellStatus(ctx context.Context, t task.Task) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.x.h.cfg.Desk.Get(ctx, task.OwnedBy(t.Owner).Ref(t.ID))
	if err != nil || now.State != t.State {
		return
	}
	text, err := s.x.dialect().StatusNotification(t, s.x.id)
	if err != nil {
		return // the client will see for itself when it asks
	}
	s.add(func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, pieceSize/2)
		event := jsonrpc.NewDataWriter(buffered)
		if err := text.Compose(event, s.x.h.cfg.Desk.Open(s.x.r.Context(), t)); err != nil {
			return err
		}
		return errors.Join(event.Close(), buffered.Flush())
	})
}

// ownTasks returns the tasks of the gate's own that a modern client wants to
// hear of, and whether it wants to hear of anything else.
func (x *exchange) ownTasks() (own []task.ID, others bool) {
	for name, value := range x.asked.Members() {
		if name != "taskIds" {
			others = true
			continue
		}
		for named := range value.Elements() {
			text, _ := named.Text()
			if id := task.ID(text); id.Own() {
				own = append(own, id)
			} else {
				others = true
			}
		}
	}
	return own, others
}

// listen serves a modern client that wants to hear of tasks of the gate's own,
// and of nothing else. It reports false for others.
func (x *exchange) listen(ctx context.Context, m *jsonrpc.Message) bool {
	if x.era != wire.Modern || !x.listens {
		return false
	}
	own, others := x.ownTasks()
	if len(own) == 0 || others {
		return false
	}
	if !declaresTasks(m) {
		x.answerError(mcptask.MissingExtension())
		return true
	}
	leave, ok := x.enterWaiting()
	if !ok {
		x.refuseWaiting()
		return true
	}
	defer leave()
	x.beginWaiting(m)
	s := &eventRelay{x: x}
	defer s.close()
	owner, _ := x.owner()
	defer x.h.listeners.add(owner, s)()
	x.acknowledge(ctx, s, own)
	beat := time.NewTicker(x.h.cfg.Waiting.Beat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			x.endListening(s)
			return true
		case <-beat.C:
			s.send(jsonrpc.AppendComment(nil, "listening"))
			x.touch(ctx, own)
		}
	}
}

// acknowledge tells which tasks the client will hear of, and how they stand.
// Those of others, and those that do not exist, are left out.
func (x *exchange) acknowledge(ctx context.Context, s *eventRelay, own []task.ID) {
	tasks := x.touch(ctx, own)
	var ids [][]byte
	for _, t := range tasks {
		ids = append(ids, jsonrpc.AppendString(nil, string(t.ID)))
	}
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"` + wire.MetaSubscription + `":`)
	b.Write(x.id)
	b.WriteString(`},"notifications":{"taskIds":`)
	b.Write(array(ids))
	b.WriteString(`}}}`)
	s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: b.Bytes()}))
	for _, t := range tasks {
		s.tellStatus(ctx, t)
	}
}

// touch shows that the owner of tasks is there, which lets approved ones begin.
func (x *exchange) touch(ctx context.Context, ids []task.ID) []task.Task {
	owner, _ := x.owner()
	var found []task.Task
	for _, id := range ids {
		if t, err := x.h.cfg.Desk.Contact(ctx, task.OwnedBy(owner).Ref(id), x.send()); err == nil {
			found = append(found, t)
		}
	}
	return found
}

// endListening ends a stream that the gate ends, not the client.
func (x *exchange) endListening(s *eventRelay) {
	if x.r.Context().Err() != nil {
		x.leave()
	}
	result := `{"resultType":"complete","_meta":{"` + wire.MetaSubscription + `":` + string(x.id) + `}}`
	message := jsonrpc.AppendResult(nil, x.id, []byte(result))
	s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message}))
}
