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

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/pushtest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a push channel with operators and a push service for their browsers.
type fixture struct {
	*pushtest.Service

	t       *testing.T
	store   gatestore.Store
	auth    *operator.Auth
	push    *push.Push
	may     map[string]bool          // operators who may decide
	unknown map[string]bool          // operators whose lookup fails
	slow    map[string]time.Duration // how long lookups take, by operator
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

// configure replaces the operators.
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
		FindOperator: f.findOperator,
		MayDecide:    func(_ context.Context, _ task.ID, who operator.Operator) (bool, error) { return f.may[who.Name], nil },
		Now:          time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

func (f *fixture) findOperator(ctx context.Context, session string) (operator.Operator, error) {
	who, err := f.auth.FindOperator(ctx, session)
	time.Sleep(f.slow[who.Name])
	if f.unknown[who.Name] {
		return operator.Operator{}, &operator.Error{Type: operator.TypeUnavailable, Message: "the identity provider cannot be reached"}
	}
	return who, err
}

// login signs an operator in.
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
	if err != nil || who.SessionID() == "" {
		f.t.Fatalf("%s: %v", name, err)
	}
	return who
}

// logout signs an operator out.
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

// subscribe signs an operator in on a device and subscribes.
func (f *fixture) subscribe(name, device string) operator.Operator {
	f.t.Helper()
	who := f.login(name)
	if err := f.push.Subscribe(f.t.Context(), who, subscription(f.Browser(device))); err != nil {
		f.t.Fatal(err)
	}
	return who
}

// subscription returns a subscription as the gate receives it.
func subscription(s pushtest.Subscription) push.Subscription { return push.Subscription(s) }

func question() channel.Question {
	q := channel.Question{Stage: channel.Pending, Page: "https://gate/approvals/tg_1"}
	q.Approval = review.Approval{ID: "tg_1", Tool: "delete_file", Principal: "agent 7", Arguments: jsontext.Value(`{"path":"/etc/shadow"}`), ExpiresAt: time.Now().Add(10*time.Minute + 30*time.Second)}
	q.Approval.Warnings = []string{"value /etc/shadow"}
	q.Approval.ClientReason = &review.Untrusted{Text: "/etc/shadow"}
	return q
}

// kept returns the number of stored subscriptions.
func (f *fixture) kept() int {
	f.t.Helper()
	all, err := f.store.ListRecords(f.t.Context(), gatestore.RecordQuery{Prefix: "push/", Limit: 100})
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

// Only operators who may decide are notified, on all their devices. A message contains no
// arguments, and all messages have the same size.
func TestOnlyApproversAreNotified(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.subscribe("ann", "desktop")
	f.subscribe("bob", "bobs")
	f.subscribe("carol", "carols")
	f.ask(question())
	got := f.All()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"bobs", "desktop", "phone"}) {
		t.Errorf("notified: %v", names)
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

// All replicas sign with the key to which subscriptions are bound.
func TestReplicasSharePushKey(t *testing.T) {
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

// A subscription ends with its session, when its owner is no longer an approver, and when
// the push service no longer knows it.
func TestSubscriptionEndsWithRights(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*fixture, operator.Operator)
		left int
	}{
		"signed out": {func(f *fixture, who operator.Operator) { f.logout(who) }, 0},
		"removed":    {func(f *fixture, _ operator.Operator) { f.configure(operators("bob")) }, 0},
		"a viewer now": {func(f *fixture, _ operator.Operator) {
			f.configure([]operator.Token{{Hash: operator.HashOf(tokenOf("ann")), Name: "ann", Role: operator.Viewer}})
		}, 0},
		"unsubscribed":          {func(f *fixture, who operator.Operator) { f.push.Unsubscribe(f.t.Context(), who) }, 0},
		"gone":                  {func(f *fixture, _ operator.Operator) { f.Answers("phone", http.StatusGone) }, 0},
		"not found":             {func(f *fixture, _ operator.Operator) { f.Answers("phone", http.StatusNotFound) }, 0},
		"not allowed to decide": {func(f *fixture, _ operator.Operator) { f.may["ann"] = false }, 1},
		"removed and restored":  {func(f *fixture, _ operator.Operator) { f.configure(operators("bob")); f.configure(operators("ann")) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			who := f.subscribe("ann", "phone")
			c.end(f, who)
			f.ask(question())
			notified := len(f.All()["phone"]) > 0
			if n := f.kept(); n != c.left || notified != (name == "removed and restored") {
				t.Errorf("%d subscriptions are left, notified: %t", n, notified)
			}
		})
	}
}

