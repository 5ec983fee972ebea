package passkey_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/softkey"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var here = passkey.Site{Origin: "http://localhost:8081", ID: "localhost"}

// An office has a store and a clock.
type office struct {
	*testing.T
	passkey.Store

	store *memstore.Store
	now   time.Time
}

func newOffice(t *testing.T) *office {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	o := &office{T: t, store: s, now: time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)}
	o.Store = passkey.Store{Records: s, Journal: s, Now: func() time.Time { return o.now }}
	return o
}

func options(t *testing.T, o any) []byte {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newKey(t *testing.T) *softkey.Key {
	t.Helper()
	return softkey.New(t, here.Origin, here.ID)
}

// removeFirst removes k, after adding another passkey of the same operator.
func (o *office) removeFirst(k *softkey.Key, who string) {
	o.Helper()
	next := newKey(o.T)
	if err := o.Add(o.Context(), o.confirmed(next, who, k)); err != nil {
		o.Fatal(err)
	}
	name := passkey.Passkey{ID: k.ID}.Name()
	if err := o.Remove(o.Context(), name, who, o.sign(next, passkey.ToRemove(name, who)), here); err != nil {
		o.Fatal(err)
	}
	if err := o.Remove(o.Context(), name, who, o.sign(next, passkey.ToRemove(name, who)), here); !errors.Is(err, passkey.ErrNoPasskey) {
		o.Errorf("removed twice: %v", err)
	}
}

// sign returns the answer of k for a challenge.
func (o *office) sign(k *softkey.Key, c passkey.Challenge) string {
	o.Helper()
	return k.Sign(o, options(o.T, map[string]string{"challenge": c.String()}))
}

// request returns a request to add k for an operator.
func (o *office) request(k *softkey.Key, who string) passkey.Request {
	o.Helper()
	created := k.Create(o, options(o.T, here.Creation(who, passkey.ToCreate(who, "session 1"), nil)))
	return passkey.Request{Operator: who, Session: "session 1", Site: here, Label: "phone", Created: created}
}

// first adds the first passkey of the store.
func (o *office) first(who string) *softkey.Key {
	o.Helper()
	code, err := o.First(o.Context(), here.ID, time.Minute)
	if err != nil || code == "" {
		o.Fatalf("code %q, %v", code, err)
	}
	k := newKey(o.T)
	q := o.request(k, who)
	q.Code = code
	if err := o.Add(o.Context(), q); err != nil {
		o.Fatal(err)
	}
	return k
}

var about = gatetask.Statement{Task: "t1", Call: "c1", Shown: "s1", Approver: "alice", Scope: "p1"}

// A signature counts for exactly the statement that was signed.
func TestSignature(t *testing.T) {
	o := newOffice(t)
	k := o.first("alice")
	signed, err := o.Sign(t.Context(), o.sign(k, passkey.ToApprove(about)), here, about)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Verify(t.Context(), signed); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*gatetask.Statement){
		"task": func(s *gatetask.Statement) { s.Task = "t2" }, "call": func(s *gatetask.Statement) { s.Call = "c2" },
		"shown": func(s *gatetask.Statement) { s.Shown = "s2" }, "unread": func(s *gatetask.Statement) { s.Unread = 1 },
		"scope": func(s *gatetask.Statement) { s.Scope = "p2" }, "approver": func(s *gatetask.Statement) { s.Approver = "bob" },
		"grant": func(s *gatetask.Statement) { s.Grant = &gatetask.GrantTerms{Uses: 1} },
	} {
		other := signed
		change(&other.Statement)
		if err := o.Verify(t.Context(), other); !errors.Is(err, passkey.ErrInvalid) {
			t.Errorf("another %s: %v", name, err)
		}
		if err := passkey.Check(other); !errors.Is(err, passkey.ErrInvalid) {
			t.Errorf("another %s, without the store: %v", name, err)
		}
	}
	signed.Key = append([]byte{}, signed.Key...)
	signed.Key[len(signed.Key)-1] ^= 1
	if err := o.Verify(t.Context(), signed); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("another key: %v", err)
	}
}

