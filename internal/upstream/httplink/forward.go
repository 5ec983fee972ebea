package httplink

import (
	"bytes"
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Forward sends what the client said, as it is. The answer to a request arrives later.
// All else has been taken by the server when Forward returns, so that the order of
// what the client says is kept. The error is a [*wire.Problem].
func (l *Link) Forward(ctx context.Context, f upstream.Forwarded) error {
	target := l.cancelled(f)
	if target != nil {
		defer target.cancel() // after a legacy server has been told
	}
	if target != nil && target.isModern || !f.Expect() {
		return nil
	}
	m := leading(f.Packet)
	var ids [][]byte
	for i := range f.Packet.Messages {
		if f.Packet.Messages[i].Kind == jsonrpc.Request {
			ids = append(ids, bytes.Clone(f.Packet.Messages[i].ID.Bytes))
		}
	}
	r := upstream.Request{Message: m, Body: f.Body, As: f.As, Forwarded: true, Stream: listens(f.Packet)}
	if len(ids) == 0 {
		return l.notify(ctx, r)
	}
	l.begins(f)
	x := &exchange{l: l, request: r, ids: ids, anyTime: upstream.Blocks(f.Packet)}
	ctx, x.cancel = context.WithCancel(l.life) //nolint:contextcheck // the answer comes after Forward has returned
	if !f.Packet.Batch && m.Method != methodInitialize {
		l.expect(x, wire.EraOf(m) == wire.Modern)
	}
	l.running.Go(func() { x.run(ctx) })
	return nil
}

// leading returns the message by which a packet is sent: in a batch a call of a tool, if
// there is one, because calls have more time than other requests.
func leading(p jsonrpc.Packet) *jsonrpc.Message {
	for i := range p.Messages {
		if p.Messages[i].Method == "tools/call" {
			return &p.Messages[i]
		}
	}
	return &p.Messages[0]
}

// listens reports whether the client sends a request whose answer is a stream without an
// end of its own.
func listens(p jsonrpc.Packet) bool {
	m := &p.Messages[0]
	return !p.Batch && m.Kind == jsonrpc.Request && m.Method == methodListen
}

// begins notes how the client begins, if it does.
func (l *Link) begins(f upstream.Forwarded) {
	if f.Packet.Batch || f.Packet.Messages[0].Method != methodInitialize {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session.listens != nil {
		l.session.listens()
	}
	l.session = session{initialize: bytes.Clone(f.Body)}
}

// cancelled returns the request that f cancels, or nil. Nobody waits for its answer any
// more, so its connection is closed. Over HTTP, that is all that a modern server hears
// of it; a legacy one gets the notification first.
func (l *Link) cancelled(f upstream.Forwarded) *pending {
	m := &f.Packet.Messages[0]
	if f.Packet.Batch || m.Method != methodCancelled {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[idKey(m.Params.Member("requestId").Bytes)]
}

// idKey returns what distinguishes an id from others; see [jsonrpc.SameID].
func idKey(id []byte) string {
	if text, ok := (jsonrpc.Value{Bytes: id}).Text(); ok {
		return `"` + text
	}
	return string(id)
}

// expect notes a request that the client can cancel by itself: not one of a batch, whose
// others go on, nor the one that begins the session.
func (l *Link) expect(x *exchange, isModern bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range x.ids {
		l.pending[idKey(id)] = &pending{cancel: x.cancel, isModern: isModern}
	}
}

func (l *Link) forget(ids [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.pending, idKey(id))
	}
}
