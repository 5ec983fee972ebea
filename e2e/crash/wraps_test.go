package crash_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// serverVariable is the variable with the URL of the ledger, for the server behind a wrap,
// which is this test program.
const serverVariable = "CRASH_LEDGER"

// serveLedger is an MCP server over standard input and output that forwards calls to the
// ledger. It writes its process id to a file, so that tests can kill it.
func serveLedger(url string) {
	_ = os.WriteFile(os.Getenv(serverVariable+"_PID"), []byte(strconv.Itoa(os.Getpid())), 0o600)
	var writing sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		if strings.Contains(text, `"initialize"`) {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"ledger","version":"1"}}}`+"\n", requestID.FindStringSubmatch(text)[1])
			continue
		}
		if requestID.FindString(text) == "" {
			continue
		}
		go func() {
			resp, err := http.Post(url, "application/json", strings.NewReader(text))
			if err != nil {
				return
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err != nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			fmt.Printf("%s\n", answer)
		}()
	}
}

// A host is an agent that starts a wrap, and starts it again after it has ended.
type host struct {
	s     *story
	name  string
	state string
	pid   string // the file with the process id of the server

	mu      sync.Mutex
	cmd     *exec.Cmd
	in      io.WriteCloser
	next    int
	waiting map[int]chan answer
	log     *journal
	ended   chan struct{} // closed when the wrap has ended
}

// wrapConfig is the configuration of all wraps. The test that starts them also approves.
const wrapConfig = `
version: 1
tasks: {max_pending_per_owner: 100000, max_pending: 100000, cleanup_interval: 500ms}
execution: {lease: 5s}
rules: [{match: 'hold_*', action: approve}]
default: deny
workflows: {default: {agent_approval: true}}
`

// start starts the wrap and begins a session.
func (h *host) start() {
	self, err := os.Executable()
	if err != nil {
		h.s.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(h.s.t.Context()), binary, "wrap", "-c", filepath.Join(h.state, "wrap.yaml"), "--name", h.name, "--", self)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+h.state, serverVariable+"="+h.s.ledger.url, serverVariable+"_PID="+h.pid)
	in, err := cmd.StdinPipe()
	if err != nil {
		h.s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.s.t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		h.s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.s.t.Fatal(err)
	}
	ended := make(chan struct{})
	h.mu.Lock()
	h.cmd, h.in, h.waiting, h.ended = cmd, in, make(map[int]chan answer), ended
	h.mu.Unlock()
	var reading sync.WaitGroup
	reading.Go(func() { h.read(out) })
	reading.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			h.log.note(lines.Text())
		}
	})
	go func() {
		reading.Wait()
		_ = cmd.Wait()
		close(ended)
	}()
	h.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}`, patience)
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintln(h.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// read handles the messages of the wrap.
func (h *host) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		text := lines.Text()
		if strings.Contains(text, `"method":`) {
			continue
		}
		m := requestID.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		id, _ := strconv.Atoi(m[1])
		h.mu.Lock()
		if wait := h.waiting[id]; wait != nil {
			wait <- answer{200, text}
			delete(h.waiting, id)
		}
		h.mu.Unlock()
	}
}

// ask sends a request to the wrap. The answer is empty if the wrap ends first.
func (h *host) ask(method, params string, limit time.Duration) answer {
	h.mu.Lock()
	h.next++
	id, wait, ended := h.next, make(chan answer, 1), h.ended
	h.waiting[id] = wait
	_, err := fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`+"\n", id, method, params)
	h.mu.Unlock()
	if err != nil {
		return answer{}
	}
	select {
	case got := <-wait:
		return got
	case <-ended:
	case <-time.After(limit):
	}
	return answer{}
}

// revive starts the wrap again if it has ended.
func (h *host) revive() {
	select {
	case <-h.ended:
		h.start()
	default:
	}
}

// kill kills the wrap or its server, or closes the pipe like an agent that ends.
func (h *host) kill(dice *rand.Rand) (what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch dice.IntN(4) {
	case 0:
		_ = h.in.Close()
		return "agent left"
	case 1, 2:
		text, err := os.ReadFile(h.pid)
		pid, _ := strconv.Atoi(string(text))
		if err == nil && pid > 0 {
			if process, err := os.FindProcess(pid); err == nil {
				_ = process.Kill()
			}
		}
		return "server killed"
	default:
		_ = h.cmd.Process.Kill()
		return "wrap killed"
	}
}

// live makes calls and follows them, until over is closed.
func (h *host) live(worker int, over <-chan struct{}, dice *rand.Rand) {
	for n := worker * 100_000; ; n++ {
		select {
		case <-over:
			return
		default:
		}
		h.revive()
		as := howToAnswer(dice)
		made := h.ask("tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d,"as":"%s"},"task":{}}`, n, as), patience)
		id := made.after(`"taskId":"`)
		if id == "" {
			continue // its outcome is unknown
		}
		h.s.know(id, func(c *call) { c.n, c.as, c.session = n, as, h.name })
		for range 1 + dice.IntN(5) {
			h.revive()
			if h.ask("tasks/get", `{"taskId":"`+id+`"}`, patience).after(`"status":"`) == "completed" {
				h.s.acknowledged(id, task.Completed)
				break
			}
		}
	}
}

