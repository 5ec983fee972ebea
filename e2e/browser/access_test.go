package browser_test

import (
	"context"
	"embed"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

//go:embed package.json package-lock.json
var pins embed.FS

// axe returns the source of axe-core, which is installed once for all tests.
var axe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := testenv.InstallNPM(ctx, filepath.Join(cache, "thoughtgate"), "axe", pins)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(text), err
})

// serious returns the serious accessibility problems that axe-core finds on the page.
const serious = `axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.map((v) => v.id + ": " + v.help + "\n" + v.nodes.map((n) => "    " + n.target + " " + n.failureSummary).join("\n")))`

// accessible checks that the page has no accessibility problem, in light and dark colours, and
// on wide and narrow screens.
func (p *person) accessible(where, script string) {
	p.t.Helper()
	p.do(chromedp.WaitReady(chromedp.CSS("main")))
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[any](script+"; null")); err != nil {
		p.t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		for _, width := range []int64{1280, 390} {
			p.resize(width, 900)
			for _, problem := range value[[]string](p, serious) {
				p.t.Errorf("%s, %s, %d wide: %s", where, scheme, width, problem)
			}
			if value[bool](p, `document.documentElement.scrollWidth > innerWidth`) {
				p.t.Errorf("%s is wider than %d", where, width)
			}
		}
	}
	p.resize(1280, 900)
}

// All pages meet the accessibility rules of axe-core.
func TestPagesAreAccessible(t *testing.T) {
	testenv.NeedNode(t)
	script, err := axe()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.open("/login")
	p.accessible("the login", script)
	p.logIn(s.token)
	p.accessible("the empty list", script)
	s.upstream.addTool("d\u0435lete_file", "Delete a file.")
	s.ask(t, "delete_file", bonuses)
	s.ask(t, "d\u0435lete_file", map[string]any{
		"path": "/tmp/\u202egpj.exe", "text": strings.Repeat("All is well. ", 1000), "nested": map[string]any{"a": []any{1, true, nil, "x"}},
	})
	p.eventually(`document.querySelectorAll(".row").length === 2`, "two rows")
	p.click(".row:nth-child(2) .tick")
	p.accessible("the list", script)
	p.press("?")
	p.accessible("the shortcuts", script)
	p.open(value[string](p, `document.querySelector(".row:nth-child(2) .open").pathname`))
	p.sees("Why it is held")
	p.click("details.fold summary")
	p.accessible("a request", script)
	p.open(value[string](p, `location.pathname`) + "?find=well")
	p.sees("in the arguments 1000 times")
	p.accessible("a search", script)
	p.click("#reject")
	p.sees("Rejected by operator")
	p.accessible("the next request, after a rejection", script)
	p.click("#undo a")
	p.sees("It did not run.")
	p.accessible("a request that is over", script)
	p.open("/history?tool=file")
	p.accessible("the history", script)
	p.open("/overview")
	p.accessible("the overview", script)
	p.open("/try")
	p.do(chromedp.SendKeys(chromedp.CSS("#try-name"), "delete_file"))
	p.click("#try .primary")
	p.sees("The edited policy is the running one")
	p.accessible("a tried call", script)
	p.tolerate("404")
	p.open("/approvals/unknown")
	p.accessible("a page that is not there", script)
}
