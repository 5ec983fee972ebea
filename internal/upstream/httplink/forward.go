package httplink

import (
	"bytes"
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Forward sends a message of the client unchanged. The answer to a request arrives later. Forward
// returns when the server has taken any other message, so that messages keep their order. The error
// is a [*mcp.Problem].
func (l *Link) Forward(ctx context.Context, f upstream.Forwarded) error {
	target := l.cancelled(f)
	if target != nil {
		defer target.cancel() // after a legacy server got the notification
	}
	if target != nil && target.isModern || f.Expect != nil && !f.Expect() {
		return nil
	}
	m := leading(f.Packet)
	var ids [][]byte
	for i := range f.Packet.Messages {
		if f.Packet.Messages[i].Kind == jsonrpc.Request {
			ids = append(ids, bytes.Clone(f.Packet.Messages[i].ID.Bytes))
		}
	}
	r := upstream.Request{Message: m, Body: f.Body, Credentials: f.Credentials, Forwarded: true, Stream: listens(f.Packet)}
	if len(ids) == 0 {
		return l.notify(ctx, r)
	}
	l.noteInitialize(f)
	//mutate:swap "noReadTimeout: upstream.WaitsForTask(f.Packet)" "" TestTaskResultHasNoTimeout the result of a task over HTTP has a time limit
	x := &exchange{link: l, request: r, ids: ids, noReadTimeout: upstream.WaitsForTask(f.Packet)}
	ctx, x.cancel = context.WithCancel(l.ctx) // the answer arrives after Forward has returned
	if !f.Packet.Batch && m.Method != mcpname.Initialize {
		l.expect(x, mcp.EraOf(m) == mcp.Modern)
	}
	l.running.Go(func() { x.run(ctx) })
	return nil
}

// leading returns the message that determines the timeouts of a packet: in a batch a tool call, if
// there is one, because tool calls have more time.
func leading(p jsonrpc.Packet) *jsonrpc.Message {
	for i := range p.Messages {
		if p.Messages[i].Method == mcpname.ToolsCall {
			return &p.Messages[i]
		}
	}
	return &p.Messages[0]
}

// listens reports whether the answer to a packet is an open-ended stream.
func listens(p jsonrpc.Packet) bool {
	m := &p.Messages[0]
	return !p.Batch && m.Kind == jsonrpc.Request && m.Method == mcpname.SubscriptionsListen
}

// noteInitialize keeps the initialize request of the client.
func (l *Link) noteInitialize(f upstream.Forwarded) {
	if f.Packet.Batch || f.Packet.Messages[0].Method != mcpname.Initialize {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session.stopListening != nil {
		l.session.stopListening()
	}
	l.session = session{initialize: bytes.Clone(f.Body)}
}

// cancelled returns the request that f cancels, or nil. Its connection is closed, which tells a
// modern server; a legacy one gets the notification before.
func (l *Link) cancelled(f upstream.Forwarded) *pending {
	m := &f.Packet.Messages[0]
	if f.Packet.Batch || m.Method != mcpname.NotifyCancelled {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[jsonrpc.IDKey(m.Params.Member("requestId").Bytes)]
}

// expect registers a request that the client can cancel: not one of a batch, because the others
// continue, and not initialize.
func (l *Link) expect(x *exchange, isModern bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range x.ids {
		l.pending[jsonrpc.IDKey(id)] = &pending{cancel: x.cancel, isModern: isModern}
	}
}

func (l *Link) forget(ids [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.pending, jsonrpc.IDKey(id))
	}
}
