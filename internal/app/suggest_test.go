package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
)

// An admin sees the rules that are proposed from the record of a running gate, as YAML to copy.
func TestSuggestions(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	file := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	store, err := (storage.Settings{DSN: file}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	log := callrecord.New(callrecord.Config{
		Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler), Key: func(context.Context) ([]byte, error) { return []byte("a key"), nil },
		Settings: callrecord.Settings{Arguments: callrecord.Full, MaxSize: 1 << 30},
	})
	for n := range 12 {
		at, id := time.Now().Add(-time.Duration(n)*24*time.Hour), fmt.Sprintf("tg_%d", n)
		e := callrecord.Entry{
			Time: at, Event: callrecord.Judged, ID: id, Upstream: "default", Method: "tools/call", Name: "hold_report", Principal: "ann", Hints: policy.Annotations{ReadOnly: &yes}, Listed: true,
			Arguments: []byte(`{"day":1}`), Action: policy.Approve, Workflow: "default", Rule: "rules[0]", Outcome: callrecord.Held,
		}
		log.Add(e)
		e.Event, e.Outcome, e.By, e.Decided = callrecord.Ended, "completed", []string{"eve<b>"}, at.Add(time.Minute)
		log.Add(e)
	}
	log.Close(t.Context())
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	a, stop := start(t, holding(toolServer(t), file))
	page := look(t, a.OperatorAddr(), "/suggestions")
	for _, want := range []string{"hold_report", "only reads", "Copy as rule", "12 approved", "eve&lt;b&gt;", "rules[0]"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>") {
		t.Error("a name is not shown as text")
	}
	if overview := look(t, a.OperatorAddr(), "/overview"); !strings.Contains(overview, `href="/suggestions"`) || !strings.Contains(overview, `href="/try"`) {
		t.Error("the overview has no links")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
