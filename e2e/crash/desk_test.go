package crash_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// desk starts three gates of one user, which share a store and an inbox.
func desk(t *testing.T) *world {
	t.Helper()
	state := t.TempDir()
	dir := filepath.Join(state, "desk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sign-in"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ledger: newLedger(t), open: func() (gatestore.Store, error) {
		return sqlitestore.Open(t.Context(), sqlitestore.Options{File: filepath.Join(dir, "store.db")})
	}}
	for range 3 {
		w.gates = append(w.gates, startGate(t, w.ledger.url, "store: 'desk:'\nstate_dir: "+state))
	}
	return w
}

// serves reports whether a gate has become the server of the inbox since its start.
func (g *gate) serves() bool {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	return g.log.serves
}

// leader waits until one of the running gates serves the inbox, and returns it.
func leader(t *testing.T, gates []*gate) *gate {
	t.Helper()
	var found *gate
	eventually(t, func() bool {
		for _, g := range gates {
			if g.serves() {
				found = g
			}
		}
		return found != nil
	})
	return found
}

// A browser has signed in at the inbox with the link, and since then has only a cookie.
type browser struct{ client *http.Client }

func signIn(t *testing.T, address string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b := &browser{&http.Client{Jar: jar, Transport: transport, Timeout: patience}}
	resp, err := b.client.Get("http://" + address + "/login?token=" + token)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Request.URL.Path == "/login" {
		t.Fatalf("not signed in: %s at %s", resp.Status, resp.Request.URL.Path)
	}
	return b
}

// read returns the page of a held call, or nothing if no gate answers.
func (b *browser) read(t *testing.T, address, id string) string {
	t.Helper()
	resp, err := b.client.Get("http://" + address + "/approvals/" + id)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	if resp.Request.URL.Path == "/login" {
		t.Fatal("the browser was signed out")
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// TestDesk repeatedly kills the gate that serves the inbox. Another gate takes over at the
// same address, the browser stays signed in, pending calls are kept, and a decision reaches
// the agent at the gate that holds its call.
func TestDesk(t *testing.T) {
	t.Parallel()
	w := desk(t)
	p := newParty(t, "s-1")
	address := leader(t, w.gates).operators
	eventually(t, func() bool { return p.inbox(w.gates[0]).status == 200 })
	b := signIn(t, address)
	abandoned := p.hold(t, w.gates[0], 1000, "quick") // stays pending
	for n := 1; n <= 3; n++ {
		serving := leader(t, w.gates)
		var others []*gate
		for _, g := range w.gates {
			if g.operators != address {
				t.Fatalf("two gates have the inbox at %s and %s", address, g.operators)
			}
			if g != serving {
				others = append(others, g)
			}
		}
		id := p.hold(t, others[0], n, "quick")
		wait := later(func() answer { return p.about(others[0], "tasks/result", id) })
		serving.kill()
		killed := time.Now()
		eventually(t, func() bool { return strings.Contains(b.read(t, address, id), "hold_x") })
		t.Logf("the inbox was back after %v", time.Since(killed))
		eventually(t, func() bool { return b.read(t, address, abandoned) != "" })
		p.approve(t, others[1], id)
		decided := time.Now()
		if got := <-wait; !got.has(outcome(n, "quick")) {
			t.Errorf("tasks/result: %+v", got)
		}
		t.Logf("the agent had the result %v after the decision", time.Since(decided))
		serving.start()
	}
	w.audited(t, 3)
}

// audited checks that the first calls ran once each, and that all trails are consistent.
func (w *world) audited(t *testing.T, calls int) {
	t.Helper()
	for n := 1; n <= calls; n++ {
		if ran := w.ledger.ran(n); ran != 1 {
			t.Errorf("call %d ran %d times", n, ran)
		}
	}
	found := w.stored()
	found.agree(t)
	for _, of := range found.tasks {
		begun(t, of)
	}
}

// TestDeskExecutorKilled kills the gate that runs a call, while its tool runs. The other gates
// report an unknown outcome, and do not run the call again.
func TestDeskExecutorKilled(t *testing.T) {
	t.Parallel()
	w := desk(t)
	p := newParty(t, "s-1")
	eventually(t, func() bool { return p.inbox(w.gates[0]).status == 200 })
	killExecutor(t, w, p)
	w.audited(t, 0)
	if ran := w.ledger.ran(2); ran != 1 {
		t.Errorf("the call ran %d times", ran)
	}
}
