package explore

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// replays are the calls that also fail in real processes. Each is the first call of a gate
// whose name has this prefix.
var replays = []struct {
	scenario, call string
	fault          fault
}{
	{"expired", "A store.Create input_required", fail}, // the slowest replay
	{"held-task", "A store.Create input_required", dieAfter},
	{"held-task", "B store.Swap approved decided", lost},
	{"held-task", "A store.Swap executing", die},
	{"held-task", "A store.Swap executing", dieAfter},
	{"held-task", "A upstream.tools/call", dieAfter},
	{"held-task", "A upstream.tools/call", overdue},
	{"held-task", "A store.Swap completed finished", lost},
	{"held-request", "A store.Watch (approval.(*waiter).await)", deaf},
	{"held-request", "B store.Swap approved decided", overdue},
	{"held-request", "A store.Swap executing", late},
	{"held-request", "A upstream.tools/call", lost},
	{"held-request", "A store.Swap completed delivered", fail},
	{"modern-task", "A client.Write", lost},
	{"modern-task", "A store.Swap executing", fail},
	{"modern-task", "A upstream.tools/call", late},
	{"rejected", "B store.Swap rejected decided", dieAfter},
	{"rejected-held", "B store.Swap rejected decided", between},
	{"standing", "B store.PutRecord grant", die},
	{"standing", "A store.PutRecord grant", lost},
	{"nested-legacy", "A store.Swap executing (", die},
	{"nested-modern", "A upstream.tasks/get", die},
	{"large-answer", "A store.WriteChunk", dieAfter},
	{"attach", "A client.Write", lost},
	{"withdrawn", "A store.Swap cancelled", lost},
	{"tool-changed", "B store.Swap approved decided", dieAfter},
}

// TestRealGatesBehaveAsSimulated makes real gates on real stores fail like the simulation did, and compares the
// outcome of the call. With -name, it replays only that run.
func TestRealGatesBehaveAsSimulated(t *testing.T) {
	if !testenv.Complete() && *oneName == "" {
		t.Skip("make test-all replays faults with real gates")
	}
	binary := filepath.Join(t.TempDir(), "thoughtgate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "failpoints", "-o", binary, "../../cmd/thoughtgate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, 4*runtime.GOMAXPROCS(0)) // they mostly wait
	stores := map[string]backend{"SQLite": inSQLite}
	server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if testenv.Available(t, err) {
		t.Cleanup(func() { _ = server.Stop() })
		stores["PostgreSQL"] = func(t *testing.T) (string, func() (gatestore.Store, error)) { return inPostgres(t, server) }
	}
	for _, s := range predictions(t) {
		if len(s.predicted.wrong) > 0 {
			explain(t, s.plan, s.predicted)
			continue
		}
		for name, open := range stores {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(name+"/"+s.plan.name(), func(t *testing.T) { replay(t, s, binary, open) })
			})
		}
	}
}

// A simulation is a run with one fault.
type simulation struct {
	plan      plan
	failing   point // the call with the fault
	predicted record
}

// predictions returns all runs that are replayed.
func predictions(t *testing.T) []simulation {
	t.Helper()
	if *oneName != "" {
		p, err := parsePlan(*oneName)
		if err != nil || len(p.faults) != 1 || len(p.switches) > 0 || scenarios[p.scenario].settings != (settings{}) {
			t.Fatalf("%s is not the name of a run with one fault and usual settings: %v", *oneName, err)
		}
		n := sortedKeys(p.faults)[0]
		if slices.Contains([]fault{freeze, cut, cutAfter}, p.faults[n]) {
			t.Fatalf("real gates cannot have a call end with %s", p.faults[n])
		}
		r := play(t, p)
		return []simulation{{p, r.points[n-1], r}}
	}
	var list []simulation
	for _, r := range replays {
		s, ok := simulate(t, r.scenario, r.call, r.fault)
		if !ok {
			t.Errorf("%s has no call %q", r.scenario, r.call)
			continue
		}
		list = append(list, s)
	}
	return list
}

