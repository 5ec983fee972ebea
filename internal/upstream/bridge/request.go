package bridge

import (
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const (
	methodInitialize = "initialize"
	methodCancelled  = "notifications/cancelled"
)

// A request is what a client posts.
type request struct {
	http   *http.Request
	by     httpclient.Peer
	packet jsonrpc.Packet
	body   []byte
}

// first returns the message, or the first one of a batch.
func (r *request) first() *jsonrpc.Message { return &r.packet.Messages[0] }

// asks reports whether the client waits for an answer.
func (r *request) asks() bool {
	return slices.ContainsFunc(r.packet.Messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Request })
}

// isModern reports whether the request belongs to no session.
func (r *request) isModern() bool {
	return !r.packet.Batch && wire.EraOf(r.first()) == wire.Modern
}

// takesEvents reports whether the answer may be a stream of events.
func (r *request) takesEvents() bool {
	return strings.Contains(strings.Join(r.http.Header["Accept"], ","), "text/event-stream")
}

// begin informs the trace of the request that its first byte is about to be sent.
func (r *request) begin() {
	if trace := httptrace.ContextClientTrace(r.http.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
}

// inVersion returns the result of initialize with the protocol version that m asks
// for, if that is an older one than the server's.
func inVersion(result []byte, m *jsonrpc.Message) []byte {
	text := jsonrpc.AppendResult(nil, []byte("0"), result)
	answer, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
	if err != nil {
		return result
	}
	asked, _ := m.Params.Member("protocolVersion").Text()
	version := answer.Result.Member("protocolVersion")
	agreed, _ := version.Text()
	if !slices.Contains(wire.Versions(), asked) || asked >= agreed {
		return result
	}
	var patch jsonrpc.Patch
	patch.Replace(version, jsonrpc.AppendString(nil, asked))
	changed, err := jsonrpc.ParseMessage(patch.Apply(text), jsonrpc.Limits{})
	if err != nil {
		return result
	}
	return changed.Result.Bytes
}

// serve has a process serve what a client posts, and leaves the process when it has
// been answered.
func (b *Bridge) serve(p *process, r *request) (*http.Response, error) {
	leave := func() { b.leave(p) }
	if !r.asks() {
		defer leave()
		return b.notify(p, r)
	}
	if r.packet.Batch {
		defer leave()
		return b.serveBatch(p, r)
	}
	c, err := p.converse(r)
	if err != nil {
		leave()
		return nil, err
	}
	c.leave = leave
	if !r.takesEvents() {
		return c.respondWhole()
	}
	return c.respond()
}

// serveBatch is serve for a batch with requests.
func (b *Bridge) serveBatch(p *process, r *request) (*http.Response, error) {
	answers, err := p.server.AskAll(r.http.Context(), r.packet, r.body, r.begin)
	if err != nil {
		return nil, err
	}
	memory := b.memoryFor(r)
	if err := memory.take(len(answers)); err != nil {
		return nil, err
	}
	return memory.whole(answers), nil
}

// converse asks the server what a client asks.
func (p *process) converse(r *request) (*pendingAnswer, error) {
	memory := p.bridge.memoryFor(r)
	c := &pendingAnswer{p: p, memory: memory, answers: stdioclient.NewAnswers(memory.take)}
	if r.takesEvents() && r.first().Method != methodInitialize {
		p.ask(c.answers)
	}
	if err := p.server.Ask(r.http.Context(), c.answers, r.first(), r.body, r.begin); err != nil {
		p.answered(c.answers)
		memory.leave() // the server may have answered before it read the whole request
		return nil, err
	}
	return c, nil
}

// notify passes on what needs no answer. Only the client of a session cancels by a
// notification: in other processes the id may be that of somebody else's request, and
// a modern client cancels by closing its stream.
func (b *Bridge) notify(p *process, r *request) (*http.Response, error) {
	var err error
	switch m := r.first(); {
	case r.packet.Batch || m.Method != methodCancelled:
		err = p.notify(r.http.Context(), r.body)
	case p.isSession():
		err = p.server.Cancel(r.http.Context(), m)
	default: // the server is not told
	}
	if err != nil {
		return nil, err
	}
	return accepted(), nil
}
