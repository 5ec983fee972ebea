package app_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEncryptionAtRest: arguments and results are nowhere in the file, a
// restart with the key finds them, and one without it, or with another, is
// refused with a reason.
func TestEncryptionAtRest(t *testing.T) {
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
			t.Errorf("%s has the arguments or the result in the clear: %v", name, err)
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
