package push_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/pushtest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a gate with operators, whose browsers a service serves.
type fixture struct {
	*pushtest.Service

	t       *testing.T
	store   task.GateStore
	auth    *operator.Auth
	push    *push.Push
	may     map[string]bool          // who may decide
	unknown map[string]bool          // who they are now cannot be asked
	slow    map[string]time.Duration // how long it takes to find out who they are now
	cookies map[string]*http.Cookie
}

func tokenOf(name string) string { return "token-of-" + name + "-0123456789" }

func operators(names ...string) (all []operator.Token) {
	for _, name := range names {
		role := operator.Approver
		if name == "vic" {
			role = operator.Viewer
		}
		all = append(all, operator.Token{Hash: operator.HashOf(tokenOf(name)), Name: name, Role: role})
	}
	return all
}

func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, Service: pushtest.New(t, time.Now), store: memstore.New(memstore.Options{}), may: map[string]bool{"ann": true, "bob": true}, cookies: map[string]*http.Cookie{}}
	t.Cleanup(func() { f.store.Close() })
	f.configure(operators("ann", "bob", "carol", "vic"))
	f.push = f.replica(f.Client())
	return f
}

// configure has these be the operators.
func (f *fixture) configure(tokens []operator.Token) {
	f.t.Helper()
	auth, err := operator.New(operator.Config{Tokens: tokens, Records: f.store, Ring: keyring.New(f.store, time.Now), Now: time.Now})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.auth != nil {
		f.auth.Replace(auth)
	}
	f.auth = auth
}

func (f *fixture) replica(client *http.Client) *push.Push {
	return push.New(push.Config{
		Records: f.store, Client: client, Contact: "mailto:ops@example.com",
		Recall:    f.recall,
		MayDecide: func(_ context.Context, _ task.ID, who operator.Operator) (bool, error) { return f.may[who.Name], nil },
		Now:       time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

func (f *fixture) recall(ctx context.Context, login string) (operator.Operator, error) {
	who, err := f.auth.Recall(ctx, login)
	time.Sleep(f.slow[who.Name])
	if f.unknown[who.Name] {
		return operator.Operator{}, &operator.Error{Type: operator.TypeUnavailable, Message: "the identity provider cannot be reached"}
	}
	return who, err
}

// login signs somebody in.
func (f *fixture) login(name string) operator.Operator {
	f.t.Helper()
	mux := http.NewServeMux()
	f.auth.Register(mux)
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"token": {tokenOf(name)}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	r = httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for _, c := range w.Result().Cookies() {
		r.AddCookie(c)
		f.cookies[name] = c
	}
	who, err := f.auth.Authenticate(r)
	if err != nil || who.Login() == "" {
		f.t.Fatalf("%s: %v", name, err)
	}
	return who
}

// logout signs somebody out.
func (f *fixture) logout(who operator.Operator) {
	f.t.Helper()
	mux := http.NewServeMux()
	f.auth.Register(mux)
	r := httptest.NewRequest(http.MethodPost, "/logout", http.NoBody)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set(operator.FormHeader, f.auth.FormToken(who))
	r.AddCookie(f.cookies[who.Name])
	mux.ServeHTTP(httptest.NewRecorder(), r)
}

// subscribe has somebody sign in on a device and subscribe.
func (f *fixture) subscribe(name, device string) operator.Operator {
	f.t.Helper()
	who := f.login(name)
	if err := f.push.Subscribe(f.t.Context(), who, subscription(f.Browser(device))); err != nil {
		f.t.Fatal(err)
	}
	return who
}

// subscription returns a subscription as the gate is told of it.
func subscription(s pushtest.Subscription) push.Subscription { return push.Subscription(s) }

func question() channel.Question {
	q := channel.Question{Stage: channel.Pending, Page: "https://gate/approvals/tg_1"}
	q.Approval = casefile.Approval{ID: "tg_1", Tool: "delete_file", Principal: "agent 7", Arguments: jsontext.Value(`{"path":"/etc/shadow"}`), ExpiresAt: time.Now().Add(10*time.Minute + 30*time.Second)}
	q.Approval.Warnings = []string{"value /etc/shadow"}
	q.Approval.ClientReason = &casefile.Untrusted{Text: "/etc/shadow"}
	return q
}

// kept returns how many subscriptions the store has.
func (f *fixture) kept() int {
	f.t.Helper()
	all, err := f.store.ListRecords(f.t.Context(), task.RecordQuery{Prefix: "push/", Limit: 100})
	if err != nil {
		f.t.Fatal(err)
	}
	return len(all)
}

func (f *fixture) ask(q channel.Question) {
	f.t.Helper()
	if _, err := f.push.Ask(f.t.Context(), q); err != nil {
		f.t.Fatal(err)
	}
}

// Those who may decide are told on all their devices, and nobody else is. A message has
// nothing of the arguments, and all messages have the same size.
func TestPush(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.subscribe("ann", "desktop")
	f.subscribe("bob", "bobs")
	f.subscribe("carol", "carols")
	f.ask(question())
	got := f.All()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"bobs", "desktop", "phone"}) {
		t.Errorf("told: %v", names)
	}
	one := got["phone"][0]
	if one.ID != "tg_1" || one.Title != "Approval needed" || one.Body != "delete_file for agent 7, 10 min left" || one.Silent || one.Urgency != "high" || one.Topic == "" {
		t.Errorf("the message: %+v", one)
	}
	q := question()
	q.Reminder = 1
	if err := f.push.Remind(t.Context(), "", q); err != nil {
		t.Fatal(err)
	}
	reminder := f.All()["phone"][0]
	q.Reminder, q.Stage, q.Approval.Tool = 0, channel.Rejected, strings.Repeat("ü", 1000)
	if err := f.push.Update(t.Context(), "", q); err != nil {
		t.Fatal(err)
	}
	end := f.All()["phone"][0]
	if reminder.Title != "Still waiting for a decision" || end.Title != "Rejected" || !end.Silent || end.Topic != one.Topic || end.Size != one.Size {
		t.Errorf("reminder %+v, end %+v", reminder, end)
	}
}

// Another replica signs with the same key, which browsers are bound to.
func TestReplicasShareTheKey(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.ask(question())
	other := f.replica(f.Client())
	if _, err := other.Ask(t.Context(), question()); err != nil { // the service compares the keys
		t.Fatal(err)
	}
	one, err := f.push.Key(t.Context())
	if two, failed := other.Key(t.Context()); err != nil || failed != nil || one != two || one != f.Key() {
		t.Errorf("keys %q and %q", one, two)
	}
}

// A subscription ends with the login that made it, when its owner may not decide any
// more, and when the push service does not know it any more.
func TestSubscriptionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*fixture, operator.Operator)
		left int
	}{
		"signed out":           {func(f *fixture, who operator.Operator) { f.logout(who) }, 0},
		"no operator any more": {func(f *fixture, _ operator.Operator) { f.configure(operators("bob")) }, 0},
		"a viewer now": {func(f *fixture, _ operator.Operator) {
			f.configure([]operator.Token{{Hash: operator.HashOf(tokenOf("ann")), Name: "ann", Role: operator.Viewer}})
		}, 0},
		"unsubscribed":           {func(f *fixture, who operator.Operator) { f.push.Unsubscribe(f.t.Context(), who) }, 0},
		"gone":                   {func(f *fixture, _ operator.Operator) { f.Answers("phone", http.StatusGone) }, 0},
		"not found":              {func(f *fixture, _ operator.Operator) { f.Answers("phone", http.StatusNotFound) }, 0},
		"not allowed to decide":  {func(f *fixture, _ operator.Operator) { f.may["ann"] = false }, 1},
		"no operator, and again": {func(f *fixture, _ operator.Operator) { f.configure(operators("bob")); f.configure(operators("ann")) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			who := f.subscribe("ann", "phone")
			c.end(f, who)
			f.ask(question())
			told := len(f.All()["phone"]) > 0
			if n := f.kept(); n != c.left || told != (name == "no operator, and again") {
				t.Errorf("%d subscriptions are left, told %t", n, told)
			}
		})
	}
}

