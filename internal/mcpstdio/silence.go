package mcpstdio

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Silence is how long the server may be silent about a request; zero means no limit.
type Silence struct{ Request, Call time.Duration }

// of returns the limit for a message. The first answer has none, because a package manager may
// have to download the server. A subscription and a task of the server have none either.
func (s Silence) of(p jsonrpc.Packet) time.Duration {
	limit := s.Request
	for i := range p.Messages {
		switch p.Messages[i].Method {
		case mcpname.Initialize, mcpname.ServerDiscover, mcpname.SubscriptionsListen:
			return 0
		case mcpname.ToolsCall:
			limit = s.Call
		}
	}
	if upstream.WaitsForTask(p) {
		return 0
	}
	return limit
}

// A silenceLimit ends the wait for an answer after the server was silent for too long. Time
// during which the gate could not read does not count. The zero value has no limit.
type silenceLimit struct {
	mu    sync.Mutex
	timer *time.Timer // nil without a limit
	limit time.Duration
	since time.Time     // time of the last activity
	busy  time.Duration // paused time of the clock at that moment
}

// begin starts to wait, and calls over when the limit is exceeded.
func (w *silenceLimit) begin(limit time.Duration, l *readClock, over func()) {
	if limit == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit, w.since, w.busy = limit, time.Now(), l.paused()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(limit, func() {
		if w.isOver(l) {
			over()
		}
	})
}

// isOver reports whether the limit is exceeded; otherwise it restarts the timer.
func (w *silenceLimit) isOver(l *readClock) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return false
	}
	left := w.limit - (time.Since(w.since) - (l.paused() - w.busy))
	if left <= 0 {
		return true
	}
	w.timer.Reset(left)
	return false
}

// alive records activity of the server.
func (w *silenceLimit) alive(l *readClock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.busy = time.Now(), l.paused()
}

// end removes the limit.
func (w *silenceLimit) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// A readClock measures the time during which the gate does not read from the server, because
// the client does not read.
type readClock struct {
	mu    sync.Mutex
	total time.Duration
	since time.Time // zero while the gate reads
}

func (l *readClock) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
}

func (l *readClock) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += time.Since(l.since)
	l.since = time.Time{}
}

// paused returns the total time without reading.
func (l *readClock) paused() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return l.total
	}
	return l.total + time.Since(l.since)
}

// noteActivity extends the limits of the requests that a message may concern: progress concerns
// one request, everything else may concern any. A question of the server removes the limits,
// since the client may take any time to answer.
func (a *Agent) noteActivity(m *jsonrpc.Message) {
	if a.cfg.Limits.Silence == (Silence{}) {
		return
	}
	asks := upstream.AsksClient(jsonrpc.Packet{Messages: []jsonrpc.Message{*m}})
	token := m.Params.Member("progressToken")
	a.pending.each(func(f *forwarding) {
		switch {
		case asks:
			f.x.wait.end()
		case m.Method != mcpname.NotifyProgress || hasToken(f.packet, token):
			f.x.wait.alive(&a.readClock)
		}
	})
}

// hasToken reports whether a message requests progress with the token.
func hasToken(p jsonrpc.Packet, token jsonrpc.Value) bool {
	for i := range p.Messages {
		if own := p.Messages[i].Params.Meta.Member("progressToken"); own.Present() && jsonrpc.SameID(own.Bytes, token.Bytes) {
			return true
		}
	}
	return false
}

// cancelTime limits how long it may take to send a cancellation.
const cancelTime = 5 * time.Second

// giveUp answers requests on which the server was silent for too long, and cancels them at the
// server.
func (f *forwarding) giveUp(ids [][]byte) {
	late := &mcp.Problem{Type: mcp.UpstreamTimeout}
	for _, id := range ids {
		if !f.a.pending.drop(id, f) {
			continue // answered meanwhile
		}
		f.x.safely(func() error {
			if f.batch != nil {
				return f.addBatchError(id, late)
			}
			return f.unanswered(late)
		})
		f.a.cancelAtServer(id)
	}
}

// cancelAtServer sends the server a cancellation.
func (a *Agent) cancelAtServer(id []byte) {
	text := append([]byte(`{"jsonrpc":"2.0","method":"`+mcpname.NotifyCancelled+`","params":{"requestId":`), id...)
	text = append(text, `,"reason":"the time limit of the request is over"}}`...)
	ctx, stop := context.WithTimeout(context.Background(), cancelTime)
	defer stop()
	_ = a.cfg.Link.Forward(ctx, upstream.Forwarded{Packet: upstream.ReadLine(text, 0).Packet, Body: text}) // fails only if the server has ended
}
