package operator_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

const (
	interval = 15 * 60 // seconds between two checks
	refused  = "unauthorized"
)

// admins serves a gate with the admin group oncall and the viewer group staff.
func admins(t *testing.T) (*fixture, *testenv.Issuer) {
	t.Helper()
	h, issuer := serveOIDC(t, func(o *operator.OIDC) {
		o.Groups = []string{"staff"}
		o.Roles = map[operator.Role][]string{operator.Admin: {"group:oncall"}, operator.Viewer: {"group:staff"}}
	})
	issuer.LogIn(person(nil), nil)
	h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
	h.want(200, "ann@example.com admin", "GET", "/", "")
	return h, issuer
}

// cookies returns the cookies of the browser as a header.
func (h *fixture) cookies() string {
	u, err := url.Parse(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for _, c := range h.jar.Cookies(u) {
		all = append(all, c.Name+"="+c.Value)
	}
	return strings.Join(all, "; ")
}

// TestRecheckUpdatesRights checks that the gate asks the provider again after an interval, and
// then applies the new claims.
func TestRecheckUpdatesRights(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]any) // changes the user's claims after the sign-in
		status int
		text   string
	}{
		"nothing changed":  {func(map[string]any) {}, 200, "ann@example.com admin [oncall staff]"},
		"role lost":        {func(p map[string]any) { p["groups"] = []string{"staff"} }, 200, "ann@example.com viewer [staff]"},
		"no groups at all": {func(p map[string]any) { delete(p, "groups") }, 401, refused},
		"not staff":        {func(p map[string]any) { p["groups"] = []string{"oncall"} }, 401, refused},
		"another name":     {func(p map[string]any) { p["email"] = "eve@example.com" }, 401, refused},
		"not verified":     {func(p map[string]any) { p["email_verified"] = false }, 401, refused},
		"another user":     {func(p map[string]any) { p["sub"] = "5678" }, 401, refused},
	}
	for _, bare := range []bool{false, true} {
		for name, tt := range tests {
			if bare {
				name += ", as told by UserInfo"
			}
			t.Run(name, func(t *testing.T) {
				h, issuer := admins(t)
				issuer.SetHabits(testenv.Habits{Bare: bare})
				now := person(nil)
				tt.change(now)
				issuer.LogIn(now, nil)
				h.clock.Store(interval - 60)
				h.want(200, "ann@example.com admin", "GET", "/", "") // the check is not due yet
				h.clock.Store(interval + 1)
				h.want(tt.status, tt.text, "GET", "/", "")
				// The last answer of the provider applies on every replica, even if a new answer would differ.
				issuer.LogIn(person(nil), nil)
				other := h.replica(nil)
				other.clock.Store(h.clock.Load())
				other.want(tt.status, tt.text, "GET", "/", "", "Cookie", h.cookies())
			})
		}
	}
}

// TestRecheckRefusalEndsSession checks that a session ends for good when the provider refuses
// the user.
func TestRecheckRefusalEndsSession(t *testing.T) {
	h, issuer := admins(t)
	issuer.LogIn(nil, nil)
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
	issuer.LogIn(person(nil), nil)
	h.want(401, refused, "GET", "/", "")
}

// TestRecheckRefusesTokenOfOtherClient checks that a token for another client is refused.
func TestRecheckRefusesTokenOfOtherClient(t *testing.T) {
	h, issuer := admins(t)
	issuer.LogIn(person(nil), func(c map[string]any) { c["azp"] = "other" })
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
}

// TestSessionWithoutRefreshTokenEnds checks that a session ends after the interval if the
// provider gave no refresh token.
func TestSessionWithoutRefreshTokenEnds(t *testing.T) {
	h, issuer := serveOIDC(t, nil)
	issuer.SetHabits(testenv.Habits{NoRefresh: true})
	issuer.LogIn(person(nil), nil)
	h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
	h.clock.Store(interval - 60)
	h.want(200, "ann@example.com", "GET", "/", "")
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
}

// TestRecheckSurvivesProviderOutage checks that the last answer of the provider stays valid for
// one more interval while the provider is down. After that requests are refused, but the
// sessions continue when the provider is back.
func TestRecheckSurvivesProviderOutage(t *testing.T) {
	for name, broken := range map[string]string{"the tokens": "/token", "the keys": "/keys", "UserInfo": "/userinfo"} {
		t.Run(name, func(t *testing.T) {
			h, issuer := admins(t)
			issuer.Rotate("key-2") // the gate must fetch the new key
			issuer.SetHabits(testenv.Habits{Broken: broken, Bare: broken == "/userinfo"})
			now := person(map[string]any{"groups": []string{"staff"}})
			issuer.LogIn(now, nil)
			h.clock.Store(interval + 1)
			h.want(200, "ann@example.com admin", "GET", "/", "")
			h.clock.Store(2*interval - 60) // shortly before the end of the second interval
			h.want(200, "ann@example.com admin", "GET", "/", "")
			h.clock.Store(2*interval + 40)
			h.want(503, "store_unavailable", "GET", "/", "")
			issuer.SetHabits(testenv.Habits{})
			h.clock.Store(2*interval + 100)
			h.want(200, "ann@example.com viewer", "GET", "/", "")
			if n := issuer.Reused(); n != 0 {
				t.Errorf("%d refresh tokens were used more than once", n)
			}
		})
	}
}

