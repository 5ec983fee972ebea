package crash_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/bench/peer"
)

// A steady gate is never killed, so that leaks show. Its calls expire within seconds, so that
// its store should be empty at the end.
type steady struct {
	*gate

	t      *testing.T
	ledger *ledger
	store  string // the file of the store
	up     *fickle

	mu     sync.Mutex
	calls  map[int]*brief
	counts map[string]int
}

// A brief is the record of a call at a steady gate.
type brief struct {
	approval bool // an approver tried to approve it
	answered bool // the client has the outcome
}

// steadySettings are the settings of a steady gate: its upstream, its file, and a number
// that differs at every reload.
const steadySettings = `
version: 1
listen: 127.0.0.1:0
upstreams: [{url: %s}]
store: 'sqlite:%s'
operators: {listen: 127.0.0.1:0, token: ` + token + `}
tasks: {max_pending_per_owner: 1000, max_pending: 1000, cleanup_interval: 500ms, default_ttl: 2s, max_ttl: 1m}
storage: {retention: 1s}
limits: {call_timeout: 5s}
workflows: {default: {timeout: 4s}}
rules:
  - {match: 'hold_*', action: approve, reason: 'file number %d'}
  - {match: 'free_*', action: forward}
  - {match: 'echo_*', action: forward}
default: deny
`

func newSteady(t *testing.T) *steady {
	t.Helper()
	s := &steady{
		t: t, ledger: newLedger(t), store: filepath.Join(t.TempDir(), "gate.db"),
		calls: make(map[int]*brief), counts: make(map[string]int),
	}
	s.up = &fickle{ledger: s.ledger, echo: peer.Upstream()}
	server := httptest.NewServer(s.up)
	t.Cleanup(server.Close)
	s.ledger.url = server.URL + "/mcp"
	s.gate = launch(t, s.settings(0))
	return s
}

func (s *steady) settings(round int) string {
	return fmt.Sprintf(steadySettings, s.ledger.url, s.store, round)
}

func (s *steady) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// know changes the record of a call.
func (s *steady) know(n int, note func(b *brief)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[n] == nil {
		s.calls[n] = new(brief)
	}
	note(s.calls[n])
}

// A fickle upstream is a ledger that sometimes fails. It also answers the calls of the load
// generator, without failures.
type fickle struct {
	ledger, echo http.Handler
	mood         atomic.Int32
}

// The moods of a fickle upstream.
const (
	wellBehaved int32 = iota
	unavailable       // runs nothing
	mute              // runs calls, and closes the connection before the answer
	moods
)

// ServeHTTP implements [http.Handler].
func (f *fickle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	switch mood := f.mood.Load(); {
	case bytes.Contains(data, []byte(`"name":"echo_`)):
		f.echo.ServeHTTP(w, r)
	case mood == unavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
	case mood == mute:
		f.ledger.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default:
		f.ledger.ServeHTTP(w, r)
	}
}

// trouble makes the upstream fail for a moment.
func (s *steady) trouble(pause pause, dice *rand.Rand) {
	pause(dice, 800, 2000)
	s.up.mood.Store(wellBehaved + 1 + dice.Int32N(moods-1))
	pause(dice, 50, 300)
	s.up.mood.Store(wellBehaved)
	s.count("failures of the upstream")
}

// reload changes the configuration. Sometimes the new one is invalid, and changes nothing.
func (s *steady) reload(pause pause, dice *rand.Rand) {
	pause(dice, 700, 1500)
	text := s.settings(1 + dice.IntN(1000))
	if dice.IntN(4) == 0 {
		text = "rules: [{match: '*', action: forward}\n" // invalid YAML, which must not disable the policy
	}
	if err := writeFile(s.file, text); err != nil {
		s.t.Error(err)
	}
	s.count("reloads")
}

