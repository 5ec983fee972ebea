package bridge

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
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

// Answers that clients do not read take a bounded amount of memory, and those of one
// client leave room for those of another.
func TestLargeAnswers(t *testing.T) {
	const size = 1 << 20
	b := New(Config{Server: stdioclient.Config{Name: "test"}, Unread: admission.Limits{Total: 3 * size, Client: 2 * size}})
	answer := func(principal string, size int) (read func() error, err error) {
		memory := b.memoryFor(&request{by: httpclient.Peer{Principal: principal}})
		if err := memory.take(size); err != nil {
			return nil, err
		}
		return memory.whole(make([]byte, size)).Body.Close, nil
	}
	var read []func() error
	for _, tt := range []struct {
		principal string
		size      int
		want      error
	}{
		{"ann", size, nil},
		{"ann", size, nil},
		{"ann", size, admission.ErrClient},
		{"ann", 1000, nil},
		{"bob", size, nil},
		{"bob", size, admission.ErrFull},
	} {
		done, err := answer(tt.principal, tt.size)
		if read = append(read, done); !errors.Is(err, tt.want) {
			t.Errorf("an answer of %d bytes for %s: %v; want %v", tt.size, tt.principal, err, tt.want)
		}
	}
	for range 2 {
		_ = read[0]()
	}
	_ = read[1]()
	if _, err := answer("ann", 5*size); err != nil {
		t.Errorf("the only answer of a client: %v", err)
	}
}
