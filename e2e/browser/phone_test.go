package browser_test

import "testing"

// On a phone the first call is near the top, notifications can be turned on, and the filters open.
func TestPhone(t *testing.T) {
	s := open(t, grantRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	s.ask(t, "delete_file", map[string]any{"path": "/a"})
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	p.resize(390, 844)
	p.open("/")
	p.eventually(`document.querySelector("#notify").offsetHeight > 0`, "the button for notifications")
	p.eventually(`document.querySelector(".row").getBoundingClientRect().top < 240`, "the first call near the top")
	p.eventually(`document.querySelector("[name=tool]").offsetHeight === 0`, "the filters are hidden")
	p.click("#more-filters")
	p.eventually(`document.querySelector("[name=tool]").offsetHeight > 0`, "the filters are shown")
}

// The buttons are in view on small and large screens, also if a standing approval is offered.
func TestButtonsAreInView(t *testing.T) {
	s := open(t, grantRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	s.ask(t, "delete_file", map[string]any{"path": "/a", "force": false})
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	page := value[string](p, `document.querySelector(".row .open").pathname`)
	for _, size := range [][2]int64{{1440, 900}, {1280, 720}, {390, 844}} {
		p.resize(size[0], size[1])
		p.open(page)
		p.eventually(`document.querySelector("#approve").getBoundingClientRect().bottom <= innerHeight`, "Approve is in view")
	}
}