// writeFile replaces a file atomically.
func writeFile(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// asTask makes a call as a task, and sometimes decides on it or cancels it.
func (s *steady) asTask(p *party, n int, dice *rand.Rand) {
	as := howToAnswer(dice)
	id := p.ask(s.gate, "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d,"as":%q},"task":{}}`, n, as)).after(`"taskId":"`)
	if id == "" {
		return
	}
	s.know(n, func(*brief) {})
	switch dice.IntN(8) {
	case 0: // no decision, so it expires
	case 1:
		p.decide(s.gate, id, "reject")
	case 2:
		p.about(s.gate, "tasks/cancel", id)
	default:
		s.know(n, func(b *brief) { b.approval = true })
		p.decide(s.gate, id, "approve")
		s.received(p.about(s.gate, "tasks/result", id), n, as)
	}
}

// received records that a client has an answer. The result of another call is an error.
func (s *steady) received(a answer, n int, as string) {
	switch {
	case a.has(outcome(n, as) + `"`):
		s.know(n, func(b *brief) { b.answered = true })
		s.count("held calls answered")
	case a.has("outcome of"):
		s.t.Errorf("call %d got the outcome of another: %.300s", n, a.body)
	default:
		s.count("held calls that failed, expired or were rejected")
	}
}

// waits makes a call, and waits for the answer in the request.
func (s *steady) waits(p *party, n int) {
	s.know(n, func(*brief) {})
	s.received(p.ask(s.gate, "tools/call", fmt.Sprintf(`{"name":"hold_y","arguments":{"n":%d,"as":"slow"}}`, n)), n, "slow")
}

// approves decides on the calls that wait in requests.
func (s *steady) approves(p *party, pause pause, dice *rand.Rand) {
	pause(dice, 10, 30)
	var inbox struct {
		Approvals []struct {
			ID        string         `json:"id"`
			Tool      string         `json:"tool"`
			Arguments jsontext.Value `json:"arguments"`
		} `json:"approvals"`
	}
	if err := json.Unmarshal([]byte(p.inbox(s.gate).body), &inbox); err != nil {
		return
	}
	for _, a := range inbox.Approvals {
		switch n := numberOf(string(a.Arguments)); {
		case a.Tool != "hold_y":
		case dice.IntN(8) == 0:
			p.decide(s.gate, a.ID, "reject")
		default:
			s.know(n, func(b *brief) { b.approval = true })
			p.decide(s.gate, a.ID, "approve")
		}
	}
}

// dawdle reads a large answer slowly, or disconnects in the middle.
func (s *steady) dawdle(p *party, pause pause, n int, dice *rand.Rand) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"free_x","arguments":{"n":%d,"as":"large"}}}`, n)
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.agents+"/mcp", &slow{text: []byte(body), pause: pause, dice: dice})
	if err != nil {
		s.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", p.session)
	resp, err := p.client.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	whole := new(strings.Builder)
	for dice.IntN(40) != 0 {
		if _, err := io.CopyN(whole, resp.Body, 16<<10); err != nil {
			s.count("answers read slowly")
			return
		}
		pause(dice, 5, 20)
	}
	s.count("answers left in the middle")
}

// A slow body is sent a few bytes at a time.
type slow struct {
	text  []byte
	pause pause
	dice  *rand.Rand
}

// Read implements [io.Reader].
func (s *slow) Read(p []byte) (int, error) {
	if len(s.text) == 0 {
		return 0, io.EOF
	}
	s.pause(s.dice, 1, 5)
	n := copy(p, s.text[:min(16, len(s.text))])
	s.text = s.text[n:]
	return n, nil
}

// kept compares the records of a steady gate with the ledger.
func (s *steady) kept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, b := range s.calls {
		switch ran := s.ledger.ran(n); {
		case ran > 1:
			s.t.Errorf("call %d ran %d times", n, ran)
		case ran == 1 && !b.approval:
			s.t.Errorf("call %d ran without an approval", n)
		case ran == 0 && b.answered:
			s.t.Errorf("call %d did not run, and its client has an outcome", n)
		}
	}
	s.t.Logf("the steady gate: %d held calls, %v", len(s.calls), s.counts)
}

// pause waits for some milliseconds, or until the test ends.
type pause func(dice *rand.Rand, least, most int)

// briefly returns a timeout for clients of a steady gate that is longer than the lifetime of
// its calls.
const briefly = 30 * time.Second
