package app_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const changesToken = "0123456789abcdefghijklmnop"

// waitConfigured waits for n entries about configuration changes in the audit log, and returns
// all entries.
func waitConfigured(t *testing.T, address string, n int) (found []string) {
	t.Helper()
	eventually(t, "the change is in the log", func() bool { found = signInConfigured(t, address); return len(found) >= n })
	return found
}

func signInConfigured(t *testing.T, address string) []string {
	t.Helper()
	status, log, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+address+"/api/audit", "", "Authorization", "Bearer "+changesToken)
	if status == http.StatusTooManyRequests {
		return nil
	}
	if status != http.StatusOK {
		t.Fatalf("the audit log: %d %s", status, log)
	}
	var found []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"step":"configured"`) {
			found = append(found, line)
		}
	}
	return found
}

// A change of the policy or of another setting is recorded in the audit log, with the policies
// before and after it, and in the history of the inbox. Reading unchanged files again is not
// recorded.
func TestChangesAreRecorded(t *testing.T) {
	r := startReloadable(t, onlyRead, "token: "+changesToken+", ")
	good := r.text()
	loads := r.loads.Load()
	r.hangups <- syscall.SIGHUP
	eventually(t, "the same files are read again", func() bool { return r.loads.Load() > loads })
	r.write(strings.Replace(good, "read_*", "write_*", 1))
	first := waitConfigured(t, r.OperatorAddr(), 1)[0]
	digests := regexp.MustCompile(`"policySnapshot":"([0-9a-f]{12})".*"policyBefore":"([0-9a-f]{12})"`).FindStringSubmatch(first)
	if digests == nil || digests[1] == digests[2] || !strings.Contains(first, `"outcome":"policy_changed"`) || !strings.Contains(first, `"actor":"configuration file"`) {
		t.Fatalf("the entry is %s", first)
	}
	r.write(strings.Replace(good, "read_*", "write_*", 1) + "waiting: {hold: 9m}\n")
	if second := waitConfigured(t, r.OperatorAddr(), 2)[1]; !strings.Contains(second, `"outcome":"settings_changed"`) {
		t.Errorf("the entry is %s", second)
	}
	page := ""
	eventually(t, "the history is shown", func() bool {
		var status int
		status, page, _ = request(t, http.DefaultClient, http.MethodGet, "http://"+r.OperatorAddr()+"/history", "", "Authorization", "Bearer "+changesToken)
		return status == http.StatusOK
	})
	for _, want := range []string{"policy " + digests[2] + " replaced by " + digests[1] + " (configuration file)", "settings other than the policy"} {
		if !strings.Contains(page, want) {
			t.Errorf("the history does not say %q", want)
		}
	}
}

// A gate that starts with a policy other than the store's last one records this once.
func TestChangeBeforeStartIsRecorded(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "held.db")
	run := func(policy string, check func(address string)) {
		text := strings.NewReplacer("memory:", store, "operators: {", "operators: {token: "+changesToken+", ").Replace(gatewayFor("http://127.0.0.1:1/mcp")) + policy
		load := func() (config.Config, error) {
			cfg, _, err := config.Load(config.Sources{Channels: app.ChannelKinds(), Starter: &config.Starter{Name: "test", Text: []byte(text)}})
			return cfg, err
		}
		cfg, err := load()
		if err != nil {
			t.Fatal(err)
		}
		a, err := app.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.ReloadFrom(app.Source{Load: load}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		check(a.OperatorAddr())
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
	nothing := func(address string) {
		eventually(t, "the gate is ready", func() bool { status, _ := get(t, "http://"+address+"/readyz"); return status == http.StatusOK })
	}
	run(onlyRead, nothing)
	run(onlyRead, nothing)
	run("default: forward\n", func(address string) {
		if log := waitConfigured(t, address, 1); len(log) != 1 || !strings.Contains(log[0], `"actor":"start of the gate"`) || !strings.Contains(log[0], `"policyBefore"`) {
			t.Errorf("the log has %q", log)
		}
	})
}
