package app_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// The file contains no plain arguments or results. After a restart, a gate with the key can
// read them, and a gate without it or with another key does not start.
func TestStoredCallsAreEncrypted(t *testing.T) {
	const secret = "Xylophone"
	key := func(name, letter string) string {
		return name + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(letter), 32))
	}
	file := filepath.Join(t.TempDir(), "gate.db")
	up := answering(t, secret)
	text := func(keys string) string {
		return strings.Replace(troubledConfig(up, "sqlite:"+file), "timeout: 1m", "timeout: 1m, keys: '"+keys+"'", 1)
	}
	defer http.DefaultClient.CloseIdleConnections()

	a, stop := start(t, text(key("k1", "a")))
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","arguments":{"password":"`+secret+`"},"task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	approve(t, a.OperatorAddr(), id)
	if result := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, secret) {
		t.Errorf("result: %s", result)
	}
	say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","arguments":{"password":"`+secret+`2"},"task":{}}`) // stays pending
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(file + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if content, err := os.ReadFile(name); err != nil || bytes.Contains(content, []byte(secret)) {
			t.Errorf("%s has the unencrypted arguments or result: %v", name, err)
		}
	}

	for name, keys := range map[string]string{"no key": "", "another key": key("k2", "a"), "the wrong key": key("k1", "b")} {
		if _, err := newApp(t, text(keys)); err == nil || !strings.Contains(err.Error(), "k1") {
			t.Errorf("%s: %v; want an error that names the key", name, err)
		}
	}

	a, stop = start(t, text(key("k2", "b")+","+key("k1", "a")))
	if result := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, secret) {
		t.Errorf("result after a change of keys: %s", result)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// If keys are configured, a call that was written into the database without the key neither
// runs nor is shown, whether it is new or replaces an encrypted one.
func TestUnsealedCallDoesNotRun(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var ran atomic.Int64
	file := filepath.Join(t.TempDir(), "gate.db")
	keys := "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))
	text := holding(counting(t, &ran), "sqlite:"+file) + "storage: {keys: '" + keys + "'}\n"
	a, stop := start(t, text)
	id := createTask(t, a.AgentAddr(), "hold_x")
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	settings := storage.Settings{DSN: "sqlite:" + file, Keys: keys}
	tamper := func(change func(*sealedstore.Store)) {
		t.Helper()
		s, err := settings.OpenUnverified(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		change(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const planted = "tg_planted"
	tamper(func(s *sealedstore.Store) {
		held, err := s.Get(t.Context(), task.AnyOwner().Ref(task.ID(id)))
		if err != nil {
			t.Fatal(err)
		}
		forged, err := lifecycle.Apply(held, lifecycle.Approve{By: "nobody", Reason: "forged"}, time.Now())
		if err == nil {
			err = s.Unwrap().Swap(t.Context(), forged) // as written without the key
		}
		if err == nil {
			forged.ID = planted
			err = s.Unwrap().Create(t.Context(), forged, task.Limits{})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	a, log, stop := startLogged(t, text)
	for _, id := range []string{id, planted} {
		if answer := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(answer, `"task_unreadable"`) {
			t.Errorf("tasks/result of %s: %s", id, answer)
		}
	}
	for _, path := range []string{"/api/approvals?state=approved", "/api/approvals/" + planted} {
		_, shown, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+path, "", "Authorization", "Bearer secret-of-the-operators")
		if strings.Contains(shown, "forged") {
			t.Errorf("%s: %s", path, shown)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d calls ran without approval", n)
	}
	if len(log.with("held calls are not encrypted", `"calls":2`, "thoughtgate store rekey")) != 1 {
		t.Errorf("the log does not name the command:\n%s", strings.Join(log.with(""), ""))
	}

	// An operator who encrypts the stored tasks confirms that they are genuine.
	tamper(func(s *sealedstore.Store) {
		if n, err := storage.Rekey(t.Context(), s); n != 2 || err != nil {
			t.Fatalf("rekey: %d, %v", n, err)
		}
	})
	a, log, stop = startLogged(t, text)
	if answer := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); strings.Contains(answer, `"error"`) || ran.Load() != 1 {
		t.Errorf("after rekey: %s; %d calls ran", answer, ran.Load())
	}
	if err := stop(); err != nil || len(log.with("not encrypted")) != 0 {
		t.Errorf("after rekey: %v\n%s", err, strings.Join(log.with("not encrypted"), ""))
	}
}