// Only the passkeys of the approver count, only for this site, and only after the user was verified.
func TestUserMustBeVerified(t *testing.T) {
	o := newOffice(t)
	k := o.first("alice")
	c := passkey.ToApprove(about)
	for name, use := range map[string]func(softkey.Key) string{
		"another site":     func(k softkey.Key) string { k.Site = "example.com"; return o.sign(&k, c) },
		"another origin":   func(k softkey.Key) string { k.Origin = "http://localhost:9999"; return o.sign(&k, c) },
		"not verified":     func(k softkey.Key) string { k.Flags = softkey.Present; return o.sign(&k, c) },
		"nobody present":   func(k softkey.Key) string { k.Flags = softkey.Verified; return o.sign(&k, c) },
		"an unknown key":   func(softkey.Key) string { return o.sign(newKey(t), c) },
		"another purpose":  func(k softkey.Key) string { return o.sign(&k, passkey.ToAdd("alice", "x")) },
		"no answer":        func(softkey.Key) string { return "" },
		"no JSON":          func(softkey.Key) string { return "{" },
		"a long answer":    func(k softkey.Key) string { return o.sign(&k, c) + strings.Repeat(" ", 1<<20) },
		"an answer of add": func(k softkey.Key) string { return o.request(&k, "alice").Created },
	} {
		if _, err := o.Sign(t.Context(), use(*k), here, about); !errors.Is(err, passkey.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A passkey of one operator does not count for another.
func TestSignaturesOfOthers(t *testing.T) {
	o := newOffice(t)
	k := o.first("bob")
	if _, err := o.Sign(t.Context(), o.sign(k, passkey.ToApprove(about)), here, about); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("signed: %v", err)
	}
	var answer struct {
		Response struct{ ClientDataJSON, AuthenticatorData, Signature string }
	}
	if err := json.Unmarshal([]byte(o.sign(k, passkey.ToApprove(about))), &answer); err != nil {
		t.Fatal(err)
	}
	bytes := func(text string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	all, err := o.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stored := gatetask.Signature{
		Credential: k.ID, Key: all[0].Key, Site: here.ID, Statement: about,
		Client: bytes(answer.Response.ClientDataJSON), Auth: bytes(answer.Response.AuthenticatorData), Signature: bytes(answer.Response.Signature),
	}
	if err := passkey.Check(stored); err != nil {
		t.Fatal(err)
	}
	if err := o.Verify(t.Context(), stored); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("stored: %v", err)
	}
}

// A signature does not count after its passkey was removed, and the removed passkey stays known.
func TestRemovedPasskey(t *testing.T) {
	o := newOffice(t)
	k := o.first("alice")
	signed, err := o.Sign(t.Context(), o.sign(k, passkey.ToApprove(about)), here, about)
	if err != nil {
		t.Fatal(err)
	}
	all, err := o.All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	name := all[0].Name()
	if err := o.Remove(t.Context(), name, "alice", "", here); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("removed without a passkey: %v", err)
	}
	if err := o.Remove(t.Context(), name, "alice", o.sign(k, passkey.ToRemove(name, "alice")), here); !errors.Is(err, passkey.ErrLast) {
		t.Errorf("the last passkey is removed: %v", err)
	}
	o.removeFirst(k, "alice")
	if err := o.Verify(t.Context(), signed); !errors.Is(err, passkey.ErrInvalid) {
		t.Error(err)
	}
	if code, err := o.First(t.Context(), here.ID, time.Minute); code != "" || err != nil {
		t.Errorf("after the last passkey was removed, somebody gets a first one: %q, %v", code, err)
	}
	if err := o.Add(t.Context(), o.confirmed(newKey(t), "alice", k)); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("a removed passkey adds another: %v", err)
	}
	q := o.confirmed(k, "alice", k)
	if err := o.Add(t.Context(), q); err == nil {
		t.Error("a removed passkey is added again")
	}
}

// confirmed returns a request to add k, which another key has confirmed.
func (o *office) confirmed(k *softkey.Key, who string, by *softkey.Key) passkey.Request {
	o.Helper()
	q := o.request(k, who)
	q.Confirmed = o.sign(by, passkey.ToAdd(who, q.Created))
	return q
}

