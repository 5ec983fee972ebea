package browser_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// recordApprovals records calls that people approved on several days, in a new store.
func recordApprovals(t *testing.T) (store string) {
	t.Helper()
	store = "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	s, err := (storage.Settings{DSN: store}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := callrecord.New(callrecord.Config{
		Store: s, Now: time.Now, Log: slog.New(slog.DiscardHandler), Key: func(context.Context) ([]byte, error) { return []byte("a key"), nil },
		Settings: callrecord.Settings{Arguments: callrecord.Full, MaxSize: 1 << 30},
	})
	for n := range 24 {
		at := time.Now().Add(-time.Duration(n) * 12 * time.Hour)
		e := callrecord.Entry{
			Time: at, Event: callrecord.Judged, ID: fmt.Sprintf("tg_%d", n), Upstream: "backoffice", Method: "tools/call", Name: "show_invoice", Principal: "ann",
			Hints: policy.Annotations{ReadOnly: &yes}, Listed: true, Arguments: []byte(`{}`), Action: policy.Approve, Workflow: "default", Rule: "rules[2]", Outcome: callrecord.Held,
		}
		if n%2 == 0 {
			e.Name, e.Hints, e.Arguments = "write_report", policy.Annotations{}, fmt.Appendf(nil, `{"path":"/srv/reports/%d.txt","text":"x"}`, n)
		}
		log.Add(e)
		e.Event, e.Outcome, e.By, e.Decided = callrecord.Ended, "completed", []string{"eve"}, at.Add(time.Minute)
		log.Add(e)
	}
	log.Close(t.Context())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return store
}

// A suggested rule is copied as it is written, and tried in the edited policy, whose verdict differs.
func TestSuggestionIsCopiedAndTried(t *testing.T) {
	testenv.NeedNode(t)
	script, err := axe()
	if err != nil {
		t.Fatal(err)
	}
	s := openStored(t, recordApprovals(t), plainRules, "", func(h http.Handler) http.Handler { return h })
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	p.open("/overview")
	p.click(`a[href="/suggestions"]`)
	p.sees("show_invoice")
	p.accessible("the suggestions", script)
	value[bool](p, `(() => { navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }; return true; })()`)
	p.click(`[data-proposal="show_invoice"] .copy`)
	p.eventually(`document.querySelector('[data-proposal="show_invoice"] .copy').textContent === "Copied"`, "the rule is copied")
	rule := value[string](p, `window.copied`)
	if want := `- { kind: "tool", upstream: "backoffice", match: "show_invoice", principals: ["ann"], action: forward }`; rule != want {
		t.Errorf("copied %q; want %q", rule, want)
	}
	p.eventually(`document.querySelector('[data-proposal="show_invoice"] .copy').textContent === "Copy as rule"`, "the button has its text again")
	p.open("/try")
	p.do(chromedp.SendKeys(chromedp.CSS("#try-name"), "show_invoice"), chromedp.SendKeys(chromedp.CSS("#try-principal"), "ann"))
	value[string](p, fmt.Sprintf(`(() => { const r = document.querySelector("#try-rules"); return r.value = r.value.replace("rules:\n", "rules:\n  " + %q + "\n"); })()`, rule))
	p.click("#try .primary")
	p.sees("The edited policy decides differently")
	p.accessible("a tried call", script)
	p.picturesOf("try")
	for _, path := range []string{"/suggestions", "/try"} {
		p.resize(390, 900)
		p.open(path)
		if wide := value[float64](p, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("on a phone, %s is %v pixels wide", path, wide)
		}
		p.picturesOf("page" + strings.ReplaceAll(path, "/", "-"))
	}
}

// picturesOf takes pictures of the open page, if wanted.
func (p *person) picturesOf(name string) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	for _, width := range []int64{390, 1440} {
		p.resize(width, 1400)
		for _, scheme := range []string{"light", "dark"} {
			p.prefers(scheme)
			p.picture(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
	}
	p.prefers("light")
}
