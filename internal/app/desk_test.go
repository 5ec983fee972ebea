package app_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// counting returns the URL of an upstream that counts its calls.
func counting(t *testing.T, ran *atomic.Int64) string {
	t.Helper()
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			ran.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
	t.Cleanup(up.Close)
	return up.URL
}

// deskGate returns the settings of a gate that shares a desk, and runs approved calls of the
// given workflow at once.
func deskGate(state, name, url, workflow string) string {
	return fmt.Sprintf(`
version: 1
listen: 127.0.0.1:0
state_dir: %s
store: 'desk:'
upstreams: [{name: %s, url: %s, forward_authorization: false}]
execution: {start: approval}
tasks: {cleanup_interval: 200ms}
workflows: {ops: %s, free: {}}
rules: [{match: 'hold_*', action: approve, workflow: ops}, {match: 'run_*', action: approve, workflow: free}]
default: deny
`, state, name, url, workflow)
}

// startDesk runs only the inbox, and waits until it serves.
func startDesk(t *testing.T, state string) *app.App {
	t.Helper()
	cfg, _, err := config.LoadStorage(config.Sources{Environ: []string{"THOUGHTGATE_STATE_DIR=" + state}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.NewDesk(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

// found returns a client of the desk, once the desk is served.
func found(t *testing.T, state string) *client.Client {
	t.Helper()
	var at localdesk.Inbox
	eventually(t, "the inbox is served", func() bool {
		inbox, err := localdesk.Find(state)
		at = inbox
		return err == nil
	})
	c, err := client.New(client.Config{URL: at.URL, Token: at.SignIn})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// approveShown approves a call as shown in the inbox.
func approveShown(t *testing.T, inbox *client.Client, id string) (review.Approval, error) {
	t.Helper()
	shown, err := inbox.Show(t.Context(), task.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	return inbox.Decide(t.Context(), task.ID(id), approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest})
}

// Gates with different upstreams, and with different workflows of the same name, share a desk.
// The inbox shows a call as configured at the gate that holds it, and only that gate runs the
// approved call.
func TestDeskOfDifferentGates(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	state := t.TempDir()
	startDesk(t, state)
	inbox := found(t, state)
	var one, two atomic.Int64
	firstGate := deskGate(state, "one", counting(t, &one), "{redact: [arguments.password]}")
	a, stopA := start(t, firstGate)
	b, stopB := start(t, deskGate(state, "two", counting(t, &two), "{approvers: [somebody]}"))
	if a.LoginLink() != b.LoginLink() || !strings.HasPrefix(a.LoginLink(), "http://127.0.0.1:") {
		t.Errorf("the gates have different inboxes: %s and %s", a.LoginLink(), b.LoginLink())
	}

	mine := heldTask(t, a, `{"name":"hold_x","arguments":{"password":"swordfish","n":1},"task":{}}`)
	others := heldTask(t, b, `{"name":"hold_x","arguments":{"n":2},"task":{}}`)
	listed, err := inbox.List(t.Context(), client.Selection{State: "pending"})
	if err != nil || len(listed) != 2 {
		t.Fatalf("pending: %v, %v", listed, err)
	}
	if text := fmt.Sprintf("%s %s", listed[0].Arguments, listed[1].Arguments); strings.Contains(text, "swordfish") || !strings.Contains(text, `"n":1`) {
		t.Errorf("the list shows %s", text)
	}
	if _, err := approveShown(t, inbox, others); err == nil || !strings.Contains(err.Error(), "approver") {
		t.Errorf("approved by an operator who is not an approver of that gate's workflow: %v", err)
	}

	// The first gate is stopped when its call is approved. The second gate runs only its own
	// call.
	if err := stopA(); err != nil {
		t.Error(err)
	}
	if after, err := approveShown(t, inbox, mine); err != nil || strings.Contains(string(after.Arguments), "swordfish") {
		t.Fatalf("approve: %s, %v", after.Arguments, err)
	}
	for n := range 3 {
		id := heldTask(t, b, fmt.Sprintf(`{"name":"run_x","arguments":{"n":%d},"task":{}}`, n))
		if _, err := approveShown(t, inbox, id); err != nil {
			t.Fatal(err)
		}
		if answer := say(t, b.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(answer, "done") {
			t.Errorf("tasks/result: %s", answer)
		}
	}
	if now, err := inbox.Show(t.Context(), task.ID(mine)); err != nil || now.State != task.Approved {
		t.Errorf("the call of the first gate is %s, %v", now.State, err)
	}
	a, stopA = start(t, firstGate)
	if answer := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+mine+`"}`); !strings.Contains(answer, "done") {
		t.Errorf("tasks/result: %s", answer)
	}
	if one.Load() != 1 || two.Load() != 3 {
		t.Errorf("the first upstream ran %d calls, the second %d", one.Load(), two.Load())
	}
	for _, stop := range []func() error{stopA, stopB} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// heldTask makes a call that is held, and returns its task.
func heldTask(t *testing.T, a *app.App, params string) string {
	t.Helper()
	answer := say(t, a.AgentAddr(), "tools/call", params)
	_, rest, _ := strings.Cut(answer, `"taskId":"`)
	id, _, found := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("not held: %s", answer)
	}
	return id
}

// A newer gate updates the store of a desk. The older gate reports this, stops serving the
// inbox so that a newer gate can serve it, and leaves the store unchanged.
func TestDeskOutdated(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	state := t.TempDir()
	a, stop := start(t, deskGate(state, "one", answering(t, "done"), "{}"))
	found(t, state)
	if answer := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","task":{}}`); !strings.Contains(answer, `"taskId":"tg_`) {
		t.Fatalf("before the update: %s", answer)
	}
	db, err := driver.Open("file:" + localdesk.StoreFile(state) + "?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO schema_version (version) VALUES (99)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no process serves the inbox", func() bool { _, err := localdesk.Find(state); return err != nil })
	if answer := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_y","task":{}}`); !strings.Contains(answer, `"error_type":"store_unavailable"`) || !strings.Contains(answer, "update this gate") {
		t.Errorf("a call that needs approval: %s", answer)
	}
	if _, err := newApp(t, deskGate(state, "one", "http://127.0.0.1:1/", "{}")); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("an older gate starts: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A browser stays signed in when all gates are restarted. Replacing a leaked secret ends the
// sessions that began with it.
func TestDeskTokenReplaced(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	b := deskBrowser{t: t, state: t.TempDir()}
	if status := b.visit(); status != http.StatusOK {
		t.Fatalf("after signing in: %d", status)
	}
	if status := b.visit(); status != http.StatusOK {
		t.Errorf("after a restart: %d", status)
	}
	if err := os.Remove(filepath.Join(localdesk.Dir(b.state), "sign-in")); err != nil {
		t.Fatal(err)
	}
	if status := b.visit(); status != http.StatusUnauthorized {
		t.Errorf("after the token was replaced: %d", status)
	}
}

// While no gate serves the inbox, another program takes its address, and receives the session
// of a page that reconnects. The session is no longer valid once the inbox has moved to
// another address.
func TestDeskMoveEndsSessions(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	b := deskBrowser{t: t, state: t.TempDir()}
	if status := b.visit(); status != http.StatusOK {
		t.Fatalf("after signing in: %d", status)
	}
	former := b.address
	stranger, err := net.Listen("tcp", former)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if status := b.visit(); status != http.StatusUnauthorized || b.address == former {
		t.Errorf("the session that the program received at %s has is answered %d at %s", former, status, b.address)
	}
}

// A deskBrowser is the browser of a user with a desk.
type deskBrowser struct {
	t               *testing.T
	state           string
	address, cookie string // the address of the inbox, and the session; empty before the first request
}

// visit runs a gate, requests the approvals with the session, and returns the status of the
// answer. The first time, the browser signs in.
func (b *deskBrowser) visit() (status int) {
	b.t.Helper()
	browser := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	a, stop := start(b.t, deskGate(b.state, "one", "http://127.0.0.1:1/", "{}"))
	found(b.t, b.state)
	b.address = a.OperatorAddr()
	if b.cookie == "" {
		_, _, header := request(b.t, browser, "GET", a.LoginLink(), "")
		b.cookie, _, _ = strings.Cut(header.Get("Set-Cookie"), ";")
	}
	status, _, _ = request(b.t, browser, "GET", "http://"+b.address+"/api/approvals", "", "Cookie", b.cookie)
	if err := stop(); err != nil {
		b.t.Error(err)
	}
	return status
}

// A gate does not use a desk directory that other users can open.
func TestDeskDirectoryMustBePrivate(t *testing.T) {
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "desk"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := newApp(t, deskGate(state, "one", "http://127.0.0.1:1/", "{}")); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("started: %v", err)
	}
}