// The code of the first passkey counts once, for a while, and while there is no passkey.
func TestFirstPasskey(t *testing.T) {
	o := newOffice(t)
	late, err := o.First(t.Context(), here.ID, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	o.now = o.now.Add(2 * time.Minute)
	q := o.request(newKey(t), "alice")
	for name, code := range map[string]string{"late": late, "wrong": "x", "none": ""} {
		q.Code = code
		if err := o.Add(t.Context(), q); !errors.Is(err, passkey.ErrNotInvited) {
			t.Errorf("a %s code: %v", name, err)
		}
	}
	second, err := o.First(t.Context(), here.ID, time.Minute) // of another gate
	if err != nil {
		t.Fatal(err)
	}
	o.first("alice")
	q = o.request(newKey(t), "mallory")
	q.Code = second
	if err := o.Add(t.Context(), q); !errors.Is(err, passkey.ErrNotInvited) {
		t.Errorf("a code from before the first passkey: %v", err)
	}
	if code, err := o.First(t.Context(), here.ID, time.Minute); code != "" || err != nil {
		t.Errorf("a second code: %q, %v", code, err)
	}
}

// Later passkeys need the signature of another one of the same operator.
func TestFurtherPasskeys(t *testing.T) {
	o := newOffice(t)
	k := o.first("alice")
	q := o.confirmed(newKey(t), "alice", k)
	if err := o.Add(t.Context(), q); err != nil {
		t.Error(err)
	}
	if err := o.Add(t.Context(), q); err == nil {
		t.Error("the same passkey was added twice")
	}
	if err := o.Add(t.Context(), o.confirmed(newKey(t), "mallory", k)); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("confirmed by another operator: %v", err)
	}
	other := o.request(newKey(t), "alice")
	other.Confirmed = q.Confirmed
	if err := o.Add(t.Context(), other); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("confirmed for another passkey: %v", err)
	}
	elsewhere := o.confirmed(newKey(t), "alice", k)
	elsewhere.Session = "session 2"
	if err := o.Add(t.Context(), elsewhere); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("created in another session: %v", err)
	}
	notes, err := o.store.Entries(t.Context(), auditlog.Query{})
	if err != nil || len(notes) < 2 || notes[1].Step != auditlog.PasskeyAdded || notes[1].Actor != "alice" || !strings.HasPrefix(notes[1].Outcome, "confirmed by passkey ") {
		t.Errorf("the journal has %+v, %v", notes, err)
	}
}

// An administrator invites an operator who has no passkey, or has lost all of them.
func TestInvitationOfAdministrator(t *testing.T) {
	o := newOffice(t)
	admin := o.first("carol")
	i := passkey.Invitation{Operator: "bob", By: "carol", Expires: o.now.Add(time.Hour)}
	signed := o.sign(admin, passkey.ToInvite(i))
	code, err := o.Invite(t.Context(), i, signed, here)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Invite(t.Context(), i, signed, here); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("the same confirmation again: %v", err)
	}
	for name, change := range map[string]func(*passkey.Invitation){
		"operator": func(i *passkey.Invitation) { i.Operator = "mallory" },
		"end":      func(i *passkey.Invitation) { i.Expires = i.Expires.Add(time.Minute) },
		"admin":    func(i *passkey.Invitation) { i.By = "mallory" },
		"past":     func(i *passkey.Invitation) { i.Expires = o.now },
	} {
		other := i
		change(&other)
		if _, err := o.Invite(t.Context(), other, signed, here); !errors.Is(err, passkey.ErrInvalid) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	q := o.request(newKey(t), "mallory")
	q.Code = code
	if err := o.Add(t.Context(), q); !errors.Is(err, passkey.ErrNotInvited) {
		t.Errorf("an invitation of another operator: %v", err)
	}
	q = o.request(newKey(t), "bob")
	q.Code = code
	if err := o.Add(t.Context(), q); err != nil {
		t.Error(err)
	}
	q = o.request(newKey(t), "bob")
	q.Code = code
	if err := o.Add(t.Context(), q); !errors.Is(err, passkey.ErrNotInvited) {
		t.Errorf("an invitation that was used: %v", err)
	}
}

