package browser_test

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// A day of the history is one of the reader. The page fits on a phone, where the filters are folded, and
// the row leads to the call.
func TestHistoryIsSearched(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.do(send(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"}))
	p.logIn(s.token)
	s.ask(t, "delete_user", map[string]any{"user": 4711, "note": "left the company <b>"})
	s.ask(t, "delete_user", map[string]any{"user": 4712})
	for range 2 {
		p.open("/")
		p.eventually(`document.querySelector(".row .open")`, "a row")
		p.click(".row .open")
		p.click("#reject")
		p.sees("Rejected by operator")
		p.click("#undo a")
		p.sees("It did not run.")
	}
	const day = `(shift) => { const d = new Date(Date.now() + shift * 86400000); return new Intl.DateTimeFormat("sv-SE").format(d); }`
	for _, size := range [][2]int64{{1440, 900}, {390, 844}} {
		p.resize(size[0], size[1])
		p.open("/history")
		p.shows("4711", "4712", "Rejected by operator")
		p.eventually(`document.documentElement.scrollWidth <= innerWidth`, "nothing is wider than the page")
		p.eventually(`[...document.querySelectorAll("[data-zone]")].every((e) => e.hidden)`, "the days are not in UTC")
		if size[0] < 500 {
			p.eventually(`!document.querySelector(".past-filters select").checkVisibility() && document.querySelector("#main h1").getBoundingClientRect().top < 160`, "the filters are folded")
			p.click("#more-filters")
			p.eventually(`document.querySelector(".past-filters select").checkVisibility() && document.documentElement.scrollWidth <= innerWidth`, "all filters are shown")
		}
		p.do(chromedp.SendKeys(chromedp.CSS(`[name="q"]`), "4711"))
		value[string](p, `document.querySelector("[name=from]").value = (`+day+`)(-1)`)
		value[string](p, `document.querySelector("[name=to]").value = (`+day+`)(0)`)
		p.click(".past-filters .apply")
		p.eventually(`location.search.includes("q=4711") && document.querySelectorAll(".past .row").length === 1`, "one call is found")
		p.eventually(`new URLSearchParams(location.search).get("from").endsWith("T18:15:00.000Z")`, "the day begins at midnight of the reader")
		p.eventually(`document.querySelector("[name=from]").value === (`+day+`)(-1) && document.querySelector("[name=to]").value === (`+day+`)(0)`, "the fields have the same days")
		p.click(".past .open")
		p.shows("4711", "left the company <b>")
		p.open("/history")
		if size[0] < 500 {
			p.click("#more-filters")
		}
		value[string](p, `document.querySelector("[name=to]").value = (`+day+`)(-2)`)
		p.click(".past-filters .apply")
		p.sees("No matching calls.")
	}
	if *pictures != "" {
		p.looks("history-all", "/history")
		p.looks("history-found", "/history?q=4711")
		p.looks("history-none", "/history?q=nothing")
	}
}
