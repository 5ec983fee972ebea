package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// bonuses are the arguments of most calls in these tests.
var bonuses = map[string]any{"path": "/payroll/bonuses.csv"}

// A call appears while the list is open, is approved with the keyboard, and the waiting agent
// gets its result.
func TestApproveWithTheKeyboard(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	p.sees("No pending approvals.")
	p.eventually(`location.pathname === "/" && !location.search`, "the token is removed from the address")
	c := s.ask(t, "delete_file", bonuses)
	p.sees("/payroll/bonuses.csv")
	p.eventually(`document.title.startsWith("(1) ")`, "the title has the number of calls")
	p.eventually(`document.querySelector("#told").textContent.includes("New request: delete_file")`, "screen readers announce the call")

	p.press("a") // has no effect in a list
	p.press("j")
	p.eventually(`document.activeElement.matches(".row .open")`, "the row has the focus")
	p.press(kb.Enter)
	p.sees("Why it is held")
	p.sees("Held by rules[2] (*).")
	p.sees("deleted is deleted")
	p.sees("The customer asked for it twice.")
	p.eventually(`document.readyState === "complete"`, "the call is open")
	p.press("a")
	p.eventually(`document.activeElement.id === "approve"`, "the button has the focus")
	if got := s.upstream.calls(); len(got) > 0 {
		t.Fatalf("a single key approved the call: %v", got)
	}
	p.waitForKeys()
	p.press(kb.Enter)
	p.sees("Approved by operator")
	p.click("#notice a")
	p.sees("Why it was held")
	if got := c.wait(t); got != "done: delete_file" {
		t.Errorf("the agent gets %q", got)
	}
	p.sees("It ran, and the agent can fetch the result.") // without a reload of the page
	p.eventually(`!document.title.startsWith("(")`, "the title has no number")
	if got := s.upstream.calls(); len(got) != 1 {
		t.Errorf("ran: %v", got)
	}
}

// waitForKeys waits until the page no longer ignores a key as a repetition of the previous one.
func (p *person) waitForKeys() {
	p.t.Helper()
	now := value[float64](p, "performance.now()")
	p.eventually(fmt.Sprintf("performance.now() > %f", now+400), "a moment passes")
}

// A key that is pressed twice or held down does not decide.
func TestRepeatedKeyDecidesNothing(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	s.ask(t, "delete_file", bonuses)
	p.sees("delete_file")
	p.click(".row .open")
	p.sees("Why it is held")
	p.eventually(`document.readyState === "complete"`, "the call is open")
	prevented := value[bool](p, `(() => {
		const strike = (key, repeat) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, repeat, bubbles: true, cancelable: true}));
		strike("a", false);
		return document.activeElement.id === "approve" && !strike("Enter", false) && !strike("Enter", true) && !strike(" ", true);
	})()`)
	if !prevented {
		t.Error("a repeated key is not ignored")
	}
	if !value[bool](p, `document.querySelector("#armed").checkVisibility() && document.querySelector("#armed").textContent.includes("That was very quick, so it was not counted. Press Enter again to approve.")`) {
		t.Error("the page does not show that it ignored a repeated key")
	}
	if got := s.upstream.calls(); len(got) > 0 {
		t.Errorf("ran: %v", got)
	}
	p.press(kb.Escape)
	p.press("?")
	p.eventually(`document.querySelector("#shortcuts").open`, "the shortcuts are shown")
	p.press("a")
	p.eventually(`document.activeElement.id !== "approve"`, "keys do nothing behind the shortcuts")
	p.press(kb.Escape)
	p.eventually(`!document.querySelector("#shortcuts").open`, "the shortcuts are gone")
}

func TestRejectWithReason(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	c := s.ask(t, "refund_payment", map[string]any{"amount": 12})
	p.sees("refund_payment")
	p.click(".row .open")
	p.eventually(`document.querySelector("#reason") && document.readyState === "complete"`, "the call is open")
	p.press("c")
	p.eventually(`document.activeElement.id === "reason"`, "the reason has the focus")
	value[string](p, `document.querySelector("#reason").value = ""`) // some browsers have also typed the shortcut key
	p.press("wrong customer ❤ <b>")
	p.click("#reject")
	p.sees("Rejected by operator")
	p.click("#undo a")
	p.sees("“wrong customer ❤ <b>”")
	if got := c.wait(t); !strings.Contains(got, "wrong customer") {
		t.Errorf("the agent gets %q", got)
	}
	if got := s.upstream.calls(); len(got) > 0 {
		t.Errorf("ran: %v", got)
	}
	p.click("nav a[href='/history']")
	p.sees("Rejected by operator")
}