// A browser that subscribes again with another login is told once.
func TestSameBrowser(t *testing.T) {
	f := open(t)
	phone := subscription(f.Browser("phone"))
	for range 2 {
		who := f.login("ann")
		for range 2 {
			if err := f.push.Subscribe(t.Context(), who, phone); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.ask(question())
	if got := f.All()["phone"]; len(got) != 1 || f.kept() != 2 {
		t.Errorf("told %d times, %d subscriptions", len(got), f.kept())
	}
}

// Nothing but an endpoint of a push service is taken, and only of somebody who has
// signed in.
func TestSubscriptionsRefused(t *testing.T) {
	f := open(t)
	good := subscription(f.Browser("phone"))
	who := f.login("ann")
	for name, change := range map[string]func(*push.Subscription){
		"no encryption":  func(s *push.Subscription) { s.Endpoint = strings.Replace(s.Endpoint, "https", "http", 1) },
		"another scheme": func(s *push.Subscription) { s.Endpoint = "file:///etc/passwd" },
		"no host":        func(s *push.Subscription) { s.Endpoint = "https:///x" },
		"a password":     func(s *push.Subscription) { s.Endpoint = "https://a:b@push.example.com/x" },
		"a long one":     func(s *push.Subscription) { s.Endpoint += strings.Repeat("x", 1000) },
		"no key":         func(s *push.Subscription) { s.Key = "" },
		"no point":       func(s *push.Subscription) { s.Key = base64.RawURLEncoding.EncodeToString(make([]byte, 65)) },
		"a short secret": func(s *push.Subscription) { s.Auth = "AAAA" },
	} {
		bad := good
		change(&bad)
		if err := f.push.Subscribe(t.Context(), who, bad); !errors.Is(err, push.ErrEndpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.push.Subscribe(t.Context(), operator.Operator{Name: "ann", Role: operator.Admin}, good); !errors.Is(err, push.ErrNoLogin) {
		t.Errorf("without a login: %v", err)
	}
	if f.kept() != 0 {
		t.Error("a subscription was kept")
	}
}

// The gate connects to no private address because a browser says so.
func TestPrivateAddress(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	client := webhook.NewClient(webhook.Reach{Timeout: time.Minute})
	client.Transport.(*http.Transport).TLSClientConfig = f.Client().Transport.(*http.Transport).TLSClientConfig
	_, err := f.replica(client).Ask(t.Context(), question())
	if err == nil || !strings.Contains(err.Error(), "private") || strings.Contains(err.Error(), "/phone") || len(f.All()) > 0 {
		t.Errorf("a private address: %v", err)
	}
}

// A service that has no time for anybody is asked later. If others could be told, it is
// left at that.
func TestServiceFails(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.Answers("phone", http.StatusTooManyRequests)
	_, err := f.push.Ask(t.Context(), question())
	var later *channel.RetryError
	if !errors.As(err, &later) || later.After != 7*time.Second || !surelyNotSent(err) {
		t.Errorf("a busy service: %v", err)
	}
	f.subscribe("bob", "bobs")
	f.ask(question())
	if diff := cmp.Diff([]string{"bobs"}, slices.Sorted(maps.Keys(f.All()))); diff != "" {
		t.Error(diff)
	}
	if f.kept() != 2 {
		t.Errorf("%d subscriptions", f.kept())
	}
}

// surelyNotSent reports whether an error says that nobody was told.
func surelyNotSent(err error) bool { return errors.As(err, new(*channel.UnsentError)) }

// A service that fails may have told somebody. One that fails while another refuses may
// have as well.
func TestMayHaveTold(t *testing.T) {
	for name, c := range map[string]struct {
		anns, bobs int
		unsent     bool
	}{
		"both refuse": {http.StatusForbidden, http.StatusTooManyRequests, true},
		"the first":   {http.StatusBadGateway, http.StatusForbidden, false},
		"the second":  {http.StatusForbidden, http.StatusBadGateway, false},
		"one is gone": {http.StatusBadGateway, http.StatusGone, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.subscribe("ann", "phone")
			f.subscribe("bob", "bobs")
			f.Answers("phone", c.anns)
			f.Answers("bobs", c.bobs)
			if _, err := f.push.Ask(t.Context(), question()); err == nil || surelyNotSent(err) != c.unsent {
				t.Error(err)
			}
		})
	}
}

// Subscribers of whom nobody knows for the moment whether they may be told are told
// later, unless somebody else could be.
func TestNobodyKnown(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.unknown = map[string]bool{"ann": true}
	if _, err := f.push.Ask(t.Context(), question()); !surelyNotSent(err) || !strings.Contains(err.Error(), "identity provider") {
		t.Errorf("nobody is known: %v", err)
	}
	f.subscribe("bob", "bobs")
	f.Answers("bobs", http.StatusGone)
	if _, err := f.push.Ask(t.Context(), question()); !surelyNotSent(err) {
		t.Errorf("the only one who is known is gone: %v", err)
	}
	f.subscribe("bob", "new")
	f.ask(question())
	f.unknown = nil
	f.ask(question())
	if got := f.All(); len(got["phone"]) != 1 || len(got["new"]) != 2 || f.kept() != 2 {
		t.Errorf("told %v", got)
	}
}

// A handlerTransport has a handler answer requests, without a network.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	res := w.Result()
	res.Request = r
	return res, nil
}

// An identity provider that answers slowly, or not at all, keeps nobody from being told
// whom the gate knows without it, and takes no longer than a message may.
func TestSlowProvider(t *testing.T) {
	const devices, limit = 10, 20 * time.Second
	for name, c := range map[string]struct {
		takes time.Duration
		told  int
	}{
		"slow":  {2 * time.Second, devices + 1},
		"hangs": {time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			for n := range devices {
				f.subscribe("ann", strconv.Itoa(n))
			}
			f.subscribe("bob", "bobs")
			f.slow = map[string]time.Duration{"ann": c.takes}
			synctest.Test(t, func(t *testing.T) {
				p := f.replica(&http.Client{Transport: handlerTransport{f.Service}})
				ctx, stop := context.WithTimeout(t.Context(), limit)
				defer stop()
				if _, err := p.Ask(ctx, question()); err != nil || ctx.Err() != nil {
					t.Errorf("%v, %v", err, ctx.Err())
				}
				p.Wait()
			})
			if got := f.All(); len(got) != c.told || len(got["bobs"]) != 1 || f.kept() != devices+1 {
				t.Errorf("told %v; %d subscriptions are kept", got, f.kept())
			}
		})
	}
}

// A gate that is being stopped does not wait for an identity provider in order to know
// whom it cannot tell any more, and sends nothing.
func TestStoppedWhileAsking(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	asked, release := make(chan struct{}), make(chan struct{})
	p := push.New(push.Config{
		Records: f.store, Client: f.Client(), Contact: "mailto:ops@example.com", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Recall: func(ctx context.Context, login string) (operator.Operator, error) {
			close(asked)
			<-release
			return f.auth.Recall(ctx, login)
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Ask(ctx, question())
		done <- err
	}()
	<-asked
	stop()
	select {
	case err := <-done:
		if !surelyNotSent(err) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
	close(release)
	p.Wait()
}