// simulate executes a run in which a call fails. The time of housekeeping varies between runs,
// so a number may mean another call in some of them.
func simulate(t *testing.T, scenario, call string, f fault) (simulation, bool) {
	t.Helper()
	for range 20 {
		isCall := func(p point) bool { return strings.HasPrefix(p.name(), call) }
		n := slices.IndexFunc(play(t, plan{scenario: scenario}).points, isCall)
		if n < 0 {
			break
		}
		p := plan{scenario: scenario, faults: map[int]fault{n + 1: f}}
		if r := play(t, p); isCall(r.points[n]) {
			return simulation{p, r.points[n], r}, true
		}
	}
	return simulation{}, false
}

// name returns the gate and the name of a call.
func (p point) name() string { return strings.TrimSpace(p.gate + " " + p.op + " " + p.about) }

// pace is the speed of real gates relative to simulated ones.
const pace = 10

// settingsOfReal are the settings of the real gates: the times of the simulation divided by
// pace.
var settingsOfReal = fmt.Sprintf(`
version: 1
listen: 127.0.0.1:0
storage: {timeout: 1m, connections: 2}
waiting: {hold: %v}
workflows: {default: {timeout: %v, grants: {longest: 1h, uses: 10}}}
limits: {call_timeout: %v}
execution: {lease: %v}
tasks: {default_ttl: %v, cleanup_interval: %v, min_poll_interval: 100ms, max_poll_interval: 500ms}
rules: [{match: 'hold_*', action: approve}]
default: forward
`, holding/pace, patience/pace, execution/pace, lease/pace, retrieval/pace, 20*time.Second/pace)

// A backend creates an empty store. It returns the settings of gates that use the store, and a
// function that opens the store.
type backend func(t *testing.T) (settings string, open func() (gatestore.Store, error))

const operatorToken = "secret-of-the-operators"

