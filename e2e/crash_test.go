package e2e_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

var crashTime = flag.Duration("crash", 8*time.Second, "how long TestKilled kills")

// A victim is a gate in a process of its own that is killed again and again.
type victim struct {
	t    *testing.T
	args []string

	mu                sync.Mutex
	cmd               *exec.Cmd
	agents, operators string
}

var listening = regexp.MustCompile(`"msg":"listening","agents":"([^"]+)","operators":"([^"]+)"`)

// start starts the gate and waits until it listens.
func (v *victim) start() {
	v.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(v.t.Context()), v.args[0], v.args[1:]...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			v.mu.Lock()
			v.cmd, v.agents, v.operators = cmd, m[1], m[2]
			v.mu.Unlock()
			go io.Copy(io.Discard, stderr) // ends with the process
			return
		}
	}
	v.t.Fatalf("the gate did not start: %v", cmd.Wait())
}

// kill ends the gate as a crash would.
func (v *victim) kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

func (v *victim) addresses() (agents, operators string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.agents, v.operators
}

// A witness knows what was acknowledged, what anybody tried to approve, and
// what ran.
type witness struct {
	mu           sync.Mutex
	acknowledged map[int]string // task by number of the call
	approved     map[int]bool   // somebody tried, whatever came of it
	ran          map[int]int
}

var number = regexp.MustCompile(`"n":(\d+)`)

// ServeHTTP is the upstream: it notes what it runs before it answers.
func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var n int
	if m := number.FindSubmatch(body); m != nil {
		fmt.Sscan(string(m[1]), &n)
	}
	w.mu.Lock()
	w.ran[n]++
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"done"}]}}`, n)
}

// A driver is an agent and an approver who do not mind that things break.
type driver struct {
	*victim
	*witness

	client *http.Client
}

// call posts a message; an empty answer means that there was none.
func (d *driver) post(url, auth, message string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		d.t.Error(err)
		return ""
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	r.Header.Set("Authorization", auth)
	resp, err := d.client.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

func (d *driver) ask(n int, method, params string) string {
	agents, _ := d.addresses()
	return d.post("http://"+agents+"/mcp", "", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, n, method, params))
}

// live makes one call, and sees to some part of what should become of it.
func (d *driver) live(n int) {
	answer := d.ask(n, "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d},"task":{}}`, n))
	_, rest, ok := strings.Cut(answer, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !ok {
		return
	}
	d.witness.mu.Lock()
	d.acknowledged[n] = id
	d.approved[n] = rand.IntN(3) > 0
	approve := d.approved[n]
	d.witness.mu.Unlock()
	if approve {
		_, operators := d.addresses()
		d.post("http://"+operators+"/api/approvals/"+id+"/approve", "Bearer secret", `{}`)
	}
	for range rand.IntN(3) {
		d.ask(n, "tasks/get", `{"taskId":"`+id+`"}`)
	}
}

// TestKilled kills the gate at random moments while calls are held, decided,
// polled and run. In the end the ledger of the upstream and the tasks agree: no
// call ran twice, none ran that nobody approved, and none that was acknowledged
// is missing.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "thoughtgate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/thoughtgate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w := &witness{acknowledged: map[int]string{}, approved: map[int]bool{}, ran: map[int]int{}}
	up := httptest.NewServer(w)
	t.Cleanup(up.Close)
	file := filepath.Join(dir, "thoughtgate.yaml")
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: secret}\nupstreams: [{url: " + up.URL + "}]\n" +
		"store: 'sqlite:" + filepath.Join(dir, "gate.db") + "'\ntasks: {max_pending_per_owner: 100000, max_pending: 100000}\n" +
		"rules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &driver{victim: &victim{t: t, args: []string{binary, "serve", "-c", file}}, witness: w, client: newHTTPClient(t)}
	d.start()

	kills := d.rampage(*crashTime)

	d.settle()
	d.kill()
	t.Logf("%d kills, %d calls acknowledged, %d ran", kills, len(w.acknowledged), len(w.ran))
	if kills < 3 || len(w.acknowledged) < 20 || len(w.ran) < 5 {
		t.Error("too little happened to prove anything")
	}
}

// rampage lets agents live while the gate dies.
func (d *driver) rampage(how time.Duration) (kills int) {
	over := make(chan struct{})
	var agents sync.WaitGroup
	for lane := range 4 {
		agents.Go(func() {
			for n := lane; ; n += 4 {
				select {
				case <-over:
					return
				default:
					d.live(n + 1)
				}
			}
		})
	}
	end := time.After(how)
	for {
		select {
		case <-end:
			close(over)
			agents.Wait()
			return kills
		case <-time.After(time.Duration(100+rand.IntN(300)) * time.Millisecond):
			d.kill()
			d.start()
			kills++
		}
	}
}

// settle asks for every task that was acknowledged until it stands still, and
// compares it with what ran.
func (d *driver) settle() {
	for n, id := range d.acknowledged {
		status := ""
		eventually(d.t, func() bool {
			answer := d.ask(n, "tasks/get", `{"taskId":"`+id+`"}`)
			_, rest, _ := strings.Cut(answer, `"status":"`)
			status, _, _ = strings.Cut(rest, `"`)
			if strings.Contains(answer, "task_not_found") {
				d.t.Fatalf("call %d was acknowledged as %s and is lost: %s", n, id, answer)
			}
			waiting := strings.Contains(answer, `"server.approval":{"state":"pending"`)
			return status == "completed" || status == "failed" || status == "working" && waiting
		})
		ran := d.ran[n]
		if status == "completed" && ran != 1 || status == "working" && ran != 0 {
			d.t.Errorf("call %d is %s and ran %d times", n, status, ran)
		}
	}
	for n, times := range d.ran {
		if times > 1 || !d.approved[n] {
			d.t.Errorf("call %d ran %d times; approved: %v", n, times, d.approved[n])
		}
	}
}
