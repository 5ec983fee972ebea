package mcphttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
)

// GOV-004 5.1 THOUGHTGATE_SSE_FORWARDING_ENABLED: without forwarding, the gate does not
// subscribe to upstream tasks. Clients still get the gate's notifications.
func TestUpstreamNotificationsCanBeDisabled(t *testing.T) {
	r := &notifier{acknowledges: true}
	p := newTaskFixture(t, func(_ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{SkipUpstreams: true, ReconnectDelay: time.Millisecond, ReconnectAttempts: 3}
		w.Heartbeat = time.Hour // a client that listens must cause no queries
	})
	p.server.mu.Lock()
	p.server.speak = r.serve
	p.server.mu.Unlock()
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next() // acknowledgement
	wantText(t, "status", next(), own)
	cancel, headers := about("tasks/cancel", own)
	p.ask(cancel, headers...)
	toldUntil(t, next, own, nil, `"status":"cancelled"`)
	if _, ever := r.listeners(); ever != 0 {
		t.Errorf("%d upstream subscriptions; want none", ever)
	}
}
