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

// An approver who signs out in one tab gets no more events in another.
func TestEventsEndWithLogout(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
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
		t.Errorf("the stream does not end: %v", err)
	}
}

// The events of a page that is open tell what changes, and end with the session.
func TestEvents(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
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
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "20" { // a beat says how long it is to the next
				if !strings.Contains(data, want) {
					t.Fatalf("event %s; want %s", data, want)
				}
				return
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	for lines.Scan() && lines.Text() != "event: beat" { // which scripts see, unlike comments
	}
	id := o.hold(t, held{args: `{"secret":"hunter2"}`})
	next(`"pending":true,"tool":"delete_file","requester":"ann"`)
	alice.decide(id, "reject", "")
	next(`"id":"` + string(id) + `","pending":false`)
	if err := o.desk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // ends with the desk
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
	status, _, _ := o.stranger(t).do(http.MethodGet, "/events", "")
	if status != http.StatusUnauthorized {
		t.Errorf("a stranger gets %d", status)
	}
}
