package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func (h *fixture) cookie() string {
	h.t.Helper()
	u, _ := url.Parse(h.url)
	c := h.jar.Cookies(u)[0]
	return c.Name + "=" + c.Value
}

// Somebody who can write to the database puts the record of a session back that
// was logged out of. It stays ended on every replica that knows of its end, also
// after a reload.
func TestReplayedSession(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	cookie, other := h.cookie(), h.replica(nil)
	other.want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
	kept, err := h.config.Records.ListRecords(t.Context(), task.RecordQuery{Prefix: "session/", Limit: 10})
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d sessions, %v", len(kept), err)
	}
	h.want(303, "", "POST", "/logout", "csrf="+h.form(), sameOrigin, "same-origin")
	other.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)

	kept[0].Version = 1
	if err := h.config.Records.PutRecord(t.Context(), kept[0]); err != nil {
		t.Fatal(err)
	}
	h.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	other.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	reloaded := h.replica(nil)
	h.auth.Replace(reloaded.auth)
	reloaded.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	// A replica that has never heard of the end cannot know better, which
	// docs/storage.md says.
	h.replica(nil).want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
}

// A session ends when its time is over also for a request that is being served,
// and also if the store cannot be asked at that time.
func TestSessionEndsWithoutStore(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+linkToken, "Origin", h.url)
	h.clock.Store(12*3600 - 10) // seconds before its end
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("answered %d", resp.StatusCode)
	}
	if err := h.config.Records.(interface{ Close() error }).Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); ctx.Err() != nil {
		t.Errorf("it is served after %v: %d, %v", time.Minute, n, err)
	}
}

// Sessions whose time is over are forgotten when the number of those that ended has
// doubled. To look for them at each end of a session would hold up all operators.
func TestEndingsForgottenSeldom(t *testing.T) {
	h := build(t, stopped)
	h.auth.Ended("the first")
	h.clock.Store(3600)
	for n := range operator.MinSweep {
		h.auth.Ended(fmt.Sprint("later ", n)) // the last one finds nothing to forget
	}
	h.clock.Store(12*3600 + 60) // the time of the first is over
	for n := range operator.MinSweep - 1 {
		if got, want := h.auth.Ended(fmt.Sprint("last ", n)), operator.MinSweep+2+n; got != want {
			t.Fatalf("%d are remembered after %d more; want %d", got, n+1, want)
		}
	}
	if got, want := h.auth.Ended("the one that doubles them"), 2*operator.MinSweep; got != want {
		t.Errorf("%d are remembered; want %d", got, want)
	}
}

// All sessions end, however many there are, on every replica.
func TestEndAll(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	cookie, other := h.cookie(), h.replica(nil)
	other.want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
	for n := range 250 {
		r := task.Record{Name: fmt.Sprintf("session/of-somebody/%d", n), Version: 1, Value: []byte("{}")}
		if err := h.config.Records.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.auth.EndAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	other.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	if left, err := h.config.Records.ListRecords(t.Context(), task.RecordQuery{Prefix: "session/", Limit: 10}); err != nil || len(left) != 0 {
		t.Errorf("%d sessions are left, %v", len(left), err)
	}
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	h.want(200, "ann approver", "GET", "/", "")
}
