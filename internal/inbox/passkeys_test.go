package inbox_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/softkey"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A member is an operator with a browser at localhost and a device with passkeys.
type member struct {
	*browser

	key *softkey.Key
}

// at signs an operator in at localhost.
func (o *fixture) at(t *testing.T, who string) *member {
	t.Helper()
	o.url = strings.Replace(o.url, "127.0.0.1", "localhost", 1)
	return &member{o.signIn(t, who), softkey.New(t, o.url, "localhost")}
}

// options posts a form to an address that answers with options for a passkey, and returns them.
func (m *member) options(page, path string, form url.Values) (what, fields map[string]json.RawMessage) {
	m.t.Helper()
	status, text := m.send(page, path, form)
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); status != http.StatusOK || err != nil {
		m.t.Fatalf("%s: %d\n%s", path, status, text)
	}
	if all["fields"] != nil {
		if err := json.Unmarshal(all["fields"], &fields); err != nil {
			m.t.Fatal(err)
		}
	}
	return all, fields
}

// signing fills a form with the signature that an address asks for.
func (m *member) signing(page, path string, form url.Values) {
	m.t.Helper()
	what, fields := m.options(page, path, form)
	for name, value := range fields {
		form.Set(name, strings.Trim(string(value), `"`))
	}
	form.Set("signed", m.key.Sign(m.t, what["get"]))
}

// adding returns the form that adds the member's key.
func (m *member) adding(code string) url.Values {
	m.t.Helper()
	what, _ := m.options("/passkeys", "/passkeys/new", url.Values{})
	return url.Values{"label": {"phone <1>"}, "code": {code}, "created": {m.key.Create(m.t, what["create"])}}
}

var (
	inviteLink  = regexp.MustCompile(`id="invitation">http://localhost:[0-9]+/passkeys\?code=([A-Z0-9]+)<`)
	passkeyName = regexp.MustCompile(`data-passkey="([0-9a-f]+)"`)
)

