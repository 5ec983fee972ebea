package bridge

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A process is a run of the server for one client, or for several. It implements
// [upstream.Receiver].
type process struct {
	processSpec

	bridge *Bridge
	server *stdioclient.Client
	ending chan struct{} // closed when the process is to be ended
	end    func()

	// Guarded by Bridge.mu.
	users int
	used  time.Time   // when it was last released
	idle  *time.Timer // ends the unused process

	mu       sync.Mutex
	pending  []*stdioclient.Queue // of requests whose answers can carry other messages; the newest last
	stream   *stdioclient.Queue   // of the messages for the client's stream of a legacy session
	isRead   bool                 // the client has opened its stream
	hasEnded bool                 // there are no more messages
}

// A processSpec has the purpose of a process.
type processSpec struct {
	key        string
	principal  string // empty for an anonymous client, and for a shared process
	share      admission.Client
	initialize []byte // the client's initialize request, if the client sent it to an earlier process
}

// acquire notes that a request uses the process. The caller holds Bridge.mu.
func (p *process) acquire() {
	p.users++
	p.idle.Stop()
}

// isSession reports whether the process belongs to one legacy session. Several clients may share
// any other process.
func (p *process) isSession() bool { return strings.HasPrefix(p.key, keySession) }

// addPending notes a request whose answer can carry other messages to the client.
func (p *process) addPending(a *stdioclient.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, a)
}

// removePending removes such a request.
func (p *process) removePending(a *stdioclient.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.pending, a); i >= 0 {
		p.pending = slices.Delete(p.pending, i, i+1)
	}
}

// Received implements [upstream.Receiver]. Requests of clients are sent with
// [stdioclient.Client.Ask], so their answers do not arrive here.
func (p *process) Received(line upstream.Line) {
	if line.Err != nil {
		ctx := logging.Limited(context.Background(), "no message", p.bridge.cfg.Server.Name)
		p.bridge.cfg.Log.WarnContext(ctx, "dropped a line of the server's standard output that is not a message",
			"upstream", p.bridge.cfg.Server.Name, "line", safetext.Line(string(line.Text), maxExcerpt), "err", line.Err)
		return
	}
	for i := range line.Packet.Messages {
		switch m := &line.Packet.Messages[i]; m.Kind {
		case jsonrpc.Request:
			p.serverRequest(m)
		case jsonrpc.Notification:
			p.serverNotification(m)
		case jsonrpc.Response:
			p.strayAnswer(m)
		}
	}
}

// strayAnswer handles an answer without a pending request. If it shows that a process shared by
// several clients confuses its answers, the process is ended: its next answer may reach the wrong
// client.
func (p *process) strayAnswer(m *jsonrpc.Message) {
	if p.isSession() || !p.server.IsStray(m) {
		p.bridge.cfg.Log.Debug("dropped the server's answer to a request that is not pending", "upstream", p.bridge.cfg.Server.Name)
		return
	}
	ctx := logging.Limited(context.Background(), "stray answer", p.bridge.cfg.Server.Name)
	p.bridge.cfg.Log.WarnContext(ctx, "a shared server process answered an unknown request, or answered twice; terminating it",
		"upstream", p.bridge.cfg.Server.Name)
	p.bridge.retire(p)
}

// maxExcerpt is how much of an invalid line is logged.
const maxExcerpt = 120

// Unanswered implements [upstream.Receiver].
func (p *process) Unanswered([][]byte, *mcp.Problem) {}

// serverRequest handles a request of the server. Only the client of a legacy session can answer
// one.
func (p *process) serverRequest(m *jsonrpc.Message) {
	switch {
	case m.Method == mcpname.Ping && !p.isSession():
		p.reply(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{}`)))
	case !p.isSession():
		p.reply(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server's clients take no requests"}))
	case !p.sendToClient(m.Raw):
		p.reply(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "the client does not read its messages"}))
	}
}

// serverNotification handles a notification that does not name its request. If clients share the
// server, the recipient is unknown and the notification is dropped.
func (p *process) serverNotification(m *jsonrpc.Message) {
	//mutate:true TestNotificationsDoNotReachOtherClients a notification of a shared server about one client is sent to another
	if p.isSession() {
		p.sendToClient(m.Raw)
	}
}

// sendToClient sends a message to the client of a session: on its stream, or before the answer to
// its latest request. It returns false if neither has capacity.
func (p *process) sendToClient(message []byte) bool {
	message = slices.Clone(message)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isRead && p.stream.Insert(message) {
		return true
	}
	for _, a := range slices.Backward(p.pending) {
		if a.Insert(message) {
			return true
		}
	}
	return p.stream.Insert(message)
}

// listen opens the client's stream of a session. A stream that the client has opened before ends.
func (p *process) listen() *stdioclient.Queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream, p.isRead = p.stream.Continue(), true; p.hasEnded {
		p.stream.End(io.EOF)
	}
	return p.stream
}

// stopListening ends a stream, and keeps its unread messages for the next one.
func (p *process) stopListening(stream *stdioclient.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream == stream {
		p.stream, p.isRead = stream.Continue(), false
	}
}

// endStream ends the client's stream.
func (p *process) endStream() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hasEnded = true
	p.stream.End(io.EOF)
}

// replyTime limits the write of a reply to the server.
const replyTime = 5 * time.Second

// reply answers the server for a client.
func (p *process) reply(message []byte) {
	ctx, stop := context.WithTimeout(context.Background(), replyTime)
	defer stop()
	_ = p.notify(ctx, message) // a failure means that the server has ended
}

// notify sends a message that needs no answer.
func (p *process) notify(ctx context.Context, body []byte) error {
	line := upstream.ReadLine(body, p.bridge.cfg.Server.Depth)
	if line.Err != nil {
		return line.Err
	}
	return p.server.Forward(ctx, upstream.Forwarded{Packet: line.Packet, Body: body})
}

// newSessionID returns an id that cannot be guessed.
func newSessionID() string { return rand.Text() }

// Keys of processes.
const (
	keyLegacy  = "legacy"   // shared by all legacy clients
	keyModern  = "modern"   // shared by all modern clients
	keyClient  = "client "  // followed by the principal; empty for anonymous modern clients
	keySession = "session " // followed by the id of the legacy session
)