func TestRejectSeveral(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	for _, path := range []string{"/a", "/b", "/c"} {
		s.ask(t, "delete_file", map[string]any{"path": path})
	}
	p.eventually(`document.querySelectorAll(".row").length === 3`, "three rows")
	if value[bool](p, `document.querySelector(".bulk").checkVisibility()`) {
		t.Error("the bulk rejection is enabled before a call is selected")
	}
	p.press("j")
	p.press("x")
	p.press("j")
	p.press("x")
	p.eventually(`document.querySelector(".bulk").checkVisibility()`, "selected calls can be rejected")
	s.ask(t, "delete_file", map[string]any{"path": "/d"})
	p.eventually(`document.querySelectorAll(".row").length === 4`, "another row")
	p.eventually(`document.querySelectorAll(".tick input:checked").length === 2`, "the selection stays when a call is added")
	p.eventually(`document.activeElement.closest(".row")`, "the focus stays")
	p.sees("Reject 2 ticked")
	p.do(chromedp.SendKeys(chromedp.CSS("#bulk-reason"), "not today"), chromedp.Click(chromedp.CSS(".bulk .danger")))
	p.sees("2 requests rejected")
	p.eventually(`document.querySelectorAll(".row").length === 2`, "two calls are left")
}

// A call that expires while its page is open is shown as expired, and a later decision is
// refused.
func TestOpenPageShowsExpiredCall(t *testing.T) {
	s := open(t, plainRules+"workflows: {default: {timeout: 20s}}\n")
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	c := s.ask(t, "delete_file", bonuses)
	p.sees("delete_file")
	p.click(".row .open")
	p.sees("left to decide")
	p.sees("Expired")
	p.sees("Nobody decided in time. It did not run.")
	p.eventually(`!document.querySelector("#approve")`, "the page has no buttons")
	if got := c.wait(t); !strings.Contains(got, "expired") && !strings.Contains(got, "in time") {
		t.Errorf("the agent gets %q", got)
	}
}

// The page shows when the approver was signed out elsewhere, and no decision is made.
func TestPageShowsThatTheSessionEnded(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	s.ask(t, "delete_file", bonuses)
	p.sees("delete_file")
	p.click(".row .open")
	p.sees("Why it is held")
	p.tolerate("401")
	p.do(send(network.ClearBrowserCookies, struct{}{}))
	s.ask(t, "delete_file", map[string]any{"path": "/other"}) // makes the page request the state
	p.sees("Your session has ended.")
	p.eventually(`document.querySelector("#approve").disabled`, "the buttons are disabled")
	p.click("#lost a")
	p.sees("Sign in")
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), s.token), chromedp.Submit(chromedp.CSS("#token")))
	p.sees("Why it is held") // the page of the call again
	if got := s.upstream.calls(); len(got) > 0 {
		t.Errorf("ran: %v", got)
	}
}

// Signing in, reading and deciding work without JavaScript.
func TestInboxWorksWithoutScript(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	yes, no := s.ask(t, "delete_file", bonuses), s.ask(t, "refund_payment", map[string]any{"amount": 3})
	p.do(send(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	p.open("/")
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), s.token), chromedp.Click(chromedp.CSS("form button")))
	p.shows("Waiting for a decision")
	waitFor(t, "both calls are in the list", func() bool {
		p.open("/")
		list := p.text()
		return strings.Contains(list, "refund_payment") && strings.Contains(list, "delete_file")
	})
	p.open("/?tool=refund")
	p.shows("1 of 2 pending")
	p.click(".row .open")
	p.shows("Why it is held", "amount")
	p.do(chromedp.SendKeys(chromedp.CSS("#reason"), "too much"), chromedp.Click(chromedp.CSS("#reject")))
	p.shows("Rejected by operator", "too much")
	if got := no.wait(t); !strings.Contains(got, "too much") {
		t.Errorf("the agent gets %q", got)
	}
	p.click(".verdict a.button")
	p.shows("No pending approvals match.")
	p.click(".empty a")
	p.click(".row .open")
	p.do(chromedp.SendKeys(chromedp.CSS("#find"), "PAYROLL"), chromedp.Click(chromedp.CSS(".bar button")))
	p.shows("“PAYROLL” is in the arguments once.")
	p.click("#approve")
	p.shows("Approved by operator")
	if got := yes.wait(t); got != "done: delete_file" {
		t.Errorf("the agent gets %q", got)
	}
	p.click("nav a[href='/history']")
	p.shows("History", "refund_payment", "delete_file")
	p.click(".account form button")
	p.shows("Sign in")
}

// shows waits until the page contains all texts.
func (p *person) shows(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.sees(text)
	}
}

