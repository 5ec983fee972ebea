package app_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A reloadable gateway runs with a configuration file that the test changes.
type reloadable struct {
	*app.App

	t       *testing.T
	file    string
	hangups chan os.Signal
	loads   atomic.Int64 // how often the configuration was read
}

// startReloadable starts a gateway with the rules, and with more settings of operators.
func startReloadable(t *testing.T, rules string, operators ...string) *reloadable {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet { // the upstream sends no events
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result := `{"content":[]}`
		if strings.Contains(string(body), `"tools/list"`) {
			result = `{"tools":[]}`
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":`+result+`}`)
	}))
	t.Cleanup(up.Close)
	r := &reloadable{t: t, file: filepath.Join(t.TempDir(), "thoughtgate.yaml"), hangups: make(chan os.Signal, 1)}
	base := strings.Replace(gatewayFor(up.URL), "operators: {", "operators: {"+strings.Join(operators, ""), 1)
	r.write(base + rules)
	load := func() (config.Config, error) {
		r.loads.Add(1)
		cfg, _, err := config.Load(config.Sources{Channels: app.ChannelKinds(), File: r.file})
		return cfg, err
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if r.App, err = app.New(cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := r.ReloadFrom(app.Source{Load: load, Signal: r.hangups}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// write replaces the file by a new one of the same name, as editors do.
func (r *reloadable) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloadable) text() string {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// passes reports whether a call of the tool is forwarded.
func (r *reloadable) passes(tool string) bool {
	r.t.Helper()
	resp, err := http.Post("http://"+r.AgentAddr()+"/mcp", "application/json",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Contains(string(body), `"result"`) && !strings.Contains(string(body), "policy_denied")
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

const onlyRead = "rules: [{match: 'read_*', action: forward}]\ndefault: deny\n"

// 9.2 "Policy reload": a changed file takes effect, an invalid one does not and shows on the
// readiness page (NF-002.3), and a corrected one takes effect again.
func TestReload(t *testing.T) {
	r := startReloadable(t, onlyRead)
	good := r.text()
	if !r.passes("read_x") || r.passes("write_x") {
		t.Fatal("the rules have no effect")
	}

	r.write(strings.Replace(good, "read_*", "write_*", 1))
	eventually(t, "the changed rule has effect", func() bool { return r.passes("write_x") })
	if r.passes("read_x") {
		t.Error("the old rule still has effect")
	}

	r.write(strings.Replace(good, "action: forward", "action: maybe", 1))
	eventually(t, "the readiness page shows the error", func() bool {
		status, body := get(t, "http://"+r.OperatorAddr()+"/readyz")
		return status == http.StatusOK && strings.Contains(body, "not loaded")
	})
	if !r.passes("write_x") || r.passes("read_x") {
		t.Error("an invalid file changed the rules")
	}

	r.write(strings.Split(good, "rules:")[0])
	eventually(t, "the readiness page shows the missing rules", func() bool {
		_, body := get(t, "http://"+r.OperatorAddr()+"/readyz")
		return strings.Contains(body, "has no rules")
	})
	if r.passes("read_x") {
		t.Error("a partly written file removed the rules")
	}

	r.write(good)
	eventually(t, "the corrected file has effect", func() bool { return r.passes("read_x") })
	eventually(t, "the readiness page shows no error", func() bool { return !strings.Contains(r.readiness(), "not loaded") })
}

// SIGHUP reloads the configuration at once.
func TestReloadOnSignal(t *testing.T) {
	r := startReloadable(t, onlyRead)
	changed := strings.Replace(r.text(), "read_*", "write_*", 1)
	if err := os.WriteFile(r.file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	r.hangups <- syscall.SIGHUP
	eventually(t, "the changed rule has effect", func() bool { return r.passes("write_x") })
}

// Kubernetes replaces a whole directory by changing one symbolic link.
func TestReloadOfSwappedDirectory(t *testing.T) {
	r := startReloadable(t, onlyRead)
	dir := filepath.Dir(r.file)
	for name, text := range map[string]string{"v1": r.text(), "v2": strings.Replace(r.text(), "read_*", "write_*", 1)} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "thoughtgate.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(version string) {
		next := filepath.Join(dir, "..next")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/thoughtgate.yaml", r.file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first version has effect", func() bool { return r.passes("read_x") })
	link("v2")
	eventually(t, "the second version has effect", func() bool { return r.passes("write_x") })
}

// Frequent writes to other files in the directory, such as a log or a database, neither cause
// a reload nor delay one.
func TestReloadIgnoresOtherFiles(t *testing.T) {
	r := startReloadable(t, onlyRead)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond) // less than settleTime
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				if err := os.WriteFile(filepath.Join(filepath.Dir(r.file), "gate.log"), []byte(now.String()), 0o600); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	defer func() { close(stop); <-stopped }()

	eventually(t, "the files are read twice because of the log", func() bool { return r.loads.Load() >= 3 })
	if n := r.reloads(); n != 0 {
		t.Errorf("%d reloads of an unchanged configuration", n)
	}
	r.write(strings.Replace(r.text(), "read_*", "write_*", 1))
	eventually(t, "the changed rule has effect", func() bool { return r.passes("write_x") })
	seen := r.loads.Load()
	eventually(t, "the files are read twice more", func() bool { return r.loads.Load() >= seen+2 })
	if n := r.reloads(); n != 1 {
		t.Errorf("%d reloads of a configuration that changed once", n)
	}
}

// A change of the file behind a symbolic link, in another directory, causes a reload.
func TestReloadOfLinkedFile(t *testing.T) {
	r := startReloadable(t, onlyRead)
	target := filepath.Join(t.TempDir(), "real.yaml")
	if err := os.Rename(r.file, target); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, r.file); err != nil {
		t.Fatal(err)
	}
	r.hangups <- syscall.SIGHUP // the gate then watches the other directory
	eventually(t, "the configuration is read again", func() bool { return r.reloads() >= 1 })
	text := strings.Replace(r.text(), "read_*", "write_*", 1)
	if err := os.WriteFile(target, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed rule has effect", func() bool { return r.passes("write_x") })
}

// reloads returns the number of successful reloads.
func (r *reloadable) reloads() (n int) {
	r.t.Helper()
	_, body := get(r.t, "http://"+r.OperatorAddr()+"/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, `thoughtgate_config_reloads_total{status="success"} `); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	return n
}
