package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// noAnswer is the text on a page while the gate is down.
const noAnswer = "The gate does not answer. Nothing can be decided until it does; your reason is kept."

// writesReason opens a call and types a reason.
func (p *person) writesReason(id task.ID, reason string) {
	p.t.Helper()
	p.open("/approvals/" + string(id))
	p.sees("Why it is held")
	p.eventually(`document.readyState === "complete"`, "the page is loaded")
	p.do(chromedp.SendKeys(chromedp.CSS("#reason"), reason))
}

// cannotDecide checks that the buttons are disabled and that the reason is still there.
func (p *person) cannotDecide(reason string) {
	p.t.Helper()
	p.eventually(`document.querySelector("#approve").disabled && document.querySelector("#reject").disabled`, "the buttons are disabled")
	if got := value[string](p, `document.querySelector("#reason").value`); got != reason {
		p.t.Errorf("the reason is now %q", got)
	}
}

// The page shows that the gate is down before a button is pressed. Typed text stays, and the
// decision can be made once the gate is back.
func TestPageShowsThatTheGateIsDown(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	alice.tolerate("net::")
	id, c := b.ask(t, "ann")
	alice.writesReason(id, "as agreed")
	b.disconnect()
	alice.sees(noAnswer)
	alice.cannotDecide("as agreed")
	b.reconnect()
	alice.eventually(`document.querySelector("#lost").hidden && !document.querySelector("#approve").disabled`, "the gate is back")
	alice.waitForKeys()
	alice.click("#approve")
	alice.sees("Approved by alice")
	alice.click("#notice a")
	alice.sees("as agreed")
	if got := c.wait(t); got != string(task.Completed) {
		t.Errorf("the agent gets %s", got)
	}
}

// A decision whose answer is lost counts once. The page first says that the result is not
// known, and then shows the state of the call.
func TestDecisionWithLostAnswerCountsOnce(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {Quorum: 2}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	alice.tolerate("net::")
	id, _ := b.ask(t, "ann")
	alice.writesReason(id, "as agreed")
	b.swallow.Store(true)
	alice.click("#approve")
	alice.sees("it is not known whether this was decided")
	b.reconnect()
	alice.sees("You have approved this. 1 of 2 approvals, by alice.")
	a, err := b.service.Viewer().Show(t.Context(), id)
	if err != nil || len(a.Approvals) != 1 || a.Approvals[0].Reason != "as agreed" {
		t.Errorf("approvals %v, %v", a.Approvals, err)
	}
}

