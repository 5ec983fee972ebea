package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "correct horse battery staple"

// A fixture is a service served like that of a gate.
type fixture struct {
	service *approval.Service
	server  *httptest.Server
	client  *client.Client
	down    atomic.Bool // every new request gets status 503
}

func open(t *testing.T) *fixture {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	service, err := approval.New(approval.Config{
		Store:    store,
		Judge:    func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Deny} },
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{Quorum: 2}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	auth, err := operator.New(operator.Config{
		Tokens:  []operator.Token{{Hash: operator.HashOf(secret), Name: "alice", Role: operator.Approver}},
		Records: memstore.New(memstore.Options{}), Ring: keyring.Ephemeral(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.New(api.Config{Approvals: service, Viewer: service.Viewer(), Auth: auth, KeepAlive: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o := &fixture{service: service}
	o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(o.server.Close)
	o.client = dial(t, client.Config{URL: o.server.URL})
	return o
}

func dial(t *testing.T, c client.Config) *client.Client {
	t.Helper()
	c.Backoff = time.Millisecond
	if c.Token == "" {
		c.Token = secret
	}
	made, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return made
}

// hold holds a call by ann.
func (o *fixture) hold(t *testing.T, file string) task.ID {
	t.Helper()
	held, _, err := o.service.Hold(t.Context(), approval.Call{
		Owner: file, Principal: policy.Principal{ID: "ann"}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "two", Reason: "rules[0]"},
		Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":%q}}}`, file),
	})
	if err != nil {
		t.Fatal(err)
	}
	return held.ID
}

func refused(t *testing.T, err error, status int, kind string) {
	t.Helper()
	got, ok := errors.AsType[*client.Error](err)
	if !ok || got.Status != status || got.Type != kind || got.Error() == "" {
		t.Errorf("got %#v; want %d %s", err, status, kind)
	}
}

func TestRequests(t *testing.T) {
	o, ctx := open(t), t.Context()
	if all, err := o.client.List(ctx, client.Selection{State: "pending"}); err != nil || all == nil || len(all) > 0 {
		t.Errorf("empty list = %v, %v", all, err)
	}
	var held []task.ID
	for i := range 150 { // more than one page
		held = append(held, o.hold(t, fmt.Sprint("/", i)))
	}
	slices.Reverse(held)
	all, err := o.client.List(ctx, client.Selection{State: "pending"})
	if err != nil {
		t.Fatal(err)
	}
	var listed []task.ID
	for _, a := range all {
		listed = append(listed, a.ID)
	}
	if diff := cmp.Diff(held, listed); diff != "" {
		t.Error(diff)
	}
	a, err := o.decide(ctx, held[0], approval.Approve, "fine")
	if err != nil || a.State != task.InputRequired || a.Approvals[0].Reason != "fine" {
		t.Errorf("approved: %+v, %v", a, err)
	}
	_, err = o.decide(ctx, held[0], approval.Approve, "")
	refused(t, err, http.StatusConflict, "already_decided")
	if a, err = o.decide(ctx, held[0], approval.Reject, "no"); err != nil || a.State != task.Rejected {
		t.Errorf("rejected: %+v, %v", a, err)
	}
	_, err = o.decide(ctx, held[0], approval.Approve, "")
	refused(t, err, http.StatusGone, "ended")
	if a, err = o.client.Show(ctx, held[0]); err != nil || a.Rejection.Reason != "no" {
		t.Errorf("shown: %+v, %v", a, err)
	}
	_, err = o.client.Show(ctx, "tg_../events?x#y")
	refused(t, err, http.StatusNotFound, "not_found")
	_, err = dial(t, client.Config{URL: o.server.URL, Token: "wrong"}).List(ctx, client.Selection{State: "pending"})
	refused(t, err, http.StatusUnauthorized, "unauthorized")
	_, err = dial(t, client.Config{URL: o.server.URL + "/else/where"}).List(ctx, client.Selection{State: "pending"})
	refused(t, err, http.StatusNotFound, "not_found")
}

func TestFind(t *testing.T) {
	o, ctx := open(t), t.Context()
	id := o.hold(t, "/a")
	for _, text := range []string{string(id), string(id.Short()), string(id[3:16]), strings.ToUpper(string(id[3:20])), string(id[3:])} {
		if got, err := o.client.Find(ctx, text); err != nil || got != id {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":         `"" is too short: give at least 4 characters of the id`,
		"tg_":      `"tg_" is too short: give at least 4 characters of the id`,
		"abc":      `"abc" is too short: give at least 4 characters of the id`,
		"tg_nobod": `no approval "tg_nobod"`,
		// The id of another call that is held at the same moment has the same start.
		string(id[:12]):  `"` + string(id[:12]) + `" is little more than the time of an approval: give as much of the id as lists show`,
		string(id[3:15]): `"` + string(id[3:15]) + `" is little more than the time of an approval: give as much of the id as lists show`,
	} {
		if _, err := o.client.Find(ctx, text); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	if _, err := o.decide(ctx, id, approval.Reject, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := o.client.Find(ctx, string(id.Short())); err != nil || got != id {
		t.Errorf("ended: %s, %v", got, err)
	}
}

// An ambiguous abbreviation matches nothing, and a pending call is preferred to an ended one.
// The ids are those of earlier versions, which are random from their beginning.
func TestAmbiguousIDMatchesNothing(t *testing.T) {
	lists := map[string]string{
		"pending": `{"approvals":[{"id":"tg_aaaa1-"},{"id":"tg_aaaa2-"},{"id":"tg_bbbb1-"}]}`,
		"all":     `{"approvals":[{"id":"tg_aaaa1-"},{"id":"tg_aaaa2-"},{"id":"tg_bbbb1-"},{"id":"tg_bbbb2-"},{"id":"tg_cccc1-"},{"id":"tg_cccc2-"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, lists[r.URL.Query().Get("state")])
	}))
	defer server.Close()
	c := dial(t, client.Config{URL: server.URL})
	if id, err := c.Find(t.Context(), "bbbb"); err != nil || id != "tg_bbbb1-" {
		t.Errorf("found %s, %v", id, err)
	}
	for _, text := range []string{"tg_aaaa", "tg_cccc"} {
		id, err := c.Find(t.Context(), text)
		if bad, ok := errors.AsType[*client.IDError](err); !ok || bad.Matches != 2 {
			t.Errorf("%s found %q, %v", text, id, err)
		}
	}
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:8081", "ftp://x", "http://", "http://me:pw@x", "unix:/x", "http://[::1"} {
		if _, err := client.New(client.Config{URL: address, Token: "x"}); err == nil {
			t.Errorf("New accepted %q", address)
		}
	}
	if _, err := client.New(client.Config{URL: "http://x"}); err == nil {
		t.Error("New accepted an empty token")
	}
}

// Only the API gets the token. Answers from other servers are rejected.
func TestOnlyTheAPIGetsTheToken(t *testing.T) {
	var met atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met.Store(true) }))
	defer other.Close()
	answers := map[string]http.HandlerFunc{
		"redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
		"page":      func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"error":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", http.StatusTeapot) },
		"broken":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"endless":   func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
		"duplicate": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"approvals":[],"approvals":[]}`) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			_, err := dial(t, client.Config{URL: server.URL, Timeout: 100 * time.Millisecond}).List(t.Context(), client.Selection{State: "pending"})
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v", err)
			}
		})
	}
	if met.Load() {
		t.Error("the client followed a redirect")
	}
}

// A viewer collects the events of a watch.
type viewer struct {
	t    *testing.T
	told chan string
	done chan struct{}
	stop context.CancelFunc
}

func watch(t *testing.T, c *client.Client) *viewer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	v := &viewer{t, make(chan string, 1000), make(chan struct{}), stop}
	go func() {
		defer close(v.done)
		for e, err := range c.Watch(ctx) {
			if _, lost := errors.AsType[*client.LostError](err); lost {
				continue
			}
			if err != nil {
				v.told <- "error: " + err.Error()
				continue
			}
			v.told <- fmt.Sprintf("%s %s %d", e.Kind, e.Approval.ID, len(e.Approval.Approvals))
		}
	}()
	t.Cleanup(func() { stop(); <-v.done })
	return v
}

func (v *viewer) next(want string) {
	v.t.Helper()
	select {
	case got := <-v.told:
		if got != want {
			v.t.Fatalf("event %q; want %q", got, want)
		}
	case <-time.After(time.Minute):
		v.t.Fatalf("missing event %q", want)
	}
}

func TestWatch(t *testing.T) {
	o, ctx := open(t), t.Context()
	first := o.hold(t, "/a")
	v := watch(t, o.client)
	v.next(fmt.Sprintf("pending %s 0", first))
	if _, err := o.decide(ctx, first, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	v.next(fmt.Sprintf("pending %s 1", first))
	second := o.hold(t, "/b")
	v.next(fmt.Sprintf("pending %s 0", second))

	// The stream breaks, and a call is decided before it is reconnected. Each event is reported
	// once.
	o.down.Store(true)
	o.server.CloseClientConnections()
	if _, err := o.service.Decide(ctx, first, approval.Approver{Name: "bob"}, approval.Ruling{Decision: approval.Reject}); err != nil {
		t.Fatal(err)
	}
	o.down.Store(false)
	v.next(fmt.Sprintf("settled %s 1", first))
	third := o.hold(t, "/c")
	v.next(fmt.Sprintf("pending %s 0", third))
	v.stop()
	<-v.done
	if len(v.told) > 0 {
		t.Errorf("unexpected event: %s", <-v.told)
	}
}

// A gate that does not know a call reports that it is gone. A connection that stays silent is
// detected.
func TestWatchReportsGoneCalls(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"error":{"type":"not_found","message":"x"}}`)
			return
		}
		if connections.Add(1) == 1 {
			io.WriteString(w, "event: pending\ndata: {\"id\":\"tg_1\",\ndata: \"state\":\"input_required\"}\n\n")
		} else {
			io.WriteString(w, "event: strange\ndata: {}\n\nevent: pending\ndata: {\"id\":\"tg_2\",\"state\":\"input_required\"}\n\n")
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done() // and sends nothing more
	}))
	defer server.Close()
	v := watch(t, dial(t, client.Config{URL: server.URL, Silence: 3 * time.Second}))
	v.next("pending tg_1 0")
	v.next("gone tg_1 0")
	v.next("pending tg_2 0")
	v.next("gone tg_2 0")
	v.stop()
	<-v.done
}

func TestWatchRefused(t *testing.T) {
	o := open(t)
	v := watch(t, dial(t, client.Config{URL: o.server.URL, Token: "wrong"}))
	v.next("error: unknown token")
	<-v.done
	o.server.Close()
	v = watch(t, o.client)
	<-v.done
	if got := <-v.told; !strings.HasPrefix(got, "error: no answer from 127.0.0.1:") {
		t.Errorf("events %q", got)
	}
}

// After the caller stops iterating, it gets no more events.
func TestWatchEndsWithCaller(t *testing.T) {
	o := open(t)
	o.hold(t, "/a")
	o.hold(t, "/b")
	for e, err := range o.client.Watch(t.Context()) {
		if err != nil || e.Kind != client.Pending {
			t.Fatal(e, err)
		}
		break
	}
}

// decide views a call and then decides, as an approver does.
func (o *fixture) decide(ctx context.Context, id task.ID, what approval.Decision, reason string) (review.Approval, error) {
	a, err := o.client.Show(ctx, id)
	if err != nil {
		return a, err
	}
	return o.client.Decide(ctx, id, approval.Ruling{Decision: what, Reason: reason, Shown: a.ShownDigest})
}