// inSQLite has the gates of one user share a file.
func inSQLite(t *testing.T) (string, func() (gatestore.Store, error)) {
	t.Helper()
	state := t.TempDir()
	dir := filepath.Join(state, "desk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sign-in"), []byte(operatorToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return "store: 'desk:'\nstate_dir: " + state, func() (gatestore.Store, error) {
		return sqlitestore.Open(t.Context(), sqlitestore.Options{File: filepath.Join(dir, "store.db"), Shared: true})
	}
}

func inPostgres(t *testing.T, server *testenv.Postgres) (string, func() (gatestore.Store, error)) {
	t.Helper()
	url := server.Schema(t)
	return fmt.Sprintf("store: '%s'\noperators: {listen: 127.0.0.1:0, token: %s}", url, operatorToken), func() (gatestore.Store, error) {
		return pgstore.Open(t.Context(), pgstore.Options{URL: url, MaxConns: 2})
	}
}

// replay executes the run of a simulation with real gates.
func replay(t *testing.T, s simulation, binary string, begin backend) {
	predicted, failing := s.predicted, &failure{point: s.failing}
	w := emptyWorld(t, s.plan)
	w.pace = pace
	w.outcomes.excuse = predicted.excuse
	settings, open := begin(t)
	for i, name := range []string{"A", "B"} {
		w.gates[i] = newRealGate(w, name, binary, settings, failing)
	}
	t.Cleanup(func() {
		w.stop()
		for _, g := range w.gates {
			g.(*realGate).end()
		}
		w.actors.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.Failed() {
			t.Logf("%s: %s\n%s\n\nThe simulation:\n%s", s.plan.name(), s.failing.name(), strings.Join(w.story, "\n"), strings.Join(predicted.story, "\n"))
		}
	})
	for _, g := range slices.Backward(w.gates[:]) { // B serves the inbox if they share one
		g.(*realGate).launch(failing.environment(g.String()))
	}
	store, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w.store = store
	scenarios[s.plan.scenario].begin(w)
	eventually(t, func() bool { return w.idle() && w.settled() })
	w.outcomes.onlyCall("a")
	t.Logf("%s: %q, %d runs, %q", s.failing.name(), w.outcomes.fates, len(w.server.runs()), w.ends())
	for _, what := range w.outcomes.check() {
		t.Error(what)
	}
	if !failing.reached() {
		t.Error("the gate did not make the call that should fail")
	}
	if got := w.outcomes.fates; !maps.Equal(got, predicted.fates) {
		t.Errorf("agents know %q; the simulation says %q", got, predicted.fates)
	}
	if got := len(w.server.runs()); got != predicted.runs {
		t.Errorf("the upstream ran %d calls; the simulation says %d", got, predicted.runs)
	}
	if got := w.ends(); !slices.Equal(got, predicted.ends) {
		t.Errorf("the tasks are %q; the simulation says %q", got, predicted.ends)
	}
}

// onlyCall records that every task has the same call.
func (o *outcomes) onlyCall(arg string) {
	page, err := o.w.store.List(o.w.ctx, task.Query{Scope: task.AnyOwner(), Limit: 100})
	if err != nil {
		o.w.t.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.args = map[task.ID][]string{}
	for _, t := range page.Tasks {
		o.args[t.ID] = []string{arg}
	}
}

// settled reports whether every task has ended.
func (w *world) settled() bool {
	page, err := w.store.List(w.ctx, task.Query{Scope: task.AnyOwner(), Limit: 100})
	return err == nil && !slices.ContainsFunc(page.Tasks, func(t task.Task) bool { return !t.State.Terminal() })
}

// A failure is the call that fails in a replay.
type failure struct {
	point point

	mu   sync.Mutex
	seen int
	done bool
}

// environment returns the fault for the failpoints of a gate.
func (f *failure) environment(gate string) string {
	if f.point.gate != gate || !strings.HasPrefix(f.point.op, "store.") {
		return ""
	}
	delay := map[fault]time.Duration{late: lateness, overdue: overdueness, between: 10 * time.Second}[f.point.fault] / pace
	return fmt.Sprintf("%s %v %d %s %s", f.point.fault, delay, f.point.number, f.point.op, f.point.about)
}

// at returns the fault of a call that is not to the store.
func (f *failure) at(gate, op string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.point.gate != gate || f.point.op != op {
		return none
	}
	if f.seen++; f.seen != f.point.number {
		return none
	}
	f.done = true
	return f.point.fault
}

func (f *failure) note() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
}

func (f *failure) reached() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// A realGate is a gate in a separate process. It starts again when it dies.
type realGate struct {
	w            *world
	name         string
	binary, file string
	failing      *failure
	http         *http.Client
	running      sync.WaitGroup

	mu                sync.Mutex
	cmd               *exec.Cmd
	agents, operators string
	up                bool
}

// newRealGate returns a gate that is not started yet, and starts its upstream.
func newRealGate(w *world, name, binary, settings string, failing *failure) *realGate {
	transport := &http.Transport{}
	g := &realGate{w: w, name: name, binary: binary, failing: failing, http: &http.Client{Transport: transport}}
	upstream := httptest.NewServer(g)
	g.file = filepath.Join(w.t.TempDir(), "thoughtgate.yaml")
	w.t.Cleanup(func() { transport.CloseIdleConnections(); upstream.Close() })
	if err := os.WriteFile(g.file, []byte(fmt.Sprintf("%s\nupstreams: [{url: %s/mcp}]\n%s", settingsOfReal, upstream.URL, settings)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return g
}

// launch starts the gate with a fault, and waits until operators can reach it.
func (g *realGate) launch(fault string) {
	if err := g.start(fault); err != nil {
		g.w.t.Fatal(err)
	}
	eventually(g.w.t, func() bool {
		_, err := g.pending()
		return err == nil
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("timed out")
		}
	}
}

var listening = regexp.MustCompile(`"msg":"listening","agents":"([^"]+)","operators":"([^"]+)"`)

// start starts the gate, and returns once it listens.
func (g *realGate) start(fault string) error {
	cmd := exec.CommandContext(context.WithoutCancel(g.w.ctx), g.binary, "serve", "-c", g.file)
	cmd.Env = append(os.Environ(), "THOUGHTGATE_FAILPOINT="+fault)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		g.note(lines.Text())
		m := listening.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		g.mu.Lock()
		g.cmd, g.agents, g.operators, g.up = cmd, m[1], m[2], true
		g.mu.Unlock()
		if g.w.ctx.Err() != nil { // the gate was ended meanwhile
			g.kill()
		}
		g.running.Go(func() { g.attend(lines) })
		return nil
	}
	return fmt.Errorf("%s does not start: %w", g.name, cmd.Wait())
}

// attend reads the log of the gate until the gate ends, and starts it again.
func (g *realGate) attend(lines *bufio.Scanner) {
	for lines.Scan() {
		g.note(lines.Text())
	}
	_ = g.cmd.Wait()
	g.mu.Lock()
	g.up = false
	g.mu.Unlock()
	g.w.tell("%s has ended", g.name)
	for g.w.sleep(restart) == nil {
		if err := g.start(""); err == nil {
			g.w.tell("%s is started again", g.name)
			return
		}
	}
}

// note handles a line of the gate's log.
func (g *realGate) note(line string) {
	g.w.tell("%s says %s", g.name, short(line))
	if line == "failpoint reached" {
		g.failing.note()
	}
}

// end ends the gate without a restart.
func (g *realGate) end() {
	g.kill()
	g.running.Wait()
}

func (g *realGate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd != nil {
		_ = g.cmd.Process.Kill()
	}
}

func (g *realGate) String() string { return g.name }

// serves implements [replica].
func (g *realGate) serves() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.up
}

// shutdown implements [replica].
func (g *realGate) shutdown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.up = false
	_ = g.cmd.Process.Signal(os.Interrupt)
}

