package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// On every replica, approvers see whether an agent waits, polls or is gone. An approval for an
// agent that is gone says when the call will run: when the agent asks again.
func TestPresence(t *testing.T) {
	stores := map[string]func(t *testing.T) (url string, replicas int){
		"memory": func(*testing.T) (string, int) { return "memory:", 1 },
		"SQLite": func(t *testing.T) (string, int) { return "sqlite:" + filepath.Join(t.TempDir(), "gate.db"), 1 },
		"PostgreSQL": func(t *testing.T) (string, int) {
			server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return "", 0
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL(), 2
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			if url, replicas := open(t); url != "" {
				startPresence(t, url, replicas).test()
			}
		})
	}
}

// A presence is one test of the shown presence of an agent.
type presence struct {
	t    *testing.T
	text string // the configuration
	ran  atomic.Int64

	first, last *app.App // the agent calls at the first replica; an approver decides at the last
	stops       []func() error
}

func startPresence(t *testing.T, store string, replicas int) *presence {
	t.Helper()
	p := &presence{t: t}
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			p.ran.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
	t.Cleanup(up.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	p.text = strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(up.URL)) +
		"rules: [{match: 'hold_*', action: approve}]\ndefault: deny\ntasks: {min_poll_interval: 1s, max_poll_interval: 1s}\nstorage: {timeout: 1m}\n"
	p.start(replicas)
	return p
}

func (p *presence) start(replicas int) {
	for n := range replicas {
		gate, stop := start(p.t, p.text)
		p.stops, p.last = append(p.stops, stop), gate
		if n == 0 {
			p.first = gate
		}
	}
}

func (p *presence) stop() {
	p.t.Helper()
	for _, stop := range p.stops {
		if err := stop(); err != nil {
			p.t.Error(err)
		}
	}
	p.stops = nil
}

func (p *presence) test() {
	t := p.t
	ctx, leave := context.WithCancel(t.Context())
	left := p.call(ctx, "hold_x")
	waits := p.see(gatetask.OwnerWaits, "Agent is waiting", nil)
	leave()
	<-left
	gone := p.see(gatetask.OwnerGone, "Agent gone for ", nil)
	if gone.ShownDigest != waits.ShownDigest {
		t.Error("the shown digest changed because the agent left")
	}
	if !strings.Contains(p.text, "memory:") {
		replicas := len(p.stops)
		p.stop()
		stopped := time.Now()
		p.start(replicas)
		since := p.see(gatetask.OwnerGone, "Agent gone for ", nil).Agent.LastContact
		if earliest := gone.Agent.LastContact; since.Before(earliest) || since.After(stopped) {
			t.Errorf("after a restart the agent is gone since %v; want a time from %v to %v", since, earliest, stopped)
		}
	}
	var approved review.Approval
	decode(t, approve(t, p.last.OperatorAddr(), string(gone.ID)), &approved)
	want := "It will run when the agent asks again, until " + approved.ValidUntil.UTC().Format("15:04 UTC") + "."
	if tomorrow := approved.ValidUntil.UTC(); tomorrow.Day() != time.Now().UTC().Day() {
		want = "It will run when the agent asks again, until " + tomorrow.Format("2 January 15:04 UTC") + "."
	}
	if approved.State != task.Approved || approved.Next != want || approved.Agent.Presence != gatetask.OwnerGone {
		t.Errorf("approved: %s, %+v, %q; want %q", approved.State, approved.Agent, approved.Next, want)
	}
	if n := p.ran.Load(); n != 0 {
		t.Errorf("the call ran %d times while no client waited", n)
	}
	if answer := say(t, p.last.AgentAddr(), "tools/call", `{"name":"hold_x"}`); !strings.Contains(answer, "done") || p.ran.Load() != 1 {
		t.Errorf("the agent asked again: %s; ran %d times", answer, p.ran.Load())
	}

	created := say(t, p.first.AgentAddr(), "tools/call", `{"name":"hold_y","task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	p.see(gatetask.OwnerPolls, "Agent asks every 1 s", func() { say(t, p.first.AgentAddr(), "tasks/get", `{"taskId":"`+id+`"}`) })
	p.see(gatetask.OwnerGone, "Agent gone for ", nil)
	p.stop()
}

// call makes a call that is held until ctx ends, and returns a channel that is closed then.
func (p *presence) call(ctx context.Context, tool string) <-chan struct{} {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.first.AgentAddr()+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	return done
}

// see waits until the pending call has the given presence of its agent, and returns the call
// as shown at the last replica. It calls meanwhile repeatedly.
func (p *presence) see(want gatetask.Presence, text string, meanwhile func()) review.Approval {
	p.t.Helper()
	var page review.Page
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if meanwhile != nil {
			meanwhile()
		}
		decode(p.t, p.api("/api/approvals"), &page)
		if len(page.Approvals) != 1 || page.Approvals[0].Agent.Presence != want {
			continue
		}
		if a := page.Approvals[0].Agent; !strings.HasPrefix(a.Text, text) {
			p.t.Errorf("%s: %q; want %q", want, a.Text, text)
		}
		var one review.Approval
		decode(p.t, p.api("/api/approvals/"+string(page.Approvals[0].ID)), &one)
		return one
	}
	p.t.Fatalf("the agent is not %s: %+v", want, page)
	return review.Approval{}
}

func (p *presence) api(path string) string {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.last.OperatorAddr()+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-of-the-operators")
	return do(p.t, r)
}

func decode(t *testing.T, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
