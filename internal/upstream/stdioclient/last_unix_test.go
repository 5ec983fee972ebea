//go:build unix

package stdioclient

import (
	"errors"
	"io"
	"testing"
	"time"
)

// Messages after the answer are not queued behind it, where they would not be read.
func TestInsertAfterAnswer(t *testing.T) {
	t.Parallel()
	a := NewQueue(func(int) error { return nil })
	if !a.Insert([]byte("before")) {
		t.Error("the queue is full before the answer")
	}
	a.answer([]byte("answer"))
	if a.Insert([]byte("after")) {
		t.Error("a message was put behind the answer")
	}
}

// Output that a server wrote before it ended arrives, even if the client reads slowly.
func TestOutputBeforeEndArrives(t *testing.T) {
	t.Parallel()
	c, lines := script(`for i in 1 2 3 4 5; do echo '{"jsonrpc":"2.0","method":"x"}'; done`), make(receiver)
	if err := c.Start(lines); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	time.Sleep(drainTimeout + time.Second)
	for range 5 {
		lines.next(t)
	}
}

// A client that opens its stream again gets what it has not read, and the old stream ends.
func TestNewStreamHasUnreadMessages(t *testing.T) {
	t.Parallel()
	old := NewQueue(nil)
	old.Insert([]byte("unread"))
	stream := old.Continue()
	if _, err := old.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the old stream: %v; want EOF", err)
	}
	stream.End(io.EOF)
	if got, err := io.ReadAll(stream); err != nil || string(got) != "event: message\ndata: unread\n\n" {
		t.Errorf("the new stream: %q, %v", got, err)
	}
}
