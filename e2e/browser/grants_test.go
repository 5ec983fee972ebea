package browser_test

import (
	"strings"
	"testing"
)

const grantRules = plainRules + "workflows: {default: {grants: {longest: 1h, uses: 5}}}\n"

// A standing approval given in the browser lets further calls run until it is revoked there.
func TestGrantInTheBrowser(t *testing.T) {
	s := open(t, grantRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	first := s.ask(t, "delete_file", map[string]any{"path": "/a", "force": false})
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	p.open(value[string](p, `document.querySelector(".row .open").pathname`))
	p.sees("Allow more calls like this one")
	if value[string](p, `document.querySelector("#grant-uses").value`) != "" || value[int](p, `document.querySelectorAll("[name=grant_free]:checked").length`) != 0 {
		t.Error("an option is already selected")
	}
	value[string](p, `document.querySelector("#grant-uses").value = "2"`)
	value[bool](p, `[...document.querySelectorAll(".grant-choice .consent")].find((l) => l.textContent.includes("path")).querySelector("input").checked = true`)
	p.click("#approve")
	first.wait(t)
	p.click("#notice a")
	p.sees("Used 0 of 2 times.")

	s.ask(t, "delete_file", map[string]any{"path": "/b", "force": false}).wait(t)
	p.open("/grants")
	p.sees("Used 1 of 2 times.")
	p.sees("Any value for")
	if script, err := axe(); err == nil {
		p.accessible("the standing approvals", script)
	}
	p.click(".grant .danger")
	p.sees("The standing approval was revoked")
	s.ask(t, "delete_file", map[string]any{"path": "/c", "force": false})
	p.open("/")
	p.eventually(`document.querySelectorAll(".row").length === 1`, "the call is held again")
	if calls := s.upstream.calls(); len(calls) != 2 {
		t.Errorf("the upstream got %q", calls)
	}
}

// A correction can be taken back for some seconds. Then it rejects the call, and lets exactly the
// corrected call of the agent run.
func TestCorrectInTheBrowser(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	asked := s.ask(t, "delete_file", map[string]any{"path": "/a"})
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	p.open(value[string](p, `document.querySelector(".row .open").pathname`))
	p.click("#correction summary")
	p.eventually(`document.querySelector("#correct").getBoundingClientRect().bottom <= innerHeight`, "the button of the correction is in view")
	p.eventually(`document.querySelector("#corrected").value.includes('"/a"')`, "the arguments can be edited")
	value[string](p, `document.querySelector("#corrected").value = '{"path":"/old"}'`)
	if script, err := axe(); err == nil {
		p.accessible("a correction", script)
	}
	p.settles()
	p.click("#correct")
	p.sees("delete_file: rejected in 5 seconds.")
	p.press("u")
	p.sees("delete_file: not rejected.")
	p.click("#undo a")
	p.eventually(`document.querySelector("#correction")?.open && document.querySelector("#corrected").value === '{"path":"/old"}'`, "the correction is kept")
	p.settles()
	p.click("#correct")
	p.sees("delete_file: rejected in 5 seconds.")
	p.sees("Rejected by operator") // after five seconds
	if got := asked.wait(t); !strings.Contains(got, `/old`) {
		t.Errorf("the agent gets %q", got)
	}
	s.ask(t, "delete_file", map[string]any{"path": "/old"}).wait(t)
	if got := s.upstream.calls(); len(got) != 1 {
		t.Errorf("ran: %v", got)
	}
}
