// Package deploy_test checks what helps to deploy the gate: dashboards, alerts,
// the Helm chart and manifests of Kubernetes. It runs the real program.
package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const operatorToken = "a-token-of-the-operators"

// build compiles the program once, and returns its name.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "thoughtgate")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "thoughtgate")
	out, err := exec.Command("go", "build", "-C", "..", "-o", file, "./cmd/thoughtgate").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return file, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	if file, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(status)
}

func program(t *testing.T) string {
	t.Helper()
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A gate is the program, serving.
type gate struct {
	t                 *testing.T
	agents, operators string // URLs
}

// serve starts a gate with rules: calls of get_* are forwarded, those of hold_*
// are held, and all others are denied. More is added to the configuration, and
// pairs of texts in it are replaced.
func serve(t *testing.T, more string, changes ...string) *gate {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(up.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "gate.yaml")
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: " + operatorToken + "}\nstore: 'sqlite:" + dir + "/gate.db'\n" +
		"upstreams: [{url: " + up.URL + "}]\nrules: [{match: 'get_*', action: forward}, {match: 'hold_*', action: approve}]\ndefault: deny\n" + more
	if err := os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program(t), "serve", "-c", file)
	log := &buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, log)
		}
	})
	g := &gate{t: t}
	g.agents = "http://" + log.await(t, regexp.MustCompile(`"agents":"([^"]+)"`))
	g.operators = "http://" + log.await(t, regexp.MustCompile(`"operators":"([^"]+)"`))
	return g
}

// answer answers as an upstream whose tools do nothing.
func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	id := regexp.MustCompile(`"id":("[^"]*"|\d+)`).FindSubmatch(body)
	if id == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{"content":[{"type":"text","text":"done"}]}`
	if strings.Contains(string(body), `"tools/list"`) {
		result = `{"tools":[{"name":"hold_x","inputSchema":{"type":"object"}}]}`
	}
	if strings.Contains(string(body), `"get_echo"`) {
		result = strings.Replace(result, "done", string(bytes.TrimRight(body[bytes.Index(body, []byte(`"text":"`))+8:], `"}`)), 1)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id[1], result)
}

// say sends a request of an agent, and returns the answer.
func (g *gate) say(method, params string) string {
	g.t.Helper()
	return g.post(g.agents+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, "Mcp-Session-Id", "s-1")
}

func (g *gate) post(url, body string, headers ...string) string {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return g.do(r)
}

func (g *gate) get(url string) string {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operatorToken)
	return g.do(r)
}

func (g *gate) do(r *http.Request) string {
	g.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(body)
}

// hold makes a call that is held as a task, and returns its id.
func (g *gate) hold(tool string) string {
	g.t.Helper()
	created := g.say("tools/call", `{"name":"`+tool+`","task":{}}`)
	id := regexp.MustCompile(`"taskId":"(tg_[^"]+)"`).FindStringSubmatch(created)
	if id == nil {
		g.t.Fatalf("no task in %s", created)
	}
	return id[1]
}

// decide approves or rejects a held call.
func (g *gate) decide(id, decision string) {
	g.t.Helper()
	url := g.operators + "/api/approvals/" + id
	shown := regexp.MustCompile(`"shownDigest":"([^"]+)"`).FindStringSubmatch(g.get(url))
	if shown == nil {
		g.t.Fatalf("%s is not shown", id)
	}
	if got := g.post(url+"/"+decision, `{"shownDigest":"`+shown[1]+`"}`, "Authorization", "Bearer "+operatorToken); strings.Contains(got, `"error"`) {
		g.t.Fatal(got)
	}
}

// A buffer collects what a program writes.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the text matches, and returns the first group.
func (b *buffer) await(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if m := pattern.FindStringSubmatch(b.String()); m != nil {
			return m[1]
		}
	}
	t.Fatalf("no %s in: %s", pattern, b)
	return ""
}
