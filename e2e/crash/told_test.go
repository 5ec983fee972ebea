package crash_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/channel/slacktest"
)

// A hook is the receiver of a webhook.
type hook struct {
	down atomic.Bool

	mu    sync.Mutex
	taken []string // the ids of the accepted messages
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = append(h.taken, r.Header.Get("Webhook-Id"))
}

func (h *hook) count(id string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.taken {
		if one == id {
			n++
		}
	}
	return n
}

// A gate is killed after a decision and before its notifications. After a restart, it notifies
// every channel once.
func TestDecisionIsSentOnceAfterCrash(t *testing.T) {
	space, receiver := slacktest.New(t), new(hook)
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	rest := withStore("sqlite:"+filepath.Join(t.TempDir(), "gate.db")) + fmt.Sprintf(`
waiting: {hold: 0s}
workflows: {default: {channels: [inbox, chat, hook]}}
channels:
  chat: {slack: {bot_token: xoxb-bot, app_token: xapp-app, channel: %s, url: '%s'}}
  hook: {webhook: {url: '%s', secret: 'whsec_cXVlc3Rpb25zLWFyZS1zaWduZWQtd2l0aC10aGlzLTE=', allow_private: true}}`,
		slacktest.ChannelID, space.URL, server.URL)
	g := startGate(t, newLedger(t).url, rest)
	agent, person := newParty(t, "s-1"), newParty(t, "")
	agent.ask(g, "tools/call", `{"name":"hold_1","arguments":{"n":1}}`)
	id := person.inbox(g).after(`"id":"`)
	space.Posted(1)
	eventually(t, func() bool { return receiver.count(id+".pending") == 1 })
	resume := space.Stall()
	receiver.down.Store(true)
	if a := person.decide(g, id, "reject"); !a.has(`"rejected"`) {
		t.Fatalf("the decision: %d %s", a.status, a.body)
	}
	g.kill()
	space.Abandoned("chat.update")
	if m := space.Posted(1); m.Changes > 0 || receiver.count(id+".rejected") > 0 {
		t.Fatal("the gate sent the decision before it was killed")
	}
	resume()
	receiver.down.Store(false)
	g.start()
	space.Says("Rejected: hold_1")
	eventually(t, func() bool { return receiver.count(id+".rejected") == 1 })
	eventually(t, func() bool {
		a := person.send(http.MethodGet, "http://"+g.operators+"/api/channels", "")
		return strings.Count(a.body, `"waiting":0`) == 2
	})
	if m := space.Posted(1); m.Changes != 1 || receiver.count(id+".rejected") != 1 {
		t.Errorf("the message was changed %d times, and the receiver notified %d times", m.Changes, receiver.count(id+".rejected"))
	}
}