// finish waits until a task is pending or has ended, and checks the answer of a completed one.
func (h *host) finish(id string, c *call) {
	var last answer
	eventually(h.s.t, func() bool {
		h.revive()
		last = h.ask("tasks/get", `{"taskId":"`+id+`"}`, 20*time.Second)
		status := last.after(`"status":"`)
		return status == "completed" || status == "failed" || status == "cancelled"
	})
	if last.after(`"status":"`) != "completed" {
		return
	}
	var got answer
	eventually(h.s.t, func() bool { // the store may be slow for a moment
		got = h.ask("tasks/result", `{"taskId":"`+id+`"}`, patience)
		return !got.has("store_unavailable")
	})
	if !got.has(outcome(c.n, c.as) + `"`) {
		h.s.t.Errorf("call %d: the result of %s is not its own: %.300s", c.n, id, got.body)
	}
}

// approver approves all pending calls at the desk, until over is closed.
func (s *story) approver(address string, over <-chan struct{}) {
	p := newParty(s.t, "").within(20 * time.Second)
	at := &gate{operators: address}
	for {
		select {
		case <-over:
			return
		case <-time.After(10 * time.Millisecond): // a person needs a moment
		}
		var inbox struct {
			Approvals []struct {
				ID        string         `json:"id"`
				Arguments jsontext.Value `json:"arguments"`
			} `json:"approvals"`
		}
		if err := json.Unmarshal([]byte(p.inbox(at).body), &inbox); err != nil {
			continue // another process takes the inbox over
		}
		for _, a := range inbox.Approvals {
			s.know(a.ID, func(c *call) { c.n, c.approval = numberOf(string(a.Arguments)), true })
			if p.decide(at, a.ID, "approve").status == 200 {
				s.acknowledged(a.ID, task.Approved)
			}
		}
	}
}

// TestWrapsKilled kills agents, wraps, their servers and the desk of one user at random
// moments. No call runs twice or without an approval, and all acknowledged changes are kept.
func TestWrapsKilled(t *testing.T) {
	t.Parallel()
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat: go test ./e2e/crash -run TestWrapsKilled -seed %d -crash %v", seed, *crashTime)
	state := t.TempDir()
	dir := filepath.Join(state, "thoughtgate", "desk")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(dir, "sign-in"): token, filepath.Join(state, "wrap.yaml"): wrapConfig} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, ledger: newLedger(t), open: func() (gatestore.Store, error) {
		return sqlitestore.Open(t.Context(), sqlitestore.Options{File: filepath.Join(dir, "store.db")})
	}}
	s := &story{world: w, store: "Wraps", seed: seed, calls: make(map[string]*call), troubles: make(map[string]int)}
	var hosts []*host
	for i := range 3 {
		h := &host{s: s, name: fmt.Sprintf("server-%d", i), state: state, pid: filepath.Join(state, fmt.Sprintf("pid-%d", i)), log: new(journal)}
		h.start()
		hosts = append(hosts, h)
	}
	t.Cleanup(func() {
		for _, h := range hosts {
			_ = h.cmd.Process.Kill()
			<-h.ended
			if t.Failed() {
				t.Logf("the end of the log of a wrap:\n%s", h.log)
			}
		}
	})
	s.torment(hosts, startDeskAlone(t, state))
	for _, h := range hosts {
		_ = h.in.Close()
		<-h.ended
	}
	s.audit(s.stored())
	if len(w.ledger.runs) == 0 {
		t.Error("no call ran")
	}
}

// torment runs hosts while processes are killed, and waits until every acknowledged task is
// pending or has ended.
func (s *story) torment(hosts []*host, desk *lonelyDesk) {
	address := desk.address(s.t)
	over, decided := make(chan struct{}), make(chan struct{})
	var living, deciding sync.WaitGroup
	for i, h := range hosts {
		living.Go(func() { h.live(i+1, over, s.dice(uint64(i))) })
	}
	deciding.Go(func() { s.approver(address, decided) })
	dice := s.dice(99)
	for end := time.Now().Add(*crashTime); time.Now().Before(end); {
		<-time.After(time.Duration(50+dice.IntN(400)) * time.Millisecond)
		if dice.IntN(6) == 0 {
			desk.kill()
			desk.start(s.t)
			s.suffered("desk killed")
			continue
		}
		s.suffered(hosts[dice.IntN(len(hosts))].kill(dice))
	}
	close(over)
	living.Wait()
	var finishing sync.WaitGroup
	for _, h := range hosts {
		finishing.Go(func() {
			for id, c := range s.callsOf(h.name) {
				h.finish(id, c)
			}
		})
	}
	finishing.Wait()
	close(decided)
	deciding.Wait()
	desk.kill()
}

// callsOf returns the acknowledged calls of a host.
func (s *story) callsOf(name string) map[string]*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]*call)
	for id, c := range s.calls {
		if c.session == name {
			found[id] = c
		}
	}
	return found
}

// A lonelyDesk is a process that serves only the inbox.
type lonelyDesk struct {
	state string
	cmd   *exec.Cmd
}

func startDeskAlone(t *testing.T, state string) *lonelyDesk {
	t.Helper()
	d := &lonelyDesk{state: state}
	d.start(t)
	t.Cleanup(d.kill)
	return d
}

func (d *lonelyDesk) start(t *testing.T) {
	t.Helper()
	d.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), binary, "desk")
	d.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+d.state)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (d *lonelyDesk) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// address returns the URL of the inbox.
func (d *lonelyDesk) address(t *testing.T) string {
	t.Helper()
	var found string
	eventually(t, func() bool {
		cmd := exec.CommandContext(t.Context(), binary, "desk", "link")
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+d.state)
		out, err := cmd.Output()
		_, rest, _ := strings.Cut(string(out), "http://")
		found, _, _ = strings.Cut(rest, "/")
		return err == nil && found != ""
	})
	return found
}
