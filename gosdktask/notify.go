package gosdktask

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A line is a connection to a client. The SDK sends only messages that it knows, so
// notifications about tasks bypass it.
type line interface {
	// send sends a message.
	send(message []byte) error

	// accept adds the ids of tasks to the acknowledgement of their subscription. It closes the
	// channel after that has been sent.
	accept(s subscription) <-chan struct{}
}

// lines are the connections to clients of 2025-11-25. Each client is notified of the tasks that
// it has made.
type lines struct {
	mu        sync.Mutex
	open      map[string]line // by the id of the session, which is empty for a pipe
	followers sync.WaitGroup
	ended     chan struct{} // closed when notifications have ended
}

// close ends all notifications.
func (l *lines) close() {
	close(l.ended)
	l.followers.Wait()
}

func (l *lines) add(session string, to line) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[string]line)
	}
	l.open[session] = to
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[session] == to {
			delete(l.open, session)
		}
	}
}

func (l *lines) to(session string) line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[session]
}

// sessionOf returns the session of r, and whether its client can be notified later.
func sessionOf(r mcp.Request) (id string, lasting bool) {
	id = r.GetSession().ID()
	extra := r.GetExtra()
	return id, id != "" || extra == nil || extra.Header == nil
}

// tell notifies the client of 2025-11-25 that made a task of its changes.
func (t *Tasks) tell(ctx context.Context, session, owner, id string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.lines.followers.Go(func() {
		select {
		case <-t.lines.ended:
			stop()
		case <-ctx.Done():
		}
	})
	t.lines.followers.Go(func() {
		defer stop()
		_ = t.core.Follow(ctx, mcptask.Request{Owner: owner}, id, nil, func(message []byte) error {
			//mutate:swap "if to" "t.lines.mu.Lock(); for _, other := range t.lines.open { _ = other.send(message) }; t.lines.mu.Unlock(); if to" TestSessionIsNotifiedOfItsTasks a session is notified of the tasks of another
			if to := t.lines.to(session); to != nil {
				return to.send(message)
			}
			return nil
		}) // a client without notifications polls
	})
}

// A subscription is the part of subscriptions/listen that concerns tasks, in the form in which
// it passes the SDK.
type subscription struct {
	ID      json.RawMessage `json:"id"`
	TaskIDs []string        `json:"taskIds"`
}

// metaListen is the name in _meta that carries the task ids of a subscription. The SDK would
// drop them elsewhere.
const metaListen = "io.thoughtgate/listen"

// moveListen moves the task ids of a subscriptions/listen into _meta, which the SDK keeps.
func moveListen(id json.RawMessage, params []byte) ([]byte, error) {
	var asked struct {
		Notifications struct {
			TaskIDs []string `json:"taskIds"`
		} `json:"notifications"`
	}
	if err := json.Unmarshal(params, &asked); err != nil || len(asked.Notifications.TaskIDs) == 0 {
		return params, err
	}
	return edited(params, func(p object) error {
		return p.edit("_meta", func(meta object) error {
			return meta.set(metaListen, subscription{id, asked.Notifications.TaskIDs})
		})
	})
}

type lineKey struct{}

// listen lets the server answer subscriptions/listen, and sends notifications about tasks on
// its stream.
func (t *Tasks) listen(ctx context.Context, r mcp.Request) (mcp.Result, error) {
	params, ok := r.GetParams().(*mcp.SubscriptionsListenParams)
	if !ok || params.Meta[metaListen] == nil {
		return t.next(ctx, mcpname.SubscriptionsListen, r)
	}
	d := dialect(r)
	text, err := json.Marshal(params.Meta[metaListen])
	delete(params.Meta, metaListen)
	var wanted subscription
	if err == nil {
		err = json.Unmarshal(text, &wanted)
	}
	if err != nil {
		return nil, toClient(d, err)
	}
	meta, err := objectOf(params.Meta)
	if err == nil && !schema.RequestDeclaresTasks(meta) {
		err = mcptask.MissingExtension()
	}
	if err != nil {
		return nil, toClient(d, err)
	}
	to, ok := ctx.Value(lineKey{}).(line)
	if !ok {
		to = t.lines.to("")
	}
	if to == nil {
		return t.next(ctx, mcpname.SubscriptionsListen, r)
	}
	return t.follow(ctx, r, to, wanted)
}

