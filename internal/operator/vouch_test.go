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
	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	interval = 15 * 60 // of the re-check, in seconds
	refused  = "unauthorized"
)

// admins serves a gate whose admins are those on call, and at which staff may
// look.
func admins(t *testing.T) (*fixture, *testenv.Issuer) {
	t.Helper()
	h, issuer := elsewhere(t, func(o *operator.OIDC) {
		o.Groups = []string{"staff"}
		o.Roles = map[operator.Role][]string{operator.Admin: {"group:oncall"}, operator.Viewer: {"group:staff"}}
	})
	issuer.LogIn(person(nil), nil)
	h.want(303, "", "GET", h.arrive(h.depart("/")), "")
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

// The provider is asked again at an interval. From then on what it says counts.
func TestRecheck(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]any) // of the person, after the login
		status int
		text   string
	}{
		"nothing changed":  {func(map[string]any) {}, 200, "ann@example.com admin [oncall staff]"},
		"role lost":        {func(p map[string]any) { p["groups"] = []string{"staff"} }, 200, "ann@example.com viewer [staff]"},
		"no groups at all": {func(p map[string]any) { delete(p, "groups") }, 401, refused},
		"not staff":        {func(p map[string]any) { p["groups"] = []string{"oncall"} }, 401, refused},
		"another name":     {func(p map[string]any) { p["email"] = "eve@example.com" }, 401, refused},
		"not verified":     {func(p map[string]any) { p["email_verified"] = false }, 401, refused},
		"somebody else":    {func(p map[string]any) { p["sub"] = "5678" }, 401, refused},
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
				h.want(200, "ann@example.com admin", "GET", "/", "") // it is not asked yet
				h.clock.Store(interval + 1)
				h.want(tt.status, tt.text, "GET", "/", "")
				// The provider's last answer counts on every replica, even if it would answer differently now.
				issuer.LogIn(person(nil), nil)
				other := h.replica(nil)
				other.clock.Store(h.clock.Load())
				other.want(tt.status, tt.text, "GET", "/", "", "Cookie", h.cookies())
			})
		}
	}
}

// Somebody whose account is closed is out, for good.
func TestRecheckRefused(t *testing.T) {
	h, issuer := admins(t)
	issuer.LogIn(nil, nil)
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
	issuer.LogIn(person(nil), nil)
	h.want(401, refused, "GET", "/", "")
}

// A token for another client says nothing of the session.
func TestRecheckOtherClient(t *testing.T) {
	h, issuer := admins(t)
	issuer.LogIn(person(nil), func(c map[string]any) { c["azp"] = "other" })
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
}

// With a provider that gives no refresh token, a login ends after the interval.
func TestRecheckWithoutRefresh(t *testing.T) {
	h, issuer := elsewhere(t, nil)
	issuer.SetHabits(testenv.Habits{NoRefresh: true})
	issuer.LogIn(person(nil), nil)
	h.want(303, "", "GET", h.arrive(h.depart("/")), "")
	h.clock.Store(interval - 60)
	h.want(200, "ann@example.com", "GET", "/", "")
	h.clock.Store(interval + 1)
	h.want(401, refused, "GET", "/", "")
}

// While the provider cannot be asked, what it said last counts for one interval
// more. Then nobody is let in, and nobody is logged out: it goes on when the
// provider is back.
func TestRecheckProviderDown(t *testing.T) {
	for name, broken := range map[string]string{"the tokens": "/token", "the keys": "/keys", "UserInfo": "/userinfo"} {
		t.Run(name, func(t *testing.T) {
			h, issuer := admins(t)
			issuer.Rotate("key-2") // the gate must fetch it
			issuer.SetHabits(testenv.Habits{Broken: broken, Bare: broken == "/userinfo"})
			now := person(map[string]any{"groups": []string{"staff"}})
			issuer.LogIn(now, nil)
			h.clock.Store(interval + 1)
			h.want(200, "ann@example.com admin", "GET", "/", "")
			h.clock.Store(2*interval - 60) // the clock goes on meanwhile
			h.want(200, "ann@example.com admin", "GET", "/", "")
			h.clock.Store(2*interval + 40)
			h.want(503, "store_unavailable", "GET", "/", "")
			issuer.SetHabits(testenv.Habits{})
			h.clock.Store(2*interval + 100)
			h.want(200, "ann@example.com viewer", "GET", "/", "")
			if n := issuer.Reused(); n != 0 {
				t.Errorf("%d refresh tokens were used again", n)
			}
		})
	}
}

// A refresh token is good for one use. Replicas, and many requests at the same
// time, use each once, and nobody is logged out.
func TestRecheckReplicas(t *testing.T) {
	h, issuer := admins(t)
	lasting := func(c map[string]any) { c["exp"] = time.Now().Add(24 * time.Hour).Unix() } // in spite of the clock of the test
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
		t.Errorf("%d refresh tokens were used again", n)
	}
	issuer.LogIn(person(map[string]any{"groups": []string{"staff"}}), lasting)
	h.clock.Store(6 * (interval + 60))
	other.clock.Store(6 * (interval + 60))
	other.want(200, "ann@example.com viewer", "GET", "/", "", "Cookie", cookies)
	h.want(200, "ann@example.com viewer", "GET", "/", "", "Cookie", cookies)
}

// A meeting is a store that answers those who read a session once as many do as
// are awaited.
type meeting struct {
	task.Records

	awaited *sync.WaitGroup
	reads   *atomic.Int64
}

func (m meeting) GetRecord(ctx context.Context, name string) (task.Record, error) {
	found, err := m.Records.GetRecord(ctx, name)
	if strings.HasPrefix(name, "session/") && m.reads.Add(1) <= 2 {
		m.awaited.Done()
		m.awaited.Wait()
	}
	return found, err
}

// Of two replicas that find at the same moment that the provider is to be asked,
// one asks. The other goes on with what is known.
func TestRecheckOnce(t *testing.T) {
	h, issuer := admins(t)
	cookies := h.cookies()
	met := meeting{h.config.Records, new(sync.WaitGroup), new(atomic.Int64)}
	met.awaited.Add(2)
	var asking sync.WaitGroup
	for range 2 {
		replica := h.replica(func(c *operator.Config) { c.Records = met })
		replica.clock.Store(interval + 1)
		asking.Go(func() { replica.want(200, "ann@example.com admin", "GET", "/", "", "Cookie", cookies) })
	}
	asking.Wait()
	if n := issuer.Reused(); n != 0 {
		t.Errorf("%d refresh tokens were used again", n)
	}
}

// A session that is logged out of while the provider is asked stays ended.
func TestRecheckDuringLogout(t *testing.T) {
	h, issuer := admins(t)
	cookies := h.cookies()
	issuer.LogIn(person(nil), func(map[string]any) { // which happens while it is asked
		found, err := h.config.Records.ListRecords(t.Context(), task.RecordQuery{Prefix: "session/", Limit: 10})
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

// A clock that is set back does not make old facts last.
func TestRecheckClockSetBack(t *testing.T) {
	h, issuer := admins(t)
	issuer.LogIn(person(map[string]any{"groups": []string{"staff"}}), nil)
	h.clock.Store(-2 * interval)
	h.want(200, "ann@example.com viewer", "GET", "/", "")
}

// A request that is being served ends when the provider takes the role for it
// away.
func TestRecheckEndsStreams(t *testing.T) {
	h, issuer := admins(t)
	ended := h.stream("/hold")
	issuer.LogIn(person(map[string]any{"groups": []string{"staff"}}), nil)
	h.clock.Store(interval + 1)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("it goes on")
	}
}
