package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A principal that begins sessions without end is remembered with the latest of them,
// and those of others stay.
func TestTidy(t *testing.T) {
	store := memstore.New(memstore.Options{})
	b := New(Config{Server: stdioclient.Config{Name: "test"}, Records: func() task.Records { return store }})
	now := time.Now()
	put := func(principal string, i int) {
		r := task.Record{Name: b.recordName(principal, fmt.Sprint(i)), Version: 1, Value: []byte("{}"), Expires: now.Add(time.Hour + time.Duration(i)*time.Second)}
		if err := store.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	put("ann", 0)
	for i := range maxSessions + 50 {
		put("bob", i)
	}
	b.kept.Store(sessionsAtOnce - 1)
	b.tidy(t.Context(), "bob")
	for _, tt := range []struct {
		principal string
		session   int
		kept      bool
	}{{"ann", 0, true}, {"bob", 49, false}, {"bob", 50, true}, {"bob", maxSessions + 49, true}} {
		found, err := b.remembered(t.Context(), tt.principal, fmt.Sprint(tt.session))
		if err != nil || (found != nil) != tt.kept {
			t.Errorf("session %d of %s: %q, %v; want it kept: %t", tt.session, tt.principal, found, err, tt.kept)
		}
	}
}

// Answers that clients do not read take a bounded amount of memory.
func TestLargeAnswers(t *testing.T) {
	const size = 1 << 20
	b := New(Config{Server: stdioclient.Config{Name: "test", MaxLine: size}})
	c := &conversation{p: &process{bridge: b}}
	var read []func() error
	for range largeAnswers {
		resp, err := c.whole(make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, resp.Body.Close)
	}
	if _, err := c.whole(make([]byte, size)); err == nil {
		t.Error("there is room for any number of large answers")
	}
	if _, err := c.whole(make([]byte, 1000)); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	if err := read[0](); err != nil {
		t.Fatal(err)
	}
	if _, err := c.whole(make([]byte, size)); err != nil {
		t.Errorf("after one was read: %v", err)
	}
}
