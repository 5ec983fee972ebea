package mcphttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
)

// GOV-004 5.1 THOUGHTGATE_SSE_FORWARDING_ENABLED: a gate that is not to forward
// what upstreams say of their tasks does not listen to them. A client that
// listens still hears of what the gate knows.
func TestUpstreamsSkipped(t *testing.T) {
	r := &radio{greets: true}
	p := newTaskFixture(t, func(_ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{SkipUpstreams: true, ReconnectDelay: time.Millisecond, ReconnectAttempts: 3}
		w.Beat = time.Hour // nothing is asked just because somebody listens
	})
	p.server.mu.Lock()
	p.server.speak = r.serve
	p.server.mu.Unlock()
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next() // acknowledgement
	wantText(t, "how it stands", next(), own)
	cancel, headers := about("tasks/cancel", own)
	p.ask(cancel, headers...)
	toldUntil(t, next, own, nil, `"status":"cancelled"`)
	if _, ever := r.listeners(); ever != 0 {
		t.Errorf("the upstream was listened to %d times", ever)
	}
}
