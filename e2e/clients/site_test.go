// Package clients_test connects real clients to a gate that holds their calls: the official Go
// SDK's client, and the official TypeScript clients in Node.js.
//
// Each test has its own gate with real listeners, in front of the demo's server. Approvers use
// the operators' HTTP API with the generated token. The tests check the ledger of the demo's
// server: which calls ran, and how often.
//
// The tests of TypeScript clients need node (20 or newer) and npm, and install the packages of
// package-lock.json in the user's cache directory. Without node or npm they are skipped, or
// fail if CI is set in the environment.
package clients_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// patience limits every wait in a test.
const patience = 2 * time.Minute

// How long requests without a task are held: longer than any test takes, as long as an
// approved call needs on a slow machine, and shorter than a decision takes.
const (
	longHold   = "1h"
	mediumHold = "3s"
	shortHold  = "300ms"
)

// bonuses is the file that the tests delete.
const bonuses = "/payroll/bonuses.csv"

// A site is a gate in front of the demo's server.
type site struct {
	demo     *demo.Server
	url      string // for agents
	door     *door  // a proxy in front of the gate; may be nil
	operator string // for approvers
	token    string
}

// open starts a gate that holds delete_file and denies write_file.
func open(t *testing.T, hold string) *site {
	t.Helper()
	s := &site{demo: demo.New()}
	s.url, s.operator, s.token = openGate(t, s.demo, `
rules:
  - {match: delete_file, action: approve, reason: deleting is final}
  - {match: write_file, action: deny}
default: forward
waiting: {hold: `+hold+`}
tasks: {min_poll_interval: 100ms, max_poll_interval: 100ms}
`)
	return s
}

// A door is a proxy in front of the gate that counts tool calls, and can call a function
// before it forwards one. So a test can decide between two requests of a client, however long
// they take.
type door struct {
	*httputil.ReverseProxy

	mu     sync.Mutex
	calls  int
	before map[int]func()
}

// watch puts a door in front of the gate, for clients that connect later.
func (s *site) watch(t *testing.T) {
	t.Helper()
	inner, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.door = &door{before: map[int]func(){}, ReverseProxy: &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL, r.Out.Host = inner, inner.Host },
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}}
	server := httptest.NewServer(s.door)
	t.Cleanup(server.Close)
	s.url = server.URL + inner.Path
}

// onCall calls a function before the n-th tool call is forwarded.
func (s *site) onCall(n int, do func()) {
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	s.door.before[n] = do
}

// calls returns the number of tool calls.
func (s *site) calls() int {
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	return s.door.calls
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if bytes.Contains(body, []byte(`"tools/call"`)) {
		if do := d.count(); do != nil {
			do()
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.ReverseProxy.ServeHTTP(w, r)
}

func (d *door) count() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	return d.before[d.calls]
}

// openGate starts a gate in front of an upstream, and returns the URLs for agents and
// operators, and the operators' token.
func openGate(t *testing.T, upstream http.Handler, policy string) (agents, operators, token string) {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	return runGate(t, fmt.Sprintf("store: %q\nupstreams: [{name: demo, url: %q}]\n%s", "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), server.URL, policy))
}

// runGate runs a gate with further settings until the test ends.
func runGate(t *testing.T, settings string) (agents, operators, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gate.yaml")
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\n" + settings
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := app.New(cfg, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- gate.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := receive(t, stopped); err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	return "http://" + gate.AgentAddr() + "/mcp", "http://" + gate.OperatorAddr(), gate.GeneratedToken()
}

// An approval is a held call in the operators' API.
type approval struct {
	ID        string `json:"id"`
	State     string `json:"state"`
	Tool      string `json:"tool"`
	Arguments struct {
		Path string `json:"path"`
	} `json:"arguments"`
}

// list returns the held calls in a state.
func (s *site) list(ctx context.Context, state string) ([]approval, error) {
	var page struct {
		Approvals []approval `json:"approvals"`
	}
	err := s.request(ctx, http.MethodGet, "/api/approvals?limit=100&state="+state, "", &page)
	return page.Approvals, err
}

func (s *site) approvals(t *testing.T, state string) []approval {
	t.Helper()
	found, err := s.list(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// pending waits until the only pending call is delete_file of bonuses, and returns it.
func (s *site) pending(t *testing.T) approval {
	t.Helper()
	return s.inState(t, "pending")
}

func (s *site) inState(t *testing.T, state string) approval {
	t.Helper()
	var found []approval
	eventually(t, func() bool { found = s.approvals(t, state); return len(found) > 0 })
	if len(found) != 1 || found[0].Tool != "delete_file" || found[0].Arguments.Path != bonuses {
		t.Fatalf("%s: %+v; want only delete_file of %s", state, found, bonuses)
	}
	return found[0]
}

func (s *site) approve(t *testing.T, a approval) { t.Helper(); s.decide(t, a, "approve") }
func (s *site) reject(t *testing.T, a approval)  { t.Helper(); s.decide(t, a, "reject") }

func (s *site) decide(t *testing.T, a approval, verdict string) {
	t.Helper()
	if err := s.decided(t.Context(), a, verdict); err != nil {
		t.Fatal(err)
	}
}

// decided reads a call, and decides on the shown version.
func (s *site) decided(ctx context.Context, a approval, verdict string) error {
	var seen struct {
		ShownDigest string `json:"shownDigest"`
	}
	if err := s.request(ctx, http.MethodGet, "/api/approvals/"+a.ID+"?arguments=all", "", &seen); err != nil {
		return err
	}
	body := `{"reason":"as the test wants","shownDigest":"` + seen.ShownDigest + `"}`
	return s.request(ctx, http.MethodPost, "/api/approvals/"+a.ID+"/"+verdict, body, &a)
}

// request makes a request to the operators' API and decodes its answer.
func (s *site) request(ctx context.Context, method, path, body string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, s.operator+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %s", method, path, res.Status, data)
	}
	return json.Unmarshal(data, answer)
}

// ran requires that delete_file ran this many times on bonuses, and that no other tool ran.
func (s *site) ran(t *testing.T, times int) {
	t.Helper()
	once := demo.Call{Tool: "delete_file", Arguments: fmt.Sprintf(`{"path":%q}`, bonuses), Outcome: demo.Done}
	if diff := cmp.Diff(slices.Repeat([]demo.Call{once}, times), s.demo.Calls()); diff != "" {
		t.Errorf("executed calls (-want +got):\n%s", diff)
	}
}

// eventually waits until done reports true.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond) // the gate limits operators' requests
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("timed out waiting for a condition")
		}
	}
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case v := <-from:
		return v
	case <-limit.C:
		t.Fatal("timed out waiting for a value")
		panic("unreachable")
	}
}
