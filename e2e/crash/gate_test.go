// Package crash_test shows that nothing is lost and nothing runs twice when gates are killed,
// databases crash, or the network between them fails.
//
// Gates and databases are separate processes. Each gate reaches its database through a proxy
// that can fail. The upstream keeps a ledger of the calls that it ran. At the end, the trails
// of the tasks must agree with the ledger.
package crash_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binary is the tested program.
var binary string

func TestMain(m *testing.M) {
	if url := os.Getenv(serverVariable); url != "" {
		serveLedger(url)
		return
	}
	if os.Getenv(libraryAddress) != "" {
		if err := serveLibrary(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "crash")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "thoughtgate")
		if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/thoughtgate").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		code := m.Run()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// patience limits every wait in a test.
const patience = 2 * time.Minute

// token is the token of the operators.
const token = "secret-of-the-operators"

// withStore returns the settings of a gate with a shared store and its own operators'
// listener.
func withStore(store string) string {
	return fmt.Sprintf("store: '%s'\noperators: {listen: 127.0.0.1:0, token: %s}", store, token)
}

// settings are the common settings of all gates in these tests.
const settings = `
version: 1
listen: 127.0.0.1:0
upstreams: [{name: default, url: %s, path: /mcp}, {name: other, url: '%[1]s'}]
endpoints: [{path: /several, servers: [{upstream: other, prefix: other}, {upstream: default, prefix: ''}]}]
%s
tasks: {max_pending_per_owner: 100000, max_pending: 100000, cleanup_interval: 500ms}
execution: {lease: %v}
rules: [{match: 'hold_*', action: approve}, {match: 'free_*', action: forward}]
default: deny
`

// lease is how long an executor may run without renewing its lease.
const lease = 5 * time.Second

// A gate is a gate process that tests can kill.
type gate struct {
	t    *testing.T
	file string // the configuration file

	mu                sync.Mutex
	cmd               *exec.Cmd
	agents, operators string
	log               *journal
}

// A journal keeps the last lines of a gate's log.
type journal struct {
	mu     sync.Mutex
	lines  []string
	serves bool // the gate has logged that it serves the inbox of a desk
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if strings.Contains(line, `"this process serves the inbox"`) {
		j.serves = true
	}
	if j.lines = append(j.lines, line); len(j.lines) > 30 {
		j.lines = j.lines[1:]
	}
}

func (j *journal) ended() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.serves = false
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// startGate starts a gate that runs until the test ends. The argument rest has the settings of
// the store and the operators.
func startGate(t *testing.T, upstream, rest string) *gate {
	t.Helper()
	return launch(t, fmt.Sprintf(settings, upstream, rest, lease))
}

// launch starts a gate with a configuration.
func launch(t *testing.T, config string) *gate {
	t.Helper()
	file := filepath.Join(t.TempDir(), "thoughtgate.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, file: file, log: new(journal)}
	g.start()
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("the end of the log of a gate:\n%s", g.log)
		}
	})
	return g
}

// start starts the gate and waits until it listens. It tries again while the store is not
// available.
func (g *gate) start() {
	g.t.Helper()
	eventually(g.t, g.attempt)
}

var listening = regexp.MustCompile(`"msg":"listening","agents":"([^"]+)","operators":"([^"]+)"`)

func (g *gate) attempt() bool {
	cmd := exec.CommandContext(context.WithoutCancel(g.t.Context()), binary, "serve", "-c", g.file)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		g.log.note(lines.Text())
		m := listening.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		g.mu.Lock()
		g.cmd, g.agents, g.operators = cmd, m[1], m[2]
		g.mu.Unlock()
		go func() { // ends with the process
			for lines.Scan() {
				g.log.note(lines.Text())
			}
		}()
		return true
	}
	_ = cmd.Wait()
	return false
}

// kill ends the gate as a crash does.
func (g *gate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	g.log.ended()
}

// An answer is an HTTP response of a gate. Its status is zero if the gate did not answer.
type answer struct {
	status int
	body   string
}

func (a answer) has(text string) bool { return strings.Contains(a.body, text) }

// after returns the text after a prefix, up to the next quotation mark.
func (a answer) after(text string) string {
	_, rest, _ := strings.Cut(a.body, text)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// A party sends requests to gates over its own connections.
type party struct {
	client  *http.Client
	session string
	key     string        // its credential for the upstream; may be empty
	user    string        // its identity, where gates require one
	limit   time.Duration // how long it waits for an answer
	began   chan struct{} // closed when its answer begins, if it is not nil
	modern  bool          // it speaks 2026-07-28 to the agents' side
	several bool          // it uses the endpoint of several servers, with tasks, and is modern
}

// ofSeveral is the session of a party that uses the endpoint of several servers, which has no sessions.
const ofSeveral = "several"

func newParty(t *testing.T, session string) *party {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	several := session == ofSeveral
	return &party{client: &http.Client{Transport: transport}, session: session, limit: patience, modern: several, several: several}
}

// within returns a copy of the party with a shorter timeout.
func (p party) within(limit time.Duration) *party {
	p.limit = limit
	return &p
}

// ask sends a request to a gate's listener for agents.
func (p *party) ask(g *gate, method, params string) answer {
	g.mu.Lock()
	url, capable := "http://"+g.agents+"/mcp", ""
	if p.several {
		url, capable = "http://"+g.agents+"/several", `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	}
	g.mu.Unlock()
	if p.modern {
		params = strings.TrimSuffix(params, "}") + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{` + capable + `}}}`
	}
	return p.post(url, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
}

// about makes a request about a task.
func (p *party) about(g *gate, method, id string) answer {
	return p.ask(g, method, `{"taskId":"`+id+`"}`)
}

// decide approves or rejects a held call.
func (p *party) decide(g *gate, id, decision string) answer {
	g.mu.Lock()
	url := "http://" + g.operators + "/api/approvals/" + id
	g.mu.Unlock()
	seen := p.send(http.MethodGet, url, "")
	return p.post(url+"/"+decision, `{"shownDigest":"`+seen.after(`"shownDigest":"`)+`"}`)
}

// inbox requests the list of pending calls.
func (p *party) inbox(g *gate) answer {
	g.mu.Lock()
	url := "http://" + g.operators + "/api/approvals"
	g.mu.Unlock()
	return p.send(http.MethodGet, url, "")
}

// ready requests whether a gate can use its store.
func (p *party) ready(g *gate) answer {
	g.mu.Lock()
	url := "http://" + g.operators + "/readyz?require=store"
	g.mu.Unlock()
	return p.send(http.MethodGet, url, "")
}

func (p *party) post(url, body string) answer { return p.send(http.MethodPost, url, body) }

func (p *party) send(method, url, body string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if p.modern {
		call := answer{body: body}
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", call.after(`"method":"`))
		r.Header.Set("Mcp-Name", cmp.Or(call.after(`"name":"`), call.after(`"taskId":"`)))
	} else {
		r.Header.Set("Mcp-Session-Id", p.session)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for name, value := range map[string]string{"X-Api-Key": p.key, "X-User": p.user} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	if p.began != nil {
		close(p.began)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}
	}
	return answer{resp.StatusCode, string(data)}
}

// eventually waits until condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timed out")
		}
	}
}
