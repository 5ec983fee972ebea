//go:build unix

package stdioclient

import (
	"testing"
	"time"
)

// Messages after the answer are not queued behind it, where they would not be read.
func TestInsertAfterAnswer(t *testing.T) {
	t.Parallel()
	a := NewAnswers(func(int) error { return nil })
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