// hostile makes calls with deceptive and very long texts.
func hostile(t *testing.T, s *site) {
	t.Helper()
	evil := `"><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	s.upstream.addTool("d\u0435lete_file", "<script>document.title='owned'</script> "+evil)
	deep := any("core")
	for range 50 {
		deep = map[string]any{"in": []any{deep}}
	}
	s.ask(t, "d\u0435lete_file", map[string]any{
		"markup": evil, evil: "name", "bidi": "/tmp/\u202egpj.exe", "zero": "a\u200bb", "url": "javascript:document.title='owned'",
		"long": strings.Repeat("All is well. ", 69_000) + "END", "deep": deep,
		"list": make([]int, 5000),
	})
}

// Text of agents is shown, and is never interpreted as markup or script.
func TestHostileArguments(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	hostile(t, s)
	p.sees("U+202E")
	p.click(".row .open")
	p.sees("This name may not be what it looks like")
	p.sees("е is U+0435 Cyrillic")
	p.sees(`<script>document.title='owned'</script>`)
	p.sees("897.0 KB")
	p.sees("more are not on this page.")
	p.sees("I approve without reading")
	p.eventually(`document.querySelector("#approve").disabled`, "the call cannot be approved unread")
	p.click("#consent")
	p.eventually(`!document.querySelector("#approve").disabled`, "the call can be approved unread after consent")
	for _, bad := range []string{`document.querySelector("main img, main script, main iframe")`, `document.title.includes("owned")`} {
		if value[bool](p, "Boolean("+bad+")") {
			t.Errorf("the text was interpreted: %s", bad)
		}
	}
	if n := value[int](p, `document.querySelectorAll("*").length`); n > 15_000 {
		t.Errorf("the page has %d elements", n)
	}
	if ms := value[float64](p, `performance.getEntriesByType("navigation")[0].domComplete`); ms > 15_000 { // usually 100 ms, but a busy machine needs longer
		t.Errorf("the page takes %.0f ms", ms)
	}
	p.click(".tip")
	p.eventually(`getComputedStyle(document.querySelector(".tip:focus .tip-text")).opacity === "1"`, "the code points are shown to the keyboard")
	p.do(chromedp.SendKeys(chromedp.CSS("#find"), "END"+kb.Enter))
	p.sees("“END” is in the arguments once.")
	p.open(value[string](p, `new URL(document.querySelector("a[href$='/arguments']").href).pathname`))
	p.eventually(`document.contentType === "text/plain" && document.body.innerText.includes("END") && document.body.innerText.includes("core")`, "the whole text can be read")
	p.eventually(`document.body.innerText.includes("\\u202egpj.exe")`, "invisible characters are spelled out")
}

// No line of a value looks like the name of another argument.
func TestValuesCannotImitateNames(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	s.ask(t, "refund_payment", map[string]any{
		"amount": 9000, "currency": "EUR\namount: 1.00", "note": "fine" + strings.Repeat(" ", 200) + "amount: 1.00",
		"to": map[string]any{"name": "Rosa\namount: 1.00"}, "why": strings.Repeat("because ", 30) + "so",
	})
	p.sees("amount: 1.00")
	p.click(".row .open")
	p.sees("Why it is held")
	for _, width := range []int64{1280, 390} {
		p.resize(width, 860)
		astray := value[int](p, `[...document.querySelectorAll(".tree li > .value")].filter((v) => {
			const name = v.parentElement.querySelector(":scope > .key").getClientRects()[0].left;
			return [...v.getClientRects()].some((line) => line.left < name + 12);
		}).length`)
		astray += value[int](p, `[...document.querySelectorAll(".tree .line")].filter((line) => {
			const name = line.closest("li").querySelector(":scope > .key").getClientRects()[0].left;
			const text = new Range();
			text.selectNodeContents(line);
			return [...text.getClientRects()].some((part) => part.left < name + 12);
		}).length`)
		if astray > 0 {
			t.Errorf("%d values begin a line at the position of names, at a width of %d", astray, width)
		}
	}
	if n := value[int](p, `document.querySelectorAll(".tree .block").length`); n != 4 {
		t.Errorf("%d values are in separate blocks", n)
	}
}

// Another site can neither decide through an approver's browser nor show the pages in a frame.
func TestOtherSitesCannotDecide(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	s.ask(t, "delete_file", bonuses)
	p.eventually(`document.querySelector(".row .open")`, "the call is listed")
	path := value[string](p, `document.querySelector(".row .open").pathname`)
	trap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<link rel=icon href=data:,><form method=post action="%s%s/approve"><button>Win a prize</button></form><iframe src="%s/"></iframe>`, s.operators, path, s.operators)
	}))
	defer trap.Close()
	p.tolerate("frame-ancestors")
	p.tolerate("chrome-error")
	p.tolerate("401")
	// The same machine with another name is another site for the browser.
	p.do(chromedp.Navigate(strings.Replace(trap.URL, "127.0.0.1", "localhost", 1)))
	p.eventually(`document.querySelector("iframe") && document.querySelector("iframe").contentDocument === null`, "the frame is empty")
	p.click("button")
	p.eventually(`location.pathname.endsWith("/approve")`, "the form is sent")
	p.open(path)
	p.sees("1 approval is needed.")
	if got := s.upstream.calls(); len(got) > 0 {
		t.Errorf("ran: %v", got)
	}
}
