package inbox_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestEventsEndWithLogout checks that signing out ends the stream of events in another tab.
func TestEventsEndWithLogout(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := alice.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	alice.send("/", "/logout", url.Values{})
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Errorf("the stream did not end: %v", err)
	}
}

// TestEventsReportChanges checks that the stream reports each change of a call, requires a
// session, and ends when the service is closed.
func TestEventsReportChanges(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := alice.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "20" { // a beat has its interval in milliseconds
				if !strings.Contains(data, want) {
					t.Fatalf("event %s; want %s", data, want)
				}
				return
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	for lines.Scan() && lines.Text() != "event: beat" { // an event, because scripts do not see comments
	}
	id := o.hold(t, held{args: `{"secret":"hunter2"}`})
	next(`"pending":true,"tool":"delete_file","requester":"ann"`)
	alice.decide(id, "reject", "")
	next(`"id":"` + string(id) + `","pending":false`)
	if err := o.approvals.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until the stream ends
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
	status, _, _ := o.newBrowser(t).do(http.MethodGet, "/events", "")
	if status != http.StatusUnauthorized {
		t.Errorf("without a session: status %d, want 401", status)
	}
}
