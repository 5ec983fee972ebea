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

// tab opens another tab in the browser of a person.
func (b *sharedInbox) tab(t *testing.T, p *person) *person {
	t.Helper()
	tab, _ := openBrowser(t, &b.site, chromedp.WithExistingBrowserContext(chromedp.FromContext(p.ctx).BrowserContextID))
	return tab
}

// The lock is held by the tab that has the stream of events for all tabs.
const (
	held   = `navigator.locks.query().then(({ held }) => held.length)`
	queued = `navigator.locks.query().then(({ pending }) => pending.length)`
)

// tabs waits until this many tabs of the browser hold the lock and wait for it.
func (p *person) tabs(holding, waiting int) {
	p.t.Helper()
	waitFor(p.t, "the tabs share the lock", func() bool { return value[int](p, held) == holding && value[int](p, queued) == waiting })
}

// All open tabs of a person are live.
func TestAllTabsAreLive(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	tabs := []*person{alice}
	for range 8 { // more than the browser's connections to one host
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

// When a session ends, its tab releases the lock, and shows that it was signed out. After the
// next sign-in in another tab, that tab has the stream of events.
func TestSignInAgainInAnotherTab(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
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

// A tab that holds the lock but sends the others nothing, because it hangs or is frozen, loses
// the lock to a waiting tab.
func TestSilentTabLosesStream(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
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
	value[bool](first, `(new BroadcastChannel("inbox").postMessage({ beat: 500 }), true)`) // its last heartbeat
	b.ask(t, "ann")
	second.sees("/payroll/bonuses.csv")
	first.eventually(`window.robbed`, "the silent tab has lost the lock")
	second.tabs(1, 0)
}

// A tab that was replaced as the leader follows the new leader when it continues: only one tab
// has the stream, and both are live.
func TestReturningTabFollowsNewLeader(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
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
	waitFor(t, "one tab has the stream", func() bool { return b.streams.Load() == 1 })
	b.ask(t, "ann")
	for _, tab := range []*person{first, second} {
		tab.sees("/payroll/bonuses.csv")
	}
}

// After a new sign-in of the same person in another tab, a page continues to work, and typed
// text stays. After a sign-in of another person, the page shows the new name.
func TestSignInElsewhereKeepsTypedText(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	first, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	id, _ := b.ask(t, "ann")
	first.writesReason(id, "backup exists")
	second := b.tab(t, first)
	second.open("/login")
	second.signIn("alice")
	b.ask(t, "zoe") // makes the pages request the state
	first.eventually(`document.querySelector("#count").textContent.trim() === "2"`, "the page has requested the state")
	// The new sign-in has ended the old session and its stream. The buttons are disabled until
	// a new stream is open.
	waitFor(t, "a tab has the stream again", func() bool { return b.streams.Load() == 1 })
	first.eventually(`(() => {
		const button = document.querySelector("#approve");
		if (!button || button.disabled) return false;
		button.click(); // found by its id, because a warning above it may move it
		return true;
	})()`, "the call can be approved")
	first.sees("Approved by alice")
	first.click("#notice a")
	first.sees("backup exists")
	first.open("/")
	second.open("/login")
	second.signIn("bob")
	b.ask(t, "joe")
	first.eventually(`document.querySelector(".who")?.innerText.includes("bob")`, "the page shows bob's name")
}

// In a browser without locks, a hidden tab has no stream. When it is shown again, it shows
// earlier decisions, even if no new event occurs.
func TestHiddenTabUpdatesWhenShown(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
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
	waitFor(t, "no tab has the stream", func() bool { return b.streams.Load() == 0 })
	if _, err := decide(t.Context(), b.service, id, approval.Approver{Name: "bob"}, approval.Reject, ""); err != nil {
		t.Fatal(err)
	}
	looks(false)
	alice.sees("No pending approvals.")
}