// TestRefreshTokenUsedOnce checks that replicas and concurrent requests use each refresh token
// once, and that the session continues.
func TestRefreshTokenUsedOnce(t *testing.T) {
	h, issuer := admins(t)
	lasting := func(c map[string]any) { c["exp"] = time.Now().Add(24 * time.Hour).Unix() } // longer than the test moves its clock
	issuer.LogIn(person(nil), lasting)
	other := h.replica(nil)
	cookies := h.cookies()
	h.browser()
	for round := 1; round <= 5; round++ {
		h.clock.Store(int64(round * (interval + 60)))
		other.clock.Store(int64(round * (interval + 60)))
		var asking sync.WaitGroup
		for _, replica := range []*fixture{h, other, h, other, h, other} {
			asking.Go(func() { replica.want(200, "ann@example.com admin", "GET", "/", "", "Cookie", cookies) })
		}
		asking.Wait()
	}
	if n := issuer.Reused(); n != 0 {
		t.Errorf("%d refresh tokens were used more than once", n)
	}
	issuer.LogIn(person(map[string]any{"groups": []string{"staff"}}), lasting)
	h.clock.Store(6 * (interval + 60))
	other.clock.Store(6 * (interval + 60))
	other.want(200, "ann@example.com viewer", "GET", "/", "", "Cookie", cookies)
	h.want(200, "ann@example.com viewer", "GET", "/", "", "Cookie", cookies)
}

// A barrierStore delays the first two reads of a session until both have begun.
type barrierStore struct {
	gatestore.Records

	awaited *sync.WaitGroup
	reads   *atomic.Int64
}

func (m barrierStore) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	found, err := m.Records.GetRecord(ctx, name)
	if strings.HasPrefix(name, "session/") && m.reads.Add(1) <= 2 {
		m.awaited.Done()
		m.awaited.Wait()
	}
	return found, err
}

// TestOneReplicaRechecks checks that one of two replicas asks the provider if the check becomes
// due on both at the same moment. The other continues with the last answer.
func TestOneReplicaRechecks(t *testing.T) {
	h, issuer := admins(t)
	cookies := h.cookies()
	met := barrierStore{h.config.Records, new(sync.WaitGroup), new(atomic.Int64)}
	met.awaited.Add(2)
	var asking sync.WaitGroup
	for range 2 {
		replica := h.replica(func(c *operator.Config) { c.Records = met })
		replica.clock.Store(interval + 1)
		asking.Go(func() { replica.want(200, "ann@example.com admin", "GET", "/", "", "Cookie", cookies) })
	}
	asking.Wait()
	if n := issuer.Reused(); n != 0 {
		t.Errorf("%d refresh tokens were used more than once", n)
	}
}

// TestLogoutDuringRecheckWins checks that a session stays ended if its user signs out while the
// gate asks the provider.
func TestLogoutDuringRecheckWins(t *testing.T) {
	h, issuer := admins(t)
	cookies := h.cookies()
	issuer.LogIn(person(nil), func(map[string]any) { // called while the gate asks the provider
		found, err := h.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "session/", Limit: 10})
		if err != nil || len(found) != 1 {
			t.Errorf("%d sessions, %v", len(found), err)
			return
		}
		if err := h.config.Records.DeleteRecord(t.Context(), found[0].Name); err != nil {
			t.Error(err)
		}
	})
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
	h.browser()
	h.want(401, refused, "GET", "/", "", "Cookie", cookies)
}

// TestClockSetBackTriggersRecheck checks that an old answer does not stay valid longer if the
// clock is set back.
func TestClockSetBackTriggersRecheck(t *testing.T) {
	h, issuer := admins(t)
	issuer.LogIn(person(map[string]any{"groups": []string{"staff"}}), nil)
	h.clock.Store(-2 * interval)
	h.want(200, "ann@example.com viewer", "GET", "/", "")
}

// TestRecheckEndsStreams checks that a request ends when the user loses the role for it.
func TestRecheckEndsStreams(t *testing.T) {
	h, issuer := admins(t)
	ended := h.stream("/hold")
	issuer.LogIn(person(map[string]any{"groups": []string{"staff"}}), nil)
	h.clock.Store(interval + 1)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the request continues")
	}
}
