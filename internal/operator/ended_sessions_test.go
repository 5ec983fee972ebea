package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

func (h *fixture) cookie() string {
	h.t.Helper()
	u, _ := url.Parse(h.url)
	c := h.jar.Cookies(u)[0]
	return c.Name + "=" + c.Value
}

// TestRestoredRecordStaysEnded checks that a session stays ended if an attacker restores its
// record in the database. Every replica that has seen the end refuses the session, also
// after a reload.
func TestRestoredRecordStaysEnded(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	cookie, other := h.cookie(), h.replica(nil)
	other.want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
	kept, err := h.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "session/", Limit: 10})
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
	// A replica that has not seen the end accepts the session, as docs/storage.md says.
	h.replica(nil).want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
}

// TestSessionEndsWithoutStore checks that a session that expires ends the requests that are
// being served, also while the store is unavailable.
func TestSessionEndsWithoutStore(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+linkToken, "Origin", h.url)
	h.clock.Store(12*3600 - 10) // ten seconds before its end
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
		t.Fatalf("status %d", resp.StatusCode)
	}
	if err := h.config.Records.(interface{ Close() error }).Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); ctx.Err() != nil {
		t.Errorf("the request is still served after %v: %d, %v", time.Minute, n, err)
	}
}

// TestExpiredEndingsDroppedInBatches checks that the gate drops expired sessions when the
// number of ended sessions has doubled. A search at each end of a session would delay all
// operators.
func TestExpiredEndingsDroppedInBatches(t *testing.T) {
	h := build(t, fixedClock)
	h.auth.AddEnded("the first")
	h.clock.Store(3600)
	for n := range operator.MinDrop {
		h.auth.AddEnded(fmt.Sprint("later ", n)) // the last one searches, and finds none that expired
	}
	h.clock.Store(12*3600 + 60) // the first has expired
	for n := range operator.MinDrop - 1 {
		if got, want := h.auth.AddEnded(fmt.Sprint("last ", n)), operator.MinDrop+2+n; got != want {
			t.Fatalf("%d sessions are kept after %d more; want %d", got, n+1, want)
		}
	}
	if got, want := h.auth.AddEnded("the one that doubles them"), 2*operator.MinDrop; got != want {
		t.Errorf("%d sessions are kept; want %d", got, want)
	}
}

// TestEndAllEndsEverySession checks that EndAll ends any number of sessions on every replica.
func TestEndAllEndsEverySession(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	cookie, other := h.cookie(), h.replica(nil)
	other.want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
	for n := range 250 {
		r := gatestore.Record{Name: fmt.Sprintf("session/of-somebody/%d", n), Version: 1, Value: []byte("{}")}
		if err := h.config.Records.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.auth.EndAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	other.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	if left, err := h.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "session/", Limit: 10}); err != nil || len(left) != 0 {
		t.Errorf("%d sessions are left, %v", len(left), err)
	}
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	h.want(200, "ann approver", "GET", "/", "")
}
