//go:build failpoints

package failpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// variable is the environment variable that names the fault of this process: how the call ends,
// how long that takes, which of the calls of that name it is, and the name.
const variable = "THOUGHTGATE_FAILPOINT"

// A fault is how one call of this process ends.
type fault struct {
	kind   string
	delay  time.Duration
	number int
	call   string

	mu   sync.Mutex
	seen int
}

// Wrap returns a store in which one call ends as the environment says.
func Wrap(inner gatestore.Store) (gatestore.Store, error) {
	text := os.Getenv(variable) // no setting of the program: only tests have it
	if text == "" {
		return inner, nil
	}
	var f fault
	var delay, method string
	if _, err := fmt.Sscanf(text, "%s %s %d %s", &f.kind, &delay, &f.number, &method); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	var err error
	if f.delay, err = time.ParseDuration(delay); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	f.call = text[len(fmt.Sprintf("%s %s %d ", f.kind, delay, f.number)):]
	return &Store{Inner: inner, At: f.at}, nil
}

// Unwrap returns the wrapped store.
func (s *Store) Unwrap() gatestore.Store { return s.Inner }

var errBroken = errors.New("failpoint: the connection to the store is broken")

// at makes a call, or ends it by the fault.
func (f *fault) at(ctx context.Context, method, about string, effect func(context.Context) error) error {
	caller, _ := Caller()
	call := Name("store."+method, about, caller)
	if f.kind == "die-after" || f.kind == "lost" {
		// Two goroutines can make the same change at once: the one that is made counts.
		if err := effect(ctx); err != nil || !f.reached(call) {
			return err
		}
	} else if !f.reached(call) {
		return effect(ctx)
	}
	fmt.Fprintln(os.Stderr, "failpoint reached")
	switch f.kind {
	case "die", "die-after":
		die()
	case "fail", "lost":
		return errBroken
	case "deaf":
		return ErrDeaf
	case "late", "overdue":
		err := effect(ctx)
		if !pause.For(ctx, f.delay) {
			return ctx.Err()
		}
		return err
	case "between":
		pause.For(ctx, f.delay)
	}
	return effect(ctx)
}

// reached reports whether the fault is for this call.
func (f *fault) reached(call string) bool {
	if call != f.call {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	return f.seen == f.number
}

// die ends this process as a crash does.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}
