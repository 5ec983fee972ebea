package app_test

import (
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
)

// What a gate has recorded is judged in the same way again, under the same policy.
func TestRecordIsReplayed(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for detail, unknown := range map[string]int{"full": 0, "digests": 4} {
		dir := t.TempDir()
		file, policies := "sqlite:"+filepath.Join(dir, "gate.db"), filepath.Join(dir, "p.cedar")
		writeText(t, policies, `permit (principal, action, resource) when { context.arguments has n && context.arguments.n == 1 };
@approval permit (principal, action, resource) when { context.arguments has n && context.arguments.n == 2 };`)
		text := strings.Replace(holding(toolServer(t), file), "rules: [",
			"rules: [{match: 'get_*', name: reading, action: forward}, {match: 'try_*', action: deny, mode: observe}, {match: 'cedar_*', action: policy}, ", 1) +
			"cedar: {policies: ['" + policies + "']}\nrecord: {arguments: " + detail + "}\nworkflows: {default: {}}\n"
		a, stop := start(t, text)
		for _, tool := range []string{"get_x", "try_x", "drop_x", "get_x\u202e", "ﬁx"} {
			say(t, a.AgentAddr(), "tools/call", `{"name":"`+tool+`","arguments":{"path":"/tmp/x"}}`)
		}
		for _, arguments := range []string{`{"n":1}`, `{"n":3}`, `{"N":1}`} {
			say(t, a.AgentAddr(), "tools/call", `{"name":"cedar_x","arguments":`+arguments+`}`)
		}
		sayModern(t, a.AgentAddr(), "cedar_x", `{"n":2}`)
		say(t, a.AgentAddr(), "resources/read", `{"uri":"file:///x"}`)
		createTask(t, a.AgentAddr(), "hold_x")
		if err := stop(); err != nil {
			t.Fatal(err)
		}

		all := recorded(t, storage.Settings{DSN: file})
		r := replayed(t, all, text)
		if r.Calls != 11 || r.Different > 0 || r.Unknown > 0 {
			t.Errorf("%s: %s", detail, r.Text())
		}
		for i := range all {
			all[i].Snapshot = "" // so that nothing is taken from the record
		}
		r = replayed(t, all, text)
		if r.Different > 0 || r.Unknown != unknown {
			t.Errorf("%s: %s", detail, r.Text())
		}
		r = replayed(t, all, strings.Replace(text, "{match: 'hold_*', action: approve}", "{match: 'hold_*', action: deny}", 1))
		if r.Different != 1 || r.Groups[0].Name != "hold_x" || r.Groups[0].To.Action != policy.Deny || r.Approvals.Total.Then-r.Approvals.Total.Now != 1 {
			t.Errorf("%s: %s", detail, r.Text())
		}
	}
}

// replayed judges entries again under the configuration in text.
func replayed(t *testing.T, all []callrecord.Entry, text string) *replay.Report {
	t.Helper()
	name := filepath.Join(t.TempDir(), "gate.yaml")
	writeText(t, name, text)
	cfg, _, err := config.Load(config.Sources{File: name, Channels: app.ChannelKinds()})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := app.Settings(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.Run(entriesOf(all), s.Policy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func entriesOf(all []callrecord.Entry) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func writeText(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
