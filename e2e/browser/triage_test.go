package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Many spaces before a command do not look like an empty line: their number is shown before the command, and the
// browser has the spaces themselves.
func TestWideSpacesAreVisible(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	script := "#!/bin/sh\n" + strings.Repeat(" ", 140) + "rm -rf /\necho done\n"
	s.ask(t, "delete_file", map[string]any{"command": "ls;" + strings.Repeat(" ", 140) + "rm -rf /", "script": script})
	p.eventually(`document.querySelector(".row .spaces")`, "the list marks the spaces")
	p.eventually(`document.querySelector(".row .sent").getBoundingClientRect().height < 30`, "the list shows the arguments in one line")
	p.click(".row .open")
	p.sees("Why it is held")
	for _, size := range [][2]int64{{1440, 900}, {390, 844}} {
		p.resize(size[0], size[1])
		p.eventually(`[...document.querySelectorAll(".asked .spaces")].filter((s) => {
			const shown = getComputedStyle(s, "::before");
			return s.textContent.length === 140 && shown.content === '"140 spaces"' && s.getBoundingClientRect().width < 110 && s.getBoundingClientRect().height < 30;
		}).length === 2`, "both values show the number of spaces, in little room")
	}
	p.resize(1600, 900)
	p.eventually(`document.querySelector(".code").getBoundingClientRect().width > 1100`, "code uses the width of the page")
}

