package bridge

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A process is the server as one client, or all of them, see it. It implements
// [upstream.Receiver].
type process struct {
	newProcess

	bridge  *Bridge
	server  *stdioclient.Client
	ending  chan struct{} // closed when it is to be ended
	end     func()
	unasked *mailbox // for the stream on which the server of a session speaks unasked

	// For those who hold the lock of the bridge.
	users int
	used  time.Time   // when it was last left
	idle  *time.Timer // ends the process

	mu     sync.Mutex
	asking []*stdioclient.Answers // that can show the client what the server says unasked; the newest last

	kept atomic.Pointer[time.Time] // when the store last took note of the session; nil if it did not
}

// A newProcess says what a process is for.
type newProcess struct {
	key        string
	principal  string // whose it is; empty for an anonymous client, and if it is shared
	room       admission.Client
	initialize []byte // with which the client has begun; nil if it is still to begin
}

// enter notes that the process is used by one more. The caller holds the lock of the
// bridge.
func (p *process) enter() {
	p.users++
	p.idle.Stop()
}

// isSession reports whether the process is that of one legacy session. Several clients
// may share any other one: all clients, all that are anonymous, or all of one principal.
func (p *process) isSession() bool { return strings.HasPrefix(p.key, keySession) }

// ask notes that a request can show its client what the server says unasked.
func (p *process) ask(a *stdioclient.Answers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = append(p.asking, a)
}

// answered takes that back.
func (p *process) answered(a *stdioclient.Answers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.asking, a); i >= 0 {
		p.asking = slices.Delete(p.asking, i, i+1)
	}
}

// Received implements [upstream.Receiver]. The server answers nothing here: all
// requests of clients are asked with [stdioclient.Client.Ask].
func (p *process) Received(line upstream.Line) {
	if line.Err != nil {
		ctx := logging.Limited(context.Background(), "no message", p.bridge.cfg.Server.Name)
		p.bridge.cfg.Log.WarnContext(ctx, "the server wrote a line to its standard output that is no message; it was dropped",
			"upstream", p.bridge.cfg.Server.Name, "line", plain.Line(string(line.Text), maxExcerpt), "cause", line.Err)
		return
	}
	for i := range line.Packet.Messages {
		switch m := &line.Packet.Messages[i]; m.Kind {
		case jsonrpc.Request:
			p.asked(m)
		case jsonrpc.Notification:
			p.notified(m)
		case jsonrpc.Response:
			p.bridge.cfg.Log.Debug("the server answered a request for which nobody waits; the answer was dropped", "upstream", p.bridge.cfg.Server.Name)
		}
	}
}

// maxExcerpt is how much of a line that is no message the log shows.
const maxExcerpt = 120

// Unanswered implements [upstream.Receiver].
func (p *process) Unanswered([][]byte, *wire.Problem) {}

// asked takes a request of the server. Only the client of a legacy session can
// answer one.
func (p *process) asked(m *jsonrpc.Message) {
	switch {
	case m.Method == "ping" && !p.isSession():
		p.reply(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{}`)))
	case !p.isSession():
		p.reply(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no client of this server takes requests"}))
	case !p.show(m.Raw):
		p.reply(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "the client does not read what it is sent"}))
	}
}

// notified takes a notification of which the server does not say what request it
// belongs to. Nobody knows which client it concerns if several share the server.
func (p *process) notified(m *jsonrpc.Message) {
	if p.isSession() {
		p.show(m.Raw)
	}
}

// show gives the client of a session what the server says unasked, and reports whether
// there was room: on the stream for that, or else before the answer to its latest request.
func (p *process) show(message []byte) bool {
	message = slices.Clone(message)
	if p.unasked.addIfRead(message) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range slices.Backward(p.asking) {
		if a.Insert(message) {
			return true
		}
	}
	return p.unasked.add(message)
}

// replyTime is how long the server may take to read an answer of the bridge's.
const replyTime = 5 * time.Second

// reply answers the server in place of a client.
func (p *process) reply(message []byte) {
	ctx, stop := context.WithTimeout(context.Background(), replyTime)
	defer stop()
	_ = p.notify(ctx, message) // a server that does not read has ended by then
}

// notify sends the server what needs no answer.
func (p *process) notify(ctx context.Context, body []byte) error {
	line := upstream.ReadLine(body, p.bridge.cfg.Server.Depth)
	if line.Err != nil {
		return line.Err
	}
	return p.server.Forward(ctx, upstream.Forwarded{
		Packet: line.Packet, Body: body, Expect: func() bool { return true }, Forget: func() bool { return true },
	})
}

// newSessionID returns an id that nobody can guess.
func newSessionID() string { return rand.Text() }

// Keys of processes.
const (
	keyLegacy  = "legacy"   // that all legacy clients share
	keyModern  = "modern"   // that all modern clients share
	keyClient  = "client "  // of all modern clients of one principal, before its name; of all anonymous ones without it
	keySession = "session " // of one legacy session, before its id
)
