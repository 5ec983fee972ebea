package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
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
