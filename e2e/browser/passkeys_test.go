package browser_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
)

const passkeyRules = plainRules + "workflows: {default: {confirm: passkey, grants: {longest: 1h, uses: 5}}}\n"

// device gives the person's browser a device with passkeys, and returns its id.
func (p *person) device() webauthn.AuthenticatorID {
	p.t.Helper()
	p.do(send(webauthn.Enable, webauthn.EnableParams{}))
	var added webauthn.AddVirtualAuthenticatorResult
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) (err error) {
		added, err = cdp.Call(ctx, t, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Ctap2version: webauthn.Ctap2versionCtap21, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
		return err
	}))
	return added.AuthenticatorID
}

// addFirstPasskey signs in at localhost and adds the first passkey of the gate, with the link that the gate prints.
func (p *person) addFirstPasskey(s *site) {
	p.t.Helper()
	link, err := s.gate.FirstPasskeyLink(p.t.Context())
	if err != nil || !strings.HasPrefix(link, "http://localhost:") {
		p.t.Fatalf("%q, %v", link, err)
	}
	p.at = strings.Replace(s.operators, "127.0.0.1", "localhost", 1)
	p.logIn(s.token)
	p.open(strings.TrimPrefix(link, p.at))
	p.do(chromedp.SendKeys(chromedp.CSS("#label"), "laptop"))
	p.click("#add-passkey button")
	p.sees("The passkey was added")
}

// With a passkey, a person approves in the browser, alone and with a standing approval. Without it, nothing
// that a program of the person can do approves.
func TestPasskeyInTheBrowser(t *testing.T) {
	s := open(t, passkeyRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	device := p.device()

	// At an IP address the page says what to do.
	first := s.ask(t, "delete_file", map[string]any{"path": "/a"})
	p.logIn(s.token)
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	page := value[string](p, `document.querySelector(".row .open").pathname`)
	p.open(page)
	p.sees("browsers do not allow passkeys at this address")
	if value[int](p, `document.querySelectorAll("#approve").length`) != 0 {
		t.Error("a button that cannot work")
	}
	p.addFirstPasskey(s)

	// The token alone does not approve.
	refuseTokenApproval(t, s, page)

	p.open(page)
	p.sees("Approving asks for your passkey")
	if script, err := axe(); err == nil {
		p.accessible("a call that needs a passkey", script)
	}
	// The person is not verified, for instance because somebody else has the device.
	p.do(send(webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: device, IsUserVerified: false}))
	p.click("#approve")
	p.sees("The passkey was not used, so nothing was changed")
	p.do(send(webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: device, IsUserVerified: true}))
	value[string](p, `document.querySelector("#grant-uses").value = "2"`)
	p.click("#approve")
	if got := first.wait(t); got != "done: delete_file" {
		t.Error(got)
	}
	p.click("#notice a")
	p.sees("with a passkey")
	if got := s.ask(t, "delete_file", map[string]any{"path": "/a"}).wait(t); got != "done: delete_file" {
		t.Errorf("under the standing approval: %s", got)
	}

	// The last passkey stays, and a call can be rejected without it.
	p.open("/passkeys")
	p.sees("laptop")
	if script, err := axe(); err == nil {
		p.accessible("the passkeys", script)
	}
	p.tolerate("403 (Forbidden)")
	p.click(".passkey button")
	p.sees("This is the last passkey")
	third := s.ask(t, "refund_payment", map[string]any{"amount": 1})
	p.open("/")
	p.eventually(`document.querySelectorAll(".row").length === 1`, "a row")
	p.open(value[string](p, `document.querySelector(".row .open").pathname`))
	p.click("#reject")
	if got := third.wait(t); strings.Contains(got, "done") {
		t.Error(got)
	}
	if link, err := s.gate.FirstPasskeyLink(t.Context()); link != "" || err != nil {
		t.Errorf("a second first passkey: %q, %v", link, err)
	}
	if calls := s.upstream.calls(); len(calls) != 2 {
		t.Errorf("the upstream got %q", calls)
	}
}

// refuseTokenApproval checks that an approval with the operator's token is refused.
func refuseTokenApproval(t *testing.T, s *site, page string) {
	t.Helper()
	ask := func(method, path, body string, to any) int {
		r, err := http.NewRequestWithContext(t.Context(), method, s.operators+"/api"+page+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if err := json.NewDecoder(answer.Body).Decode(to); err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	var shown struct{ ShownDigest string }
	ask(http.MethodGet, "", "", &shown)
	var refused struct {
		Error struct{ Type, Message string }
	}
	status := ask(http.MethodPost, "/approve", `{"shownDigest":"`+shown.ShownDigest+`"}`, &refused)
	if status != http.StatusForbidden || refused.Error.Type != "passkey_required" || !strings.Contains(refused.Error.Message, ": http://localhost:") {
		t.Errorf("approved with the token: %d %+v", status, refused)
	}
}