func TestBrowserWithTwoSessionsIsNotifiedOnce(t *testing.T) {
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
		t.Errorf("notified %d times, %d subscriptions", len(got), f.kept())
	}
}

// Only operators who have signed in can subscribe, and only with an https endpoint.
func TestInvalidSubscriptionIsRefused(t *testing.T) {
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

// An endpoint cannot make the gate connect to a private address.
func TestPushToPrivateAddressIsRefused(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	client := webhook.NewClient(webhook.ClientConfig{Timeout: time.Minute})
	client.Transport.(*http.Transport).TLSClientConfig = f.Client().Transport.(*http.Transport).TLSClientConfig
	_, err := f.replica(client).Ask(t.Context(), question())
	if err == nil || !strings.Contains(err.Error(), "private") || strings.Contains(err.Error(), "/phone") || len(f.All()) > 0 {
		t.Errorf("a private address: %v", err)
	}
}

// A message is retried if the push service is busy. It is not retried if another browser
// received it.
func TestFailedPushIsRetriedIfNoBrowserReceivedIt(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.Answers("phone", http.StatusTooManyRequests)
	_, err := f.push.Ask(t.Context(), question())
	var later *channel.RetryError
	if !errors.As(err, &later) || later.After != 7*time.Second || !certainlyNotSent(err) {
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

func certainlyNotSent(err error) bool { return errors.As(err, new(*channel.NotSentError)) }

// After a server error the message may have arrived, also if another push service refused
// it.
func TestServerErrorCountsAsPossiblySent(t *testing.T) {
	for name, c := range map[string]struct {
		anns, bobs int
		notSent    bool
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
			if _, err := f.push.Ask(t.Context(), question()); err == nil || certainlyNotSent(err) != c.notSent {
				t.Error(err)
			}
		})
	}
}

// A message is retried if the identity provider cannot be reached for the only owners,
// but not if another owner received it.
func TestUnknownOwnersAreNotifiedLater(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	f.unknown = map[string]bool{"ann": true}
	if _, err := f.push.Ask(t.Context(), question()); !certainlyNotSent(err) || !strings.Contains(err.Error(), "identity provider") {
		t.Errorf("the owner is unknown: %v", err)
	}
	f.subscribe("bob", "bobs")
	f.Answers("bobs", http.StatusGone)
	if _, err := f.push.Ask(t.Context(), question()); !certainlyNotSent(err) {
		t.Errorf("the only known subscription is gone: %v", err)
	}
	f.subscribe("bob", "new")
	f.ask(question())
	f.unknown = nil
	f.ask(question())
	if got := f.All(); len(got["phone"]) != 1 || len(got["new"]) != 2 || f.kept() != 2 {
		t.Errorf("notified: %v", got)
	}
}

// A handlerTransport passes requests to a handler, without a network.
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

// A slow identity provider delays only notifications of its own users, and a message is
// sent within its time limit.
func TestSlowProviderDelaysOnlyItsUsers(t *testing.T) {
	const devices, limit = 10, 20 * time.Second
	for name, c := range map[string]struct {
		takes    time.Duration
		notified int
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
				p.Close()
			})
			if got := f.All(); len(got) != c.notified || len(got["bobs"]) != 1 || f.kept() != devices+1 {
				t.Errorf("notified: %v; %d subscriptions are stored", got, f.kept())
			}
		})
	}
}

// Sending stops with the gate, without waiting for the identity provider.
func TestStopDoesNotWaitForProvider(t *testing.T) {
	f := open(t)
	f.subscribe("ann", "phone")
	asked, release := make(chan struct{}), make(chan struct{})
	p := push.New(push.Config{
		Records: f.store, Client: f.Client(), Contact: "mailto:ops@example.com", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		FindOperator: func(ctx context.Context, session string) (operator.Operator, error) {
			close(asked)
			<-release
			return f.auth.FindOperator(ctx, session)
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
		if !certainlyNotSent(err) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Ask still waits for the lookup")
	}
	close(release)
	p.Close()
}
