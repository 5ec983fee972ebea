package translate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// parkedCalls has the calls at a legacy server that wait for the client's answer to a question. They
// belong to this replica: only it has the connection to the server.
type parkedCalls struct {
	patience time.Duration

	mu      sync.Mutex
	calls   map[string]*parkedCall // by the requestState that the client has
	ofOwner map[string]int
}

// A parkedCall is a call with an open question of the server.
type parkedCall struct {
	call     *legacyCall
	binding  [sha256.Size]byte // who asks for what; see [exchange.binding]
	question *jsonrpc.Message
	key      string // of the question in inputRequests
	expire   *time.Timer
}

const (
	maxParked        = 1000
	maxParkedOfOwner = 32
)

func newParkedCalls(patience time.Duration) *parkedCalls {
	return &parkedCalls{patience: patience, calls: make(map[string]*parkedCall), ofOwner: make(map[string]int)}
}

// put keeps a call until its client answers, and returns the state that the client must repeat. It
// returns false if too many calls wait.
func (p *parkedCalls) put(c *parkedCall) (state string, ok bool) {
	owner := c.call.s.by.Owner
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) >= maxParked || p.ofOwner[owner] >= maxParkedOfOwner {
		return "", false
	}
	state = ownSession + rand.Text()
	p.calls[state] = c
	p.ofOwner[owner]++
	c.expire = time.AfterFunc(p.patience, func() {
		if p.take(state, c.binding) != nil {
			c.call.giveUp()
		}
	})
	return state, true
}

// take removes a call and returns it, or nil if there is none for this request.
func (p *parkedCalls) take(state string, binding [sha256.Size]byte) *parkedCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[state]
	if c == nil || c.binding != binding {
		return nil
	}
	delete(p.calls, state)
	owner := c.call.s.by.Owner
	if p.ofOwner[owner]--; p.ofOwner[owner] == 0 {
		delete(p.ofOwner, owner)
	}
	c.expire.Stop()
	return c
}

// close gives all calls up.
func (p *parkedCalls) close() {
	p.mu.Lock()
	all := p.calls
	p.calls = make(map[string]*parkedCall)
	p.mu.Unlock()
	for _, c := range all {
		c.expire.Stop()
		c.call.giveUp()
	}
}

// binding identifies the client, the method and the params of a request, besides its answers to
// questions. An answer counts only for the request that was asked.
func (x *exchange) binding() [sha256.Size]byte {
	params, _ := jsonrpc.Value{Bytes: x.m.Params.Bytes}.AppendCanonical(nil, "_meta", "inputResponses", "requestState")
	text := jsonrpc.AppendString(nil, x.by.Principal)
	text = jsonrpc.AppendString(text, x.by.Owner)
	text = jsonrpc.AppendString(text, x.m.Method)
	return sha256.Sum256(append(text, params...))
}

// resume gives the server the client's answer to its question, and returns what follows.
func (x *exchange) resume(state string) (*http.Response, error) {
	p := x.t.parked.take(state, x.binding())
	if p == nil {
		return nil, &mcp.Problem{
			Type:   mcp.UpstreamInvalid,
			Detail: "the server does not wait for this answer here: it came too late, or the question came through another replica. The call may have run",
		}
	}
	c := p.call.continuedBy(x)
	given := x.m.Params.Member("inputResponses").Member(p.key)
	if !given.Present() {
		text, err := c.park(p.question)
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		return answer(http.StatusOK, text), nil
	}
	ctx, stop := context.WithTimeout(x.http.Context(), sessionTimeout)
	defer stop()
	if err := c.send(ctx, jsonrpc.AppendResult(nil, p.question.ID.Bytes, given.Bytes)); err != nil {
		_ = c.Close()
		return nil, err
	}
	return x.respond(c, statusOf(x.m.Method))
}
