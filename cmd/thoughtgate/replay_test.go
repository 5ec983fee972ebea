package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
)

// Without a file, the calls are read from the store of the configuration.
func TestReplayReadsStore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gate.yaml")
	writeFile(t, file, `version: 1
store: sqlite:gate.db
state_dir: `+dir+`
upstreams: [{ name: crm, url: "http://127.0.0.1:9000/mcp" }]
rules: [{ match: "get_*", action: forward }]
default: deny
`)
	store, err := storage.Settings{DSN: "sqlite:gate.db", Dir: dir}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := callrecord.New(callrecord.Config{
		Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Key: func(context.Context) ([]byte, error) { return make([]byte, 32), nil },
	})
	for _, name := range []string{"get_a", "set_a"} {
		log.Add(callrecord.Entry{Time: time.Now(), Event: callrecord.Judged, Upstream: "crm", Method: "tools/call", Name: name, Action: policy.Forward})
	}
	log.Close(t.Context())
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := outputOf("replay", "-c", file, "--since", "1d")
	if err == nil || err.Error() != "1 of 2 calls would be judged differently" || !strings.Contains(out, `tools/call "set_a" on crm: forward → deny by default`) {
		t.Errorf("%v\n%s", err, out)
	}
}