// addresses returns the addresses of the gate for agents and for operators.
func (g *realGate) addresses() (agents, operators string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "http://" + g.agents + "/mcp", "http://" + g.operators
}

// send implements [replica].
func (g *realGate) send(ctx context.Context, header http.Header, message string) answer {
	url, _ := g.addresses()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		return answer{err: err}
	}
	r.Header = header.Clone()
	resp, err := g.http.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if !bytes.Contains(body, []byte(`"jsonrpc"`)) {
		return answer{status: resp.StatusCode, body: string(body), err: err}
	}
	switch f := g.failing.at(g.name, "client.Write"); f {
	case none:
	case lost:
		err = errLost
	case dieAfter:
		g.kill()
	default:
		g.w.t.Errorf("a client cannot have an answer end with %s", f)
	}
	return answer{status: resp.StatusCode, body: string(body), err: err}
}

// asApprover makes a request as an approver.
func asApprover[T any](g *realGate, f func(context.Context, *client.Client) (T, error)) (T, error) {
	_, url := g.addresses()
	c, err := client.New(client.Config{URL: url, Token: operatorToken})
	if err != nil {
		var nothing T
		return nothing, err
	}
	return f(g.w.ctx, c)
}

// pending implements [replica].
func (g *realGate) pending() ([]review.Approval, error) {
	return asApprover(g, func(ctx context.Context, c *client.Client) ([]review.Approval, error) {
		return c.List(ctx, client.Selection{})
	})
}

// show implements [replica].
func (g *realGate) show(id task.ID) (review.Approval, error) {
	return asApprover(g, func(ctx context.Context, c *client.Client) (review.Approval, error) { return c.Show(ctx, id) })
}

// decide implements [replica].
func (g *realGate) decide(_ string, id task.ID, r approval.Ruling) error {
	_, err := asApprover(g, func(ctx context.Context, c *client.Client) (review.Approval, error) { return c.Decide(ctx, id, r) })
	return err
}

// ServeHTTP is the upstream of this gate.
func (g *realGate) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	method := r.Method
	if packet, err := jsonrpc.Parse(body, jsonrpc.Limits{}); err == nil {
		method = cmp.Or(packet.Messages[0].Method, method)
	}
	f := g.failing.at(g.name, "upstream."+method)
	if f == die {
		g.kill()
		panic(http.ErrAbortHandler)
	}
	status, header, text := g.w.server.serve(r.Method, body)
	if bytes.Contains(body, []byte(`"name":"hold_slow"`)) {
		_ = g.w.sleep(slowness)
	}
	switch f {
	case none:
	case dieAfter:
		g.kill()
		panic(http.ErrAbortHandler)
	case lost:
		panic(http.ErrAbortHandler)
	case late:
		_ = g.w.sleep(lateness)
	case overdue:
		_ = g.w.sleep(overdueness)
	default:
		g.w.t.Errorf("an upstream cannot have a call end with %s", f)
	}
	maps.Copy(out.Header(), header)
	out.WriteHeader(status)
	_, _ = io.WriteString(out, text)
}