// The page notices an interrupted network after two missing heartbeats.
func TestPageNoticesInterruptedNetwork(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	proxy, err := testenv.StartProxy(t.Context(), strings.TrimPrefix(b.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	b.operators = "http://" + proxy.Addr()
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	alice.tolerate("net::")
	id, _ := b.ask(t, "ann")
	alice.writesReason(id, "as agreed")
	proxy.Set(testenv.Partition())
	began := time.Now()
	alice.sees(noAnswer)
	t.Logf("noticed after %v, with a heartbeat every second", time.Since(began).Round(100*time.Millisecond))
	alice.cannotDecide("as agreed")
	proxy.Heal()
	alice.eventually(`document.querySelector("#lost").hidden && !document.querySelector("#approve").disabled`, "the gate is back")
	b.ask(t, "zoe")
	alice.eventually(`document.querySelector("#count").textContent.trim() === "2"`, "the page is live again")
}

// On a phone, the buttons are at the bottom on an opaque background, and do not cover the
// reason that is being typed.
func TestPhoneButtonsDoNotCoverReason(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	alice.resize(390, 700)
	id, _ := b.ask(t, "ann")
	alice.open("/approvals/" + string(id))
	alice.sees("Why it is held")
	if got := value[string](alice, `getComputedStyle(document.querySelector(".choices")).backgroundColor`); got == "rgba(0, 0, 0, 0)" || got == "transparent" {
		t.Errorf("the background is %s", got)
	}
	covered := func(what string) {
		t.Helper()
		const overlap = `(() => {
			const [a, b] = ["#reason", ".choices"].map((s) => document.querySelector(s).getBoundingClientRect());
			return a.bottom > b.top && b.bottom > a.top ? [a.top, a.bottom, b.top, b.bottom, innerHeight, scrollY].map(Math.round).join(" ") : "";
		})()`
		if got := value[string](alice, overlap); got != "" {
			t.Errorf("%s: the buttons cover the reason: %s", what, got)
		}
		if value[bool](alice, `document.querySelector("#approve").getBoundingClientRect().bottom > innerHeight`) {
			t.Errorf("%s: the buttons are not on the screen", what)
		}
	}
	value[bool](alice, `(document.querySelector("#reason").focus(), true)`)
	covered("while the reason is typed")
	value[bool](alice, `(scrollTo(0, document.body.scrollHeight), true)`)
	covered("at the end of the page")
}

// The text about an expired call stays inside its card.
func TestExpiredTextStaysInCard(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {Timeout: time.Second}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	id, _ := b.ask(t, "ann")
	alice.open("/approvals/" + string(id))
	alice.sees("Nobody decided in time. It did not run.")
	for _, width := range []int64{1280, 390} {
		alice.resize(width, 900)
		outside := value[[]string](alice, `(() => {
			const card = document.querySelector(".verdict").getBoundingClientRect();
			return [...document.querySelectorAll(".verdict *")].filter((e) => {
				const r = e.getBoundingClientRect();
				return r.right > card.right + 1 || r.left < card.left - 1 || r.bottom > card.bottom + 1 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display === "block";
			}).map((e) => e.tagName + "." + e.className);
		})()`)
		if len(outside) > 0 {
			t.Errorf("%d wide: outside of the card: %v", width, outside)
		}
	}
}

// With 200 pending calls, the screen shows twenty, the badge shows 200, and a filter stays
// while the list changes.
func TestInboxWithManyPendingCalls(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	crowd(t, b, 200)
	alice.open("/")
	alice.eventually(`document.querySelector("#count").textContent.trim() === "200"`, "the badge has the number")
	alice.eventually(`document.title.startsWith("(200) ")`, "the title has the number")
	const whole = `[...document.querySelectorAll("#list .row")].filter((r) => r.getBoundingClientRect().bottom <= innerHeight).length`
	if n := value[int](alice, whole); n < 20 {
		t.Errorf("%d rows are on a screen of 1280×900; want 20", n)
	}
	alice.do(chromedp.SendKeys(chromedp.CSS(`input[name="tool"]`), "refund"), chromedp.Submit(chromedp.CSS(`input[name="tool"]`)))
	alice.sees("50 of 200 pending")
	b.hold(t, "ann", "refund_payment", `{"payment":"pay_new"}`)
	b.hold(t, "ann", "delete_file", `{"path":"/new"}`)
	alice.sees("51 of 202 pending")
	alice.eventually(`[...document.querySelectorAll(".row .open")].every((a) => a.textContent.trim() === "refund_payment")`, "the filter stays")
	alice.eventually(`document.querySelector("#count").textContent.trim() === "202"`, "the badge counts all calls")
	alice.click(".pager a[rel=next]")
	alice.eventually(`new URLSearchParams(location.search).get("tool") === "refund" && document.querySelectorAll(".row").length === 1`, "the next page has the other calls")
}

// crowd holds many calls of a few tools by a few agents.
func crowd(t *testing.T, b *sharedInbox, n int) {
	t.Helper()
	for i := range n {
		by := fmt.Sprint([]string{"ci-deploy", "support-bot", "nightly-report"}[i%3])
		switch i % 4 {
		case 0:
			b.hold(t, by, "refund_payment", fmt.Sprintf(`{"payment":"pay_%04d","amount":%d.50,"currency":"EUR"}`, i, 10+i))
		case 1:
			b.hold(t, by, "delete_file", fmt.Sprintf(`{"path":"/backups/2026-11-%02d.tar.gz","force":true,"n":%d}`, i%28+1, i))
		case 2:
			b.hold(t, by, "send_invoice", fmt.Sprintf(`{"to":"ap@northwind.example","number":"INV-%05d"}`, 20000+i))
		default:
			b.hold(t, by, "list_tables", fmt.Sprintf(`{"database":"staging_%d"}`, i))
		}
	}
}
