package ownstack_test

import (
	"errors"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
)

func TestDo(t *testing.T) {
	done := false
	ownstack.Do(func() { done = true })
	if !done {
		t.Error("Do returned before the work was done")
	}
}

// A panic reaches the caller, as if there were no other goroutine.
func TestPanic(t *testing.T) {
	broken := errors.New("broken")
	defer func() {
		cause := recover()
		if err, ok := cause.(error); !ok || !errors.Is(err, broken) {
			t.Errorf("the caller saw %v", cause)
		}
	}()
	ownstack.Do(func() { panic(broken) })
}
