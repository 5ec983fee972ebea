package browser_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

// A person connects a server that wants OAuth: the browser goes to the authorization server, which is another
// site, and comes back signed in.
func TestConnectInTheBrowser(t *testing.T) {
	auth := authserver.New(t, authserver.Options{})
	s := openInFront(t, plainRules+"workflows: {default: {confirm: passkey}}\n", ", auth: {oauth: {grant: shared}}", func(h http.Handler) http.Handler {
		return auth.Protect("/mcp", h)
	})
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.at = strings.Replace(s.operators, "127.0.0.1", "localhost", 1) // not the site of the authorization server
	p.logIn(s.token)
	p.open("/connections")
	p.sees("Not connected")
	script, err := axe()
	if err == nil {
		p.accessible("the connections", script)
	}
	p.click("section form button")
	p.sees("You continue at 127.0.0.1")
	p.click("a.button.primary")
	p.eventually(`location.pathname === "/connections" && location.search === ""`, "the page of connections, without the code")
	p.sees("Connected by")
	if err == nil {
		p.accessible("a connection", script)
	}
	held := s.ask(t, "delete_file", map[string]any{"path": "/a"}) // lists the tools with the token
	p.open("/")
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	p.open(value[string](p, `document.querySelector(".row .open").pathname`))
	p.click("#reject")
	p.sees("Rejected by operator")
	if got := held.wait(t); strings.Contains(got, "done") {
		t.Error(got)
	}
	p.open("/connections")
	p.click("button.danger")
	p.sees("The connection was removed")
}