// TestPasskeyPage adds, invites and removes passkeys as the pages do, with the roles of the fixture.
func TestPasskeyPage(t *testing.T) {
	o := open(t)
	ada, alice, bob := o.at(t, "ada"), o.at(t, "alice"), o.at(t, "bob")

	// Nobody adds a first passkey by being signed in, and a browser at an IP address is sent to localhost.
	if status, page := alice.send("/passkeys", "/passkeys", alice.adding("")); status != http.StatusForbidden {
		t.Errorf("without an invitation: %d\n%s", status, page)
	}
	if status, page := ada.send("/passkeys", "/passkeys/invite/confirm", url.Values{"operator": {"alice"}}); status != http.StatusForbidden || !strings.Contains(page, "you have none that could confirm it") {
		t.Errorf("an invitation without a passkey: %d\n%s", status, page)
	}
	mustLack(t, alice.get("/passkeys"), "add-passkey")

	code, err := o.approvals.Passkeys().First(t.Context(), "localhost", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	mustHave(t, ada.get("/passkeys?code="+code), "add-passkey")
	status, page := ada.send("/passkeys", "/passkeys", ada.adding(code))
	if status != http.StatusOK {
		t.Fatalf("the first passkey: %d\n%s", status, page)
	}
	mustHave(t, page, "The passkey was added", "phone &lt;1&gt;", "with the code that the gate showed")

	// Only administrators invite, and each invitation is for one operator.
	if status, _ := alice.send("/passkeys", "/passkeys/invite", url.Values{"operator": {"alice"}}); status != http.StatusForbidden {
		t.Errorf("an approver invites: %d", status)
	}
	form := url.Values{"operator": {"alice"}}
	ada.signing("/passkeys", "/passkeys/invite/confirm", form)
	status, page = ada.send("/passkeys", "/passkeys/invite", form)
	link := inviteLink.FindStringSubmatch(page)
	if status != http.StatusOK || link == nil {
		t.Fatalf("invite: %d\n%s", status, page)
	}
	if status, _ := bob.send("/passkeys", "/passkeys", bob.adding(link[1])); status != http.StatusForbidden {
		t.Errorf("bob uses the invitation of alice: %d", status)
	}
	if status, page := alice.send("/passkeys", "/passkeys", alice.adding(link[1])); status != http.StatusOK {
		t.Fatalf("alice uses her invitation: %d\n%s", status, page)
	}

	// Operators see and remove their own passkeys; an administrator sees all of them.
	own := passkeyName.FindAllStringSubmatch(alice.get("/passkeys"), -1)
	if len(own) != 1 {
		t.Fatalf("alice sees %q", own)
	}
	form = url.Values{"passkey": {own[0][1]}}
	if status, page := ada.send("/passkeys", "/passkeys/remove", form); status != http.StatusForbidden || !strings.Contains(page, "Nothing was changed") {
		t.Errorf("ada removes the passkey of alice without hers: %d\n%s", status, page)
	}
	ada.signing("/passkeys", "/passkeys/remove/confirm", form)
	if status, page := bob.send("/passkeys", "/passkeys/remove", maps.Clone(form)); status != http.StatusForbidden || !strings.Contains(page, "There is no such passkey") {
		t.Errorf("bob removes the passkey of alice: %d\n%s", status, page)
	}
	if status, page := ada.send("/passkeys", "/passkeys/remove", form); status != http.StatusOK || !strings.Contains(page, "The passkey was removed") {
		t.Errorf("ada removes the passkey of alice: %d\n%s", status, page)
	}
	mustHave(t, ada.get("/passkeys"), "by ada.")
	mustHave(t, alice.get("/passkeys"), "You have none.")
}

// TestPasskeyApproves approves a call as the page does, and gives a standing approval.
func TestPasskeyApproves(t *testing.T) {
	o := open(t)
	ada := o.at(t, "ada")
	code, err := o.approvals.Passkeys().First(t.Context(), "localhost", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	id := o.hold(t, held{workflow: "keys", args: `{"path":"/a"}`, toolDigest: "v2-1"})
	page := "/approvals/" + string(id)
	mustHave(t, ada.get(page), "This workflow needs your passkey, and you have none.", "This browser, signed in as ada with a token.")
	mustLack(t, ada.get(page), `id="approve"`)
	if status, text := ada.send("/passkeys", "/passkeys", ada.adding(code)); status != http.StatusOK {
		t.Fatalf("%d\n%s", status, text)
	}
	seen := ada.get(page)
	mustHave(t, seen, "Approving asks for your passkey.", `data-sign="`+page+`/confirm"`)
	if status, text := ada.decide(id, "approve", ""); status != http.StatusForbidden || !strings.Contains(text, "This workflow needs your passkey") {
		t.Errorf("without a signature: %d\n%s", status, text)
	}
	form := allowing("path")
	form.Set("shown", regexp.MustCompile(`name="shown" value="([^"]*)"`).FindStringSubmatch(seen)[1])
	form.Set("read", "all")
	ada.signing(page, page+"/confirm", form)
	wider := maps.Clone(form)
	wider.Set("grant_uses", "10")
	if status, text := ada.send(page, page+"/approve", wider); status != http.StatusForbidden || !strings.Contains(text, "does not count") {
		t.Errorf("with a wider standing approval: %d\n%s", status, text)
	}
	o.pass(time.Minute) // the standing approval ends when the signature says
	status, text := ada.send(page, page+"/approve", form)
	if status != http.StatusOK || o.state(t, id) != task.Approved {
		t.Fatalf("approve: %d\n%s", status, text)
	}
	mustHave(t, text, "with a passkey", "Standing approval given", "Approval refused, because the passkey does not count")
}

// A program at another port of localhost can show a page that asks for the passkey. The gate does not accept what
// the person signs there, whatever Host the program sends.
func TestSignatureOfAnotherPort(t *testing.T) {
	o := open(t)
	ada := o.at(t, "ada")
	code, err := o.approvals.Passkeys().First(t.Context(), "localhost", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := ada.send("/passkeys", "/passkeys", ada.adding(code)); status != http.StatusOK {
		t.Fatalf("%d\n%s", status, text)
	}
	id := o.hold(t, held{workflow: "keys", toolDigest: "v2-1"})
	page := "/approvals/" + string(id)
	seen := ada.get(page)
	form := url.Values{"read": {"all"}, "csrf": {hidden.FindStringSubmatch(seen)[1]}}
	form.Set("shown", regexp.MustCompile(`name="shown" value="([^"]*)"`).FindStringSubmatch(seen)[1])
	ada.key.Origin = "http://localhost:9999"
	ada.signing(page, page+"/confirm", form)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.url+page+"/approve", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "localhost:9999"
	r.Header.Set("Origin", "http://localhost:9999")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := ada.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden || o.state(t, id) != task.InputRequired {
		t.Errorf("%d, and the call is %s", answer.StatusCode, o.state(t, id))
	}
}
