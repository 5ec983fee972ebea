package clients_test

import (
	"bufio"
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

//go:embed package.json package-lock.json
var pins embed.FS

//go:embed agents/*.mjs
var agents embed.FS

// installed returns the directory in which the TypeScript clients are installed, once for all
// tests.
var installed = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return testenv.InstallNPM(ctx, filepath.Join(cache, "thoughtgate"), "clients", pins)
})

// modules returns the node_modules directory of the TypeScript clients.
func modules(t *testing.T) string {
	t.Helper()
	testenv.NeedNode(t)
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules")
}

// An agent is a TypeScript client that executes orders.
type agent struct {
	t  *testing.T
	in *jsontext.Encoder

	mu     sync.Mutex
	orders map[int]*order
}

// An order is a command for an agent. The agent answers with reports.
type order struct {
	t       *testing.T
	reports chan report
}

// A report is a step of an order. The last report of an order is "returned" or "threw"; the
// others have different names.
type report struct {
	Order int            `json:"order"`
	What  string         `json:"what"`
	Value jsontext.Value `json:"value"`
}

// start starts an agent and returns when it has connected.
func start(t *testing.T, script string, args ...string) *agent {
	t.Helper()
	dir := t.TempDir()
	scripts, err := fs.Sub(agents, "agents")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, scripts); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules(t), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, orders: map[int]*order{}}
	ready := a.enter()
	a.run(exec.CommandContext(context.WithoutCancel(t.Context()), "node", append([]string{filepath.Join(dir, script)}, args...)...))
	if r := ready.next(); r.What != "ready" {
		t.Fatalf("%s: %s %s", script, r.What, r.Value)
	}
	return a
}

// run runs the agent's program until the test ends. The program ends when its input ends.
func (a *agent) run(cmd *exec.Cmd) {
	a.t.Helper()
	cmd.Stderr = a.t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	a.in = jsontext.NewEncoder(in)
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		a.listen(bufio.NewScanner(out))
		ended <- cmd.Wait()
	}()
	a.t.Cleanup(func() {
		_ = in.Close()
		select {
		case err := <-ended:
			if err != nil {
				a.t.Errorf("agent: %v", err)
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			a.t.Errorf("the agent did not end: %v", <-ended)
		}
	})
}

// listen distributes the reports to the orders. When the output ends, all running orders end.
func (a *agent) listen(out *bufio.Scanner) {
	for out.Scan() {
		var r report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			a.t.Errorf("the agent printed %q: %v", out.Text(), err)
			continue
		}
		a.find(r.Order).reports <- r
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.orders {
		close(o.reports)
	}
}

func (a *agent) enter() *order {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &order{t: a.t, reports: make(chan report, 1000)}
	a.orders[len(a.orders)] = o
	return o
}

func (a *agent) find(n int) *order {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.orders[n]
}

// tell sends an order to the agent in the background.
func (a *agent) tell(action string, input any) *order {
	a.t.Helper()
	o := a.enter()
	err := json.MarshalEncode(a.in, map[string]any{"order": len(a.orders) - 1, "action": action, "input": input})
	if err != nil {
		a.t.Fatal(err)
	}
	return o
}

// next waits for the next report.
func (o *order) next() report {
	o.t.Helper()
	r := receive(o.t, o.reports)
	if r.What == "" {
		o.t.Fatal("the agent has ended")
	}
	return r
}

// await waits for a report with this name and decodes its value. It skips other reports, but
// not the end of the order.
func (o *order) await(what string, value any) {
	o.t.Helper()
	r := o.next()
	for r.What != what {
		if r.What == "returned" || r.What == "threw" {
			o.t.Fatalf("the agent reported %s %s; want %s", r.What, r.Value, what)
		}
		r = o.next()
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(r.Value, value); err != nil {
		o.t.Fatalf("%s %s: %v", what, r.Value, err)
	}
}

// A failure is an error that a client threw.
type failure struct {
	Name    string `json:"name"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// A result is the result of a tool.
type result struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

// told returns the result in the form of the Go client's outcomes.
func (r result) told() told {
	end := told{isError: r.IsError}
	for _, c := range r.Content {
		end.text += c.Text
	}
	return end
}
