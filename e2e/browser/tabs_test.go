package browser_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
)

// tab opens one more tab in somebody's browser.
func (b *bureau) tab(t *testing.T, p *person) *person {
	t.Helper()
	tab, _ := visit(t, &b.site, chromedp.WithExistingBrowserContext(chromedp.FromContext(p.ctx).BrowserContextID))
	return tab
}

// The lock of the tab that listens for all.
const (
	held   = `navigator.locks.query().then(({ held }) => held.length)`
	queued = `navigator.locks.query().then(({ pending }) => pending.length)`
)

// tabs waits until one tab of the browser holds the lock, or none, and so many wait
// for it.
func (p *person) tabs(holding, waiting int) {
	p.t.Helper()
	waitFor(p.t, "the tabs share the lock", func() bool { return value[int](p, held) == holding && value[int](p, queued) == waiting })
}

// However many tabs somebody has open, all of them are live.
func TestManyTabs(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	tabs := []*person{alice}
	for range 8 { // more than the browser has connections
		tab := b.tab(t, alice)
		tab.open("/")
		tab.sees("No pending approvals.")
		tabs = append(tabs, tab)
	}
	b.ask(t, "ann")
	for _, tab := range tabs {
		tab.sees("/payroll/bonuses.csv")
	}
}

// When a session ends, the tab that listened for all lets go. After the next sign-in, in
// another tab, that one listens. The tab that was signed out keeps saying so.
func TestSignInAgainInAnotherTab(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	first, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	first.tolerate("401")
	first.tabs(1, 0)
	second := b.tab(t, first)
	second.tolerate("401")
	second.open("/")
	second.sees("No pending approvals.")
	second.tabs(1, 1)
	second.click(".account form button")
	second.sees("Sign in")
	first.sees("Your session has ended.")
	second.tabs(0, 0)
	second.signIn("alice")
	second.tabs(1, 0)
	b.ask(t, "ann")
	second.sees("/payroll/bonuses.csv")
	second.eventually(`document.querySelector("#live-text").textContent === "Live"`, "the new page is live")
	if got := value[string](first, `document.querySelector("#live-text").textContent`); got != "Signed out" {
		t.Errorf("the tab that was signed out says %q", got)
	}
}

// A tab that holds the lock and tells the others nothing, because it hangs or because
// the browser has frozen it, loses it to one that waits.
func TestSilentTab(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	first, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	first.open("/assets/inbox.css")
	value[bool](first, `new Promise((granted) => {
		window.robbed = false;
		navigator.locks.request("inbox", () => { granted(true); return new Promise(() => {}); }).catch(() => { window.robbed = true; });
	})`)
	second := b.tab(t, first)
	second.open("/")
	second.sees("No pending approvals.")
	second.tabs(1, 1)
	value[bool](first, `(new BroadcastChannel("inbox").postMessage({ beat: 500 }), true)`) // its last sign of life
	b.ask(t, "ann")
	second.sees("/payroll/bonuses.csv")
	first.eventually(`window.robbed`, "the silent tab has lost the lock")
	second.tabs(1, 0)
}

// A tab that comes back after another took over from it follows that one: only one
// listens, and both are live.
func TestTabTakenOver(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	first, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	first.tabs(1, 0)
	second := b.tab(t, first)
	second.open("/")
	second.sees("No pending approvals.")
	second.tabs(1, 1)
	value[bool](second, `navigator.locks.request("inbox", { steal: true }, () => true)`)
	second.tabs(1, 1)
	waitFor(t, "one tab listens", func() bool { return b.streams.Load() == 1 })
	b.ask(t, "ann")
	for _, tab := range []*person{first, second} {
		tab.sees("/payroll/bonuses.csv")
	}
}

// After a new sign-in in another tab of the same person, a page works on, and what was
// typed stays. After one of somebody else, it shows who would decide.
func TestNewSignInElsewhere(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	first, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	id, _ := b.ask(t, "ann")
	first.writesReason(id, "backup exists")
	second := b.tab(t, first)
	second.open("/login")
	second.signIn("alice")
	b.ask(t, "zoe") // makes the pages look
	first.eventually(`document.querySelector("#count").textContent.trim() === "2"`, "the page has looked")
	// The new sign-in has ended the old session, and its stream. Until there is a new one,
	// the buttons are disabled.
	waitFor(t, "a tab listens again", func() bool { return b.streams.Load() == 1 })
	first.eventually(`(() => {
		const button = document.querySelector("#approve");
		if (!button || button.disabled) return false;
		button.click(); // wherever it is: a warning above it may come or go
		return true;
	})()`, "the call can be approved")
	first.sees("Approved by alice")
	first.sees("backup exists")
	first.open("/")
	second.open("/login")
	second.signIn("bob")
	b.ask(t, "joe")
	first.eventually(`document.querySelector(".who")?.innerText.includes("bob")`, "the page says that it is bob's")
}

// Without locks a tab that is not looked at does not listen. Once it is looked at again,
// it shows what was decided meanwhile, although nothing happens any more.
func TestHiddenTabWithoutLocks(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	alice.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			delete Navigator.prototype.locks;
			Object.defineProperty(document, "hidden", { get: () => window.away === true });`})
		return err
	}))
	looks := func(away bool) {
		value[bool](alice, fmt.Sprintf(`(window.away = %t, document.dispatchEvent(new Event("visibilitychange")))`, away))
	}
	alice.open("/")
	id, _ := b.ask(t, "ann")
	alice.sees("/payroll/bonuses.csv")
	looks(true)
	waitFor(t, "no tab listens", func() bool { return b.streams.Load() == 0 })
	if _, err := decide(t.Context(), b.desk, id, approval.Approver{Name: "bob"}, approval.Reject, ""); err != nil {
		t.Fatal(err)
	}
	looks(false)
	alice.sees("No pending approvals.")
}
