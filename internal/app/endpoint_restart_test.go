package app_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

const holdRules = "rules: [{match: hold, action: approve}, {match: '*', action: forward}]\ndefault: deny\nwaiting: {hold: 10ms}\n"

// A session outlives the gate, with the sessions at the servers and the held calls of an anonymous client.
func TestEndpointSessionSurvivesRestart(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	a, b, c := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x", "hold"), newPlainServer(t, "c", "x")
	c.stop()
	text := plainConfig("sqlite:"+filepath.Join(t.TempDir(), "gate.db"), holdRules, a, b, c)
	gate, stop := start(t, text)
	r := &plainRig{T: t, gate: gate}
	r.begin()
	has(t, r.call("b__hold"), "waits for approval")
	id := awaitPending(t, gate)
	c.start(t)
	eventually(t, "the server joins", func() bool { return strings.Contains(r.call("c__x"), "done by c") })
	restart := func() {
		t.Helper()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		r.gate, stop = start(t, text)
	}

	restart()

	has(t, r.list(), `"name":"x"`, `"b__hold"`, `"c__x"`)
	has(t, r.call("x"), "done by a for session-of-a")
	approveCall(t, r.gate, id)
	eventually(t, "the held call runs for its client", func() bool { return strings.Contains(r.call("b__hold"), "done by b for session-of-b") })
	for _, s := range []*plainServer{a, b, c} {
		if n := s.begun.Load(); n != 1 {
			t.Errorf("%d sessions with %s", n, s.name)
		}
	}
	b.forgets.Store(true)
	has(t, r.call("b__x"), "done by b for session-of-b")
	if n := b.begun.Load(); n != 2 {
		t.Errorf("%d sessions with b", n)
	}

	// An end is an end after a restart, too.
	if status, answer, _ := request(t, http.DefaultClient, http.MethodDelete, "http://"+r.gate.AgentAddr()+"/mcp", "", "Mcp-Session-Id", r.session); status != http.StatusOK {
		t.Errorf("the end: %d %s", status, answer)
	}
	restart()
	if status, answer, _ := r.post(callAs("1", "x")); status != http.StatusNotFound || !strings.Contains(answer, "session_gone") {
		t.Errorf("a call in an ended session: %d %s", status, answer)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Replicas share sessions, which belong to their principals.
func TestEndpointSessionAtReplicas(t *testing.T) {
	server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return
	}
	t.Cleanup(func() { server.Stop() })
	defer http.DefaultClient.CloseIdleConnections()
	token := func(name, secret string) string {
		return "{name: " + name + ", hash: '" + identity.HashOf(secret).String() + "'}"
	}
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	text := plainConfig(server.URL(), holdRules+"identity: {tokens: ["+token("ann", annsAgent)+", "+token("bob", bobsAgent)+"]}\nstorage: {timeout: 1m}\n", a, b)
	one, stopOne := start(t, text)
	two, stopTwo := start(t, text)
	r := &plainRig{T: t, gate: one}
	r.begin()
	refusesBob := func(when string) {
		t.Helper()
		if status, answer, _ := request(t, http.DefaultClient, "POST", "http://"+two.AgentAddr()+"/mcp", call("x"), "Mcp-Session-Id", r.session, "Authorization", "Bearer "+bobsAgent); status != http.StatusNotFound {
			t.Errorf("another principal, %s: %d %s", when, status, answer)
		}
	}
	refusesBob("while only the store has the session")
	other := &plainRig{T: t, gate: two, session: r.session}
	has(t, other.call("b__x"), "done by b for session-of-b")
	if n := a.begun.Load() + b.begun.Load(); n != 2 {
		t.Errorf("%d sessions with the servers", n)
	}
	refusesBob("while the replica has it")

	// The end of a session at one replica is noticed at the other, once a server refuses it.
	if status, answer, _ := request(t, http.DefaultClient, http.MethodDelete, "http://"+one.AgentAddr()+"/mcp", "", "Mcp-Session-Id", r.session, "Authorization", "Bearer "+annsAgent); status != http.StatusOK {
		t.Errorf("the end: %d %s", status, answer)
	}
	a.forgets.Store(true)
	b.forgets.Store(true)
	if status, answer, _ := other.post(callAs("1", "b__x")); status != http.StatusNotFound {
		t.Errorf("a call in a session that has ended elsewhere: %d %s", status, answer)
	}
	for _, stop := range []func() error{stopOne, stopTwo} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