// Browsers allow passkeys at names of hosts, over TLS or at localhost.
func TestSites(t *testing.T) {
	for text, want := range map[string]string{
		"http://localhost:8081": "localhost", "https://gate.example.com": "gate.example.com", "https://gate.example.com:8443": "gate.example.com",
		"https://Gate.Example.com": "gate.example.com",
		"http://127.0.0.1:8081":    "", "http://[::1]:8081": "", "https://10.0.0.1": "", "http://gate.example.com": "", "https://": "",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := passkey.SiteAt(u); at.ID != want || (err == nil) != (want != "") {
			t.Errorf("%s: %+v, %v", text, at, err)
		}
	}
}

// A passkey has one operator. Another operator who claims its id gets nothing, also not in the audit log.
func TestAddedPasskeyIsNotAddedAgain(t *testing.T) {
	o := newOffice(t)
	k := o.first("alice")
	forged := newKey(t)
	forged.ID = k.ID
	i := passkey.Invitation{Operator: "bob", By: "alice", Expires: o.now.Add(time.Hour)}
	code, err := o.Invite(t.Context(), i, o.sign(k, passkey.ToInvite(i)), here)
	if err != nil {
		t.Fatal(err)
	}
	q := o.request(forged, "bob")
	q.Code = code
	if err := o.Add(t.Context(), q); !errors.Is(err, passkey.ErrInvalid) {
		t.Errorf("a passkey with the id of another: %v", err)
	}
	entries, err := o.store.Entries(t.Context(), auditlog.Query{})
	if err != nil || len(entries) != 2 {
		t.Errorf("the journal has %+v, %v", entries, err)
	}
}

// Forms can have any bytes.
func TestInvalidUTF8(*testing.T) {
	passkey.ToApprove(gatetask.Statement{Shown: "\xff"})
	passkey.ToAdd("alice", "\xff")
	passkey.ToInvite(passkey.Invitation{Operator: "\xff"})
}

// An invitation ends when the passkey that has confirmed it is removed, because that may be stolen.
func TestInvitationOfRemovedPasskey(t *testing.T) {
	o := newOffice(t)
	k := o.first("alice")
	i := passkey.Invitation{Operator: "bob", By: "alice", Expires: o.now.Add(time.Hour)}
	code, err := o.Invite(t.Context(), i, o.sign(k, passkey.ToInvite(i)), here)
	if err != nil {
		t.Fatal(err)
	}
	o.removeFirst(k, "alice")
	q := o.request(newKey(t), "bob")
	q.Code = code
	if err := o.Add(t.Context(), q); !errors.Is(err, passkey.ErrNotInvited) {
		t.Errorf("an invitation of a removed passkey: %v", err)
	}
}

// Of two starts of a gate that show codes at the same time, only one leads to a first passkey.
func TestTwoFirstPasskeys(t *testing.T) {
	o := newOffice(t)
	var codes []string
	for range 2 {
		code, err := o.First(t.Context(), here.ID, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, code)
	}
	added := make([]error, len(codes))
	o.Records = sameTime{o.Records} // both see that there is no passkey
	for i, who := range []string{"alice", "mallory"} {
		q := o.request(newKey(t), who)
		q.Code = codes[i]
		added[i] = o.Add(t.Context(), q)
	}
	if added[0] != nil || !errors.Is(added[1], passkey.ErrNotInvited) {
		t.Errorf("the first: %v; the second: %v", added[0], added[1])
	}
}

// A sameTime shows no passkeys, as to somebody who looked before they were added.
type sameTime struct {
	gatestore.Records
}

func (sameTime) ListRecords(context.Context, gatestore.RecordQuery) ([]gatestore.Record, error) {
	return nil, nil
}

// A gate that gets another name can have a first passkey there.
func TestFirstPasskeyOfAnotherSite(t *testing.T) {
	o := newOffice(t)
	o.first("alice")
	for site, want := range map[string]bool{here.ID: false, "gate.example.com": true} {
		if code, err := o.First(t.Context(), site, time.Minute); err != nil || (code != "") != want {
			t.Errorf("%s: %q, %v", site, code, err)
		}
	}
}
