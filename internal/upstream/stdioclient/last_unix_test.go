//go:build unix

package stdioclient

import (
	"testing"
	"time"
)

// What the server says after its answer is not put behind that, where nobody reads it.
func TestInsertAfterAnswer(t *testing.T) {
	t.Parallel()
	a := NewAnswers(func(int) error { return nil })
	if !a.Insert([]byte("before")) {
		t.Error("there is no room before the answer")
	}
	a.answer([]byte("answer"))
	if a.Insert([]byte("after")) {
		t.Error("a message was put behind the answer")
	}
}

// What a server has written before it ended arrives, also if its client reads slowly.
func TestLastLines(t *testing.T) {
	t.Parallel()
	c, lines := script(`for i in 1 2 3 4 5; do echo '{"jsonrpc":"2.0","method":"x"}'; done`), make(receiver)
	if err := c.Start(lines); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	time.Sleep(quietTime + time.Second)
	for range 5 {
		lines.next(t)
	}
}