// follow notifies a client of the tasks to which it has subscribed, until the client leaves or
// all tasks have ended.
func (t *Tasks) follow(ctx context.Context, r mcp.Request, to line, wanted subscription) (mcp.Result, error) {
	owner, _, err := t.owner(ctx, r)
	if err != nil {
		return nil, toClient(dialect(r), err)
	}
	mine := []string{} // the acknowledgement always contains a list
	for _, id := range wanted.TaskIDs {
		//mutate:swap "OwnedBy(owner)" "AnyOwner()" TestSubscriptionIgnoresTasksOfOtherOwners a subscription finds the tasks of another owner
		//mutate:swap "_, err := t.opts.Store.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id))); err == nil {" "found, err := t.opts.Store.Get(ctx, task.AnyOwner().Ref(task.ID(id))); err == nil { owner = found.Owner" TestSubscriptionIgnoresTasksOfOtherOwners a subscription is notified of the tasks of another owner
		if _, err := t.opts.Store.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id))); err == nil {
			mine = append(mine, id)
		}
	}
	acknowledged := to.accept(subscription{wanted.ID, mine})
	following, stop := context.WithCancel(ctx)
	defer stop()
	var followers sync.WaitGroup
	for _, id := range mine {
		followers.Go(func() {
			select {
			case <-acknowledged:
				about := mcptask.Request{Dialect: dialect(r), Owner: owner}
				_ = t.core.Follow(following, about, id, []byte(wanted.ID), to.send) // a client without notifications polls
			case <-following.Done():
			}
		})
	}
	// The server returns at once if the client subscribes only to tasks.
	result, err := t.next(ctx, mcpname.SubscriptionsListen, r)
	if err != nil {
		stop()
	}
	followers.Wait()
	return result, err
}

// acknowledging adds the ids of tasks to the acknowledgements of subscriptions. A pipe may have
// several subscriptions at the same time.
type acknowledging struct {
	mu   sync.Mutex
	open map[string]*acknowledgement // by the id of the subscription
}

// An acknowledgement is added to a message that has not been sent.
type acknowledgement struct {
	ids  []string
	sent chan struct{}
}

func (a *acknowledging) accept(s subscription) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = make(map[string]*acknowledgement)
	}
	sent := make(chan struct{})
	a.open[string(s.ID)] = &acknowledgement{s.TaskIDs, sent}
	return sent
}

// take returns the acknowledgement for a message, or nil if the message needs none.
func (a *acknowledging) take(message []byte) *acknowledgement {
	var m struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if !bytes.Contains(message, []byte(mcpname.NotifySubscriptionsAcknowledged)) || json.Unmarshal(message, &m) != nil {
		return nil
	}
	id := string(m.Params.Meta[mcp.MetaKeySubscriptionID])
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.open[id]
	delete(a.open, id)
	return found
}

// edit adds the ids to a message that is an acknowledgement. Call sent after the message has
// been sent.
func (a *acknowledging) edit(message []byte) (with []byte, sent func()) {
	found := a.take(message)
	if found == nil {
		return message, func() {}
	}
	with, err := edited(message, func(m object) error {
		return m.edit("params", func(p object) error {
			return p.edit("notifications", func(n object) error { return n.set("taskIds", found.ids) })
		})
	})
	if err != nil {
		return message, func() {}
	}
	return with, func() { close(found.sent) }
}

// An eventWriter is the stream of an HTTP response. The SDK and the tasks write events to it.
type eventWriter struct {
	http.ResponseWriter
	acknowledging

	writing sync.Mutex
	begun   bool
	early   [][]byte // messages that were sent before the SDK started the stream
	ended   bool
}

// Unwrap is for [http.ResponseController].
func (w *eventWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError is for [http.ResponseController]. It must not flush a part of an event.
func (w *eventWriter) FlushError() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// WriteHeader implements [http.ResponseWriter].
func (w *eventWriter) WriteHeader(status int) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.ResponseWriter.WriteHeader(status)
	w.begin()
}

// begin sends the early messages. The SDK has written its headers by then.
func (w *eventWriter) begin() {
	w.begun = true
	for _, message := range w.early {
		_ = w.event(message) // an error means that the client has gone
	}
	w.early = nil
}

// Write writes one whole event, as the SDK does.
func (w *eventWriter) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	const field = "data: "
	sent := func() {}
	whole := p
	if head, data, ok := bytes.Cut(p, []byte(field)); ok {
		data, sent = w.edit(bytes.TrimSpace(data))
		whole = append(append(bytes.Clone(head), field...), append(data, "\n\n"...)...)
	}
	if _, err := w.ResponseWriter.Write(whole); err != nil {
		return 0, err
	}
	w.begin()
	sent()
	return len(p), nil
}

// send implements [line].
func (w *eventWriter) send(message []byte) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	switch {
	case w.ended:
		return http.ErrServerClosed
	case !w.begun:
		w.early = append(w.early, message)
		return nil
	default:
		return w.event(message)
	}
}

func (w *eventWriter) event(message []byte) error {
	if _, err := w.ResponseWriter.Write(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message})); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// end stops sending, because the handler has returned.
func (w *eventWriter) end() {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.ended = true
}
