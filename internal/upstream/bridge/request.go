package bridge

import (
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A request is a POST of a client.
type request struct {
	http   *http.Request
	by     httpclient.Peer
	packet jsonrpc.Packet
	body   []byte
}

// first returns the message, or the first message of a batch.
func (r *request) first() *jsonrpc.Message { return &r.packet.Messages[0] }

// asks reports whether the client expects an answer.
func (r *request) asks() bool {
	return slices.ContainsFunc(r.packet.Messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Request })
}

// isModern reports whether the request is outside of sessions.
func (r *request) isModern() bool {
	return !r.packet.Batch && mcp.EraOf(r.first()) == mcp.Modern
}

// takesEvents reports whether the answer may be an event stream.
func (r *request) takesEvents() bool {
	return strings.Contains(strings.Join(r.http.Header["Accept"], ","), "text/event-stream")
}

// begin tells the trace of the request that the first byte is about to be sent.
func (r *request) begin() {
	if trace := httptrace.ContextClientTrace(r.http.Context()); trace != nil && trace.GotConn != nil {
		//mutate:drop TestHeldCallInCrashedProcessIsNotRepeated a call that was sent counts as not sent
		trace.GotConn(httptrace.GotConnInfo{})
	}
}

// withVersion returns the result of initialize with the protocol version that m asks for, if that
// is older than the server's.
func withVersion(result []byte, m *jsonrpc.Message) []byte {
	asked, _ := m.Params.Member("protocolVersion").Text()
	version := jsonrpc.Value{Bytes: result}.Member("protocolVersion")
	agreed, _ := version.Text()
	if !slices.Contains(mcp.Versions(), asked) || asked >= agreed {
		return result
	}
	var patch jsonrpc.Patch
	patch.Replace(version, jsonrpc.AppendString(nil, asked))
	return patch.Apply(result)
}

// serve sends a request to a process, and releases the process after the answer.
func (b *Bridge) serve(p *process, r *request) (*http.Response, error) {
	leave := func() { b.release(p) }
	if !r.asks() {
		defer leave()
		return b.notify(p, r)
	}
	if r.packet.Batch {
		defer leave()
		return b.serveBatch(p, r)
	}
	c, err := p.ask(r)
	if err != nil {
		leave()
		return nil, err
	}
	c.release = leave
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
	return memory.response(answers), nil
}

// ask sends a request to the server.
func (p *process) ask(r *request) (*pendingAnswer, error) {
	memory := p.bridge.memoryFor(r)
	c := &pendingAnswer{p: p, memory: memory, answers: stdioclient.NewQueue(memory.take)}
	if r.takesEvents() && r.first().Method != mcpname.Initialize {
		p.addPending(c.answers)
	}
	if err := p.server.Ask(r.http.Context(), c.answers, r.first(), r.body, r.begin); err != nil {
		p.removePending(c.answers)
		//mutate:drop TestEarlyAnswerReleasesMemory an answer to a client that left takes memory forever
		memory.release() // the server may answer before it has read the whole request
		return nil, err
	}
	return c, nil
}

// notify forwards messages that need no answer. Only the client of a session cancels by a
// notification: in a shared process the id may belong to another client's request, and a modern
// client cancels by closing its stream.
func (b *Bridge) notify(p *process, r *request) (*http.Response, error) {
	var err error
	switch m := r.first(); {
	case r.packet.Batch || m.Method != mcpname.NotifyCancelled:
		err = p.notify(r.http.Context(), r.body)
	//mutate:true TestClientCannotCancelRequestsOfOthers a client cancels requests of others
	case p.isSession():
		err = p.server.Cancel(r.http.Context(), m)
	default: // dropped
	}
	if err != nil {
		return nil, err
	}
	return accepted(), nil
}
