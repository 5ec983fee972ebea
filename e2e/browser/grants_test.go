package browser_test

import "testing"

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