// Times are in the zone of the browser, and in UTC on hover.
func TestTimesAreLocal(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.do(send(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"}))
	p.logIn(s.token)
	s.ask(t, "delete_file", bonuses)
	p.eventually(`document.querySelector(".row .open")`, "a row")
	p.click(".row .open")
	p.sees("What happened")
	p.eventually(`[...document.querySelectorAll(".story time")].every((t) => {
		const at = new Date(Date.parse(t.dateTime) + 345 * 60000).toISOString();
		return t.textContent === at.slice(11, 19) && t.title.includes(t.dateTime.slice(11, 19)) && t.title.endsWith("UTC");
	})`, "the history is in local time")
	p.eventually(`document.querySelector(".left time").title.endsWith(" UTC") && document.querySelector(".lead time").title.endsWith(" UTC")`, "other times say UTC on hover")
}

// triage opens an inbox with calls that differ, and the first of them as alice. Her browser sends a rejection only
// when the test calls sendNow, not after five seconds.
func triage(t *testing.T, calls int) (*sharedInbox, *person, []task.ID) {
	t.Helper()
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {Timeout: time.Hour}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return b, nil, nil
	}
	alice.do(send(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		const plain = window.setTimeout;
		window.setTimeout = (f, ms, ...rest) => {
			if (ms !== 5000) return plain(f, ms, ...rest);
			window.sendNow = f;
			return 0;
		};`}))
	var ids []task.ID
	for n := range calls {
		ids = append(ids, b.hold(t, "ann", "delete_file", fmt.Sprintf(`{"path":"/file%d"}`, n)))
	}
	alice.openCall("/approvals/"+string(ids[0]), ids[0])
	return b, alice, ids
}

// openCall opens the page of a call.
func (p *person) openCall(path string, id task.ID) {
	p.t.Helper()
	p.open(path)
	p.isAt(id)
	p.eventually(`document.readyState === "complete"`, "the script runs")
}

// isAt waits until the page shows a call.
func (p *person) isAt(id task.ID) {
	p.t.Helper()
	p.eventually(fmt.Sprintf(`document.querySelector("[data-case]")?.dataset.case === %q`, id), "the page shows "+string(id))
}

// settles waits until the page accepts clicks after it has followed another call.
func (p *person) settles() {
	p.t.Helper()
	now := value[float64](p, "performance.now()")
	p.eventually(fmt.Sprintf("performance.now() > %f", now+800), "a moment passes")
}

// After a decision the next call of the list follows, with a notice, and at the end the list. Keys and links go to
// the calls before and after, and the second click of a double click decides nothing.
func TestNextCallFollowsDecision(t *testing.T) {
	b, alice, ids := triage(t, 3)
	if alice == nil {
		return
	}
	alice.sees("1 of 3")
	alice.press("j")
	alice.isAt(ids[1])
	alice.eventually(`document.readyState === "complete"`, "the script runs")
	alice.press("j")
	alice.isAt(ids[2])
	alice.eventually(`document.readyState === "complete"`, "the script runs")
	alice.press("j")
	alice.sees("This is the last call of the list.")
	alice.click("#previous")
	alice.isAt(ids[1])
	alice.sees("2 of 3")
	alice.eventually(`document.readyState === "complete"`, "the script runs")

	// A double click: the second click meets the page of the next call as soon as it is there.
	value[bool](alice, `(() => {
		new MutationObserver((_, o) => {
			const next = document.querySelector("[data-case]")?.dataset.case;
			if (next !== "`+string(ids[2])+`" || !document.querySelector("#approve")) return;
			o.disconnect();
			document.querySelector("#approve").click();
		}).observe(document.body, {childList: true, subtree: true});
		document.querySelector("#approve").click();
		return true;
	})()`)
	alice.isAt(ids[2])
	alice.sees("You approved delete_file.")
	alice.sees("That click came too soon after the last decision, so it was not counted.")
	alice.sees("2 of 2")
	alice.settles()
	if got := b.state(t, ids[2]); got != task.InputRequired {
		t.Fatalf("a double click decided the next call: %s", got)
	}
	alice.press("a")
	alice.waitForKeys()
	alice.press(kb.Enter)
	alice.isAt(ids[0]) // from the last to the first
	alice.settles()
	alice.click("#approve")
	alice.sees("No pending approvals.")
	alice.sees("You approved delete_file.")
	alice.eventually(`location.pathname === "/" && !location.search`, "the address is that of the list")
	for _, id := range ids {
		if got := b.state(t, id); got != task.Approved {
			t.Errorf("%s is %s", id, got)
		}
	}
	alice.do(chromedp.NavigateBack())
	alice.isAt(ids[0])
	alice.sees("Approved by alice")
}

func (b *sharedInbox) state(t *testing.T, id task.ID) task.State {
	t.Helper()
	a, err := b.service.Viewer().Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a.State
}

// A filter stays while calls are decided.
func TestNextCallKeepsFilter(t *testing.T) {
	b, alice, _ := triage(t, 2)
	if alice == nil {
		return
	}
	other := b.hold(t, "ann", "list_tables", `{}`)
	alice.open("/?tool=list")
	alice.eventually(`document.querySelectorAll(".row").length === 1`, "one row")
	alice.click(".row .open")
	alice.isAt(other)
	alice.sees("1 of 1")
	alice.click("#approve")
	alice.sees("No pending approvals match.")
	alice.sees("0 of 2 pending")
}

// A rejection can be taken back for some seconds. Until it is sent, the call is pending.
func TestRejectionIsTakenBack(t *testing.T) {
	b, alice, ids := triage(t, 2)
	if alice == nil {
		return
	}
	alice.do(chromedp.SendKeys(chromedp.CSS("#reason"), "no backup"))
	alice.click("#reject")
	alice.isAt(ids[1])
	alice.sees("delete_file: rejected in 5 seconds.")
	if script, err := axe(); err == nil {
		alice.accessible("a rejection that can be taken back", script)
	}
	if got := b.state(t, ids[0]); got != task.InputRequired {
		t.Fatalf("the call is %s at once", got)
	}
	alice.press("u")
	alice.sees("delete_file: not rejected.")
	alice.press("u")
	alice.sees("There is no rejection to take back.")
	value[bool](alice, "(async () => { await sendNow(); return true; })()")
	if got := b.state(t, ids[0]); got != task.InputRequired {
		t.Fatalf("the call is %s although the rejection was taken back", got)
	}
	alice.click("#undo a")
	alice.isAt(ids[0])
	alice.eventually(`document.querySelector("#reason").value === "no backup"`, "the reason is kept")
	alice.settles()
	alice.click("#reject")
	alice.isAt(ids[1])
	alice.settles()
	alice.click("#undo button")
	alice.sees("delete_file: not rejected.")
	alice.click("#approve")
	alice.isAt(ids[0])
	if got := b.state(t, ids[1]); got != task.Approved {
		t.Errorf("the other call is %s", got)
	}
}

// A rejection is sent after some seconds, and before the next decision.
func TestRejectionIsSent(t *testing.T) {
	b, alice, ids := triage(t, 3)
	if alice == nil {
		return
	}
	alice.do(chromedp.SendKeys(chromedp.CSS("#reason"), "no backup"))
	alice.click("#reject")
	alice.isAt(ids[1])
	alice.sees("delete_file: rejected in 5 seconds.")
	value[bool](alice, "(async () => { await sendNow(); return true; })()")
	alice.sees("Rejected by alice")
	if got := b.state(t, ids[0]); got != task.Rejected {
		t.Errorf("the call is %s", got)
	}
	alice.isAt(ids[1])
	alice.settles()
	alice.click("#reject")
	alice.isAt(ids[2])
	alice.settles()
	alice.click("#reject") // sends the one before
	alice.eventually(`document.querySelectorAll(".row.leaving").length === 1`, "the list shows what is rejected soon")
	alice.sees("delete_file: rejected in 5 seconds.")
	value[bool](alice, "(async () => { await sendNow(); return true; })()")
	alice.sees("No pending approvals.")
	for _, id := range ids {
		waitFor(t, "all are rejected", func() bool { return b.state(t, id) == task.Rejected })
	}
}

// Leaving the page sends the rejection at once.
func TestLeavingSendsRejection(t *testing.T) {
	b, alice, ids := triage(t, 2)
	if alice == nil {
		return
	}
	alice.click("#reject")
	alice.isAt(ids[1])
	alice.sees("rejected in 5 seconds")
	alice.click("nav a[href='/grants']")
	alice.eventually(`location.pathname === "/grants"`, "another page")
	waitFor(t, "the call is rejected", func() bool { return b.state(t, ids[0]) == task.Rejected })
}

// Hiding the page, which may be the last that a phone tells it, sends the rejection at once.
func TestHidingSendsRejection(t *testing.T) {
	b, alice, ids := triage(t, 2)
	if alice == nil {
		return
	}
	alice.click("#reject")
	alice.isAt(ids[1])
	value[bool](alice, `(Object.defineProperty(document, "hidden", {get: () => true}), document.dispatchEvent(new Event("visibilitychange")))`)
	alice.sees("Rejected by alice")
	if got := b.state(t, ids[0]); got != task.Rejected {
		t.Errorf("the call is %s", got)
	}
}

// A rejection that the gate refuses is reported with its cause.
func TestLateRejectionIsReported(t *testing.T) {
	b, alice, ids := triage(t, 2)
	if alice == nil {
		return
	}
	alice.tolerate("409")
	alice.click("#reject")
	alice.isAt(ids[1])
	if _, err := decide(t.Context(), b.service, ids[0], approval.Approver{Name: "bob"}, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	value[bool](alice, "(async () => { await sendNow(); return true; })()")
	alice.sees("Your rejection was not recorded")
	alice.sees("Somebody else decided first: Approved by bob")
	alice.isAt(ids[1])
}

// If the gate does not answer, the page says that a rejection may not have been recorded, and links to its call.
func TestRejectionWithoutAnswerIsReported(t *testing.T) {
	b, alice, ids := triage(t, 2)
	if alice == nil {
		return
	}
	alice.tolerate("net::")
	alice.click("#reject")
	alice.isAt(ids[1])
	alice.eventually(`document.querySelector("#next, #previous")`, "the call has neighbours")
	b.disconnect()
	value[bool](alice, "(async () => { await sendNow(); return true; })()")
	alice.sees("it is not known whether this was rejected")
	b.reconnect()
	alice.click("#undo a")
	alice.isAt(ids[0])
	alice.sees("1 approval is needed.")

	// The next call cannot be loaded: the page stays, and the call can be rejected again.
	alice.eventually(`document.readyState === "complete" && !document.querySelector("#reject").disabled`, "the call is open")
	value[bool](alice, `(() => {
		const plain = window.fetch;
		window.fetch = (where, ...rest) => (String(where).includes("/next") ? Promise.reject(new TypeError("no answer")) : plain(where, ...rest));
		window.answer = () => { window.fetch = plain; };
		return true;
	})()`)
	alice.click("#reject")
	alice.sees("The gate does not answer.")
	alice.press("u")
	alice.sees("delete_file: not rejected.")
	value[bool](alice, "(answer(), true)")
	alice.eventually(`document.querySelector("#lost").hidden && !document.querySelector("#reject").disabled`, "the gate is back")
	alice.click("#reject")
	alice.isAt(ids[1])
	value[bool](alice, "(async () => { await sendNow(); return true; })()")
	alice.sees("Rejected by alice")
}

// Identical calls are decided together, and the buttons say how many.
func TestGroupIsDecidedTogether(t *testing.T) {
	b, alice, ids := triage(t, 1)
	if alice == nil {
		return
	}
	var same []task.ID
	for range 3 {
		same = append(same, b.hold(t, "ci", "refund_payment", `{"amount":1}`))
	}
	alice.open("/")
	alice.eventually(`document.querySelectorAll(".row").length === 2`, "one row for the group")
	alice.sees("3 identical")
	alice.press("j")
	alice.press("j")
	alice.press("x")
	alice.eventually(`document.querySelector("#reject-ticked").textContent === "Reject 3 ticked"`, "the button has the number")
	alice.click(".row:nth-child(2) .open")
	alice.isAt(same[0])
	alice.eventually(`document.readyState === "complete"`, "the script runs")
	alice.click("#all")
	alice.eventually(`document.querySelector("#approve").textContent === "Approve 3" && document.querySelector("#reject").textContent === "Reject 3"`, "the buttons have the number")
	same = append(same, b.hold(t, "ci", "refund_payment", `{"amount":1}`))
	alice.sees("Decide all 4 identical calls together")
	alice.eventually(`!document.querySelector("#all").checked && document.querySelector("#approve").textContent === "Approve"`, "a changed group must be ticked again")
	alice.click("#group summary")
	if script, err := axe(); err == nil {
		alice.accessible("a group", script)
	}
	alice.click("#all")
	alice.click("#reject")
	alice.isAt(ids[0])
	alice.sees("4 calls: rejected in 5 seconds.")
	alice.press("u")
	alice.sees("4 calls: not rejected.")
	alice.click("#undo a")
	alice.isAt(same[0])
	alice.settles()
	alice.click("#all")
	alice.click("#approve")
	alice.isAt(ids[0])
	alice.sees("4 requests approved")
	for _, id := range same {
		if got := b.state(t, id); got != task.Approved {
			t.Errorf("%s is %s", id, got)
		}
	}
}

// Keys that do nothing say why.
func TestKeysSayWhyTheyDoNothing(t *testing.T) {
	b, alice, ids := triage(t, 1)
	if alice == nil {
		return
	}
	long := b.hold(t, "ann", "delete_file", fmt.Sprintf(`{"text":%q}`, strings.Repeat("line\n", 300)))
	says := func(p *person, key, text string) {
		t.Helper()
		p.press(key)
		p.eventually(fmt.Sprintf(`document.querySelector("#hint").checkVisibility() && document.querySelector("#hint").textContent.includes(%q)`, text), "key "+key+" says "+text)
	}
	says(alice, "k", "This is the first call of the list.")
	says(alice, "x", "There is no call to tick on this page.")
	alice.openCall("/approvals/"+string(long), long)
	says(alice, "a", "A part of this call was not shown yet: open every folded part")
	alice.open("/")
	alice.eventually(`document.readyState === "complete"`, "the script runs")
	says(alice, "a", "Open a call first")
	says(alice, "x", "Choose a call first")
	says(alice, "u", "There is no rejection to take back.")
	alice.openCall("/approvals/"+string(ids[0]), ids[0])
	alice.click("#approve")
	alice.isAt(long)
	alice.openCall("/approvals/"+string(ids[0]), ids[0])
	says(alice, "r", "This call no longer waits for a decision.")
	says(alice, "j", "This call is not in the list of waiting calls.")
	vera, _ := b.enter(t, "vera")
	vera.eventually(`document.querySelector(".row")`, "a row")
	says(vera, "x", "You may view these calls, but not decide them.")
	vera.openCall("/approvals/"+string(long), long)
	says(vera, "a", "You may view this call, but not decide it.")
	says(vera, "c", "You may view this call, but not decide it.")
}
