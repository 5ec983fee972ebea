//go:build unix

package crash_test

import (
	"strings"
	"syscall"
	"testing"
)

// TestSuspendedExecutorChangesNoOutcome suspends the executor while the tool runs, like a machine that is migrated or
// out of memory, and resumes it after its lease has expired. The outcome that the other gates
// have reported does not change.
func TestSuspendedExecutorChangesNoOutcome(t *testing.T) {
	over(t, func(t *testing.T, w *world) {
		p := newParty(t, "s-1")
		id := begin(t, w, p, 1)
		process := w.gates[0].cmd.Process
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		unknown(t, p, w.gates[2], id)
		close(w.ledger.release)
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			return strings.Contains(w.gates[0].log.String(), "answer dropped: the task has already ended")
		})
		for _, g := range w.gates {
			unknown(t, p, g, id)
		}
		if ran := w.ledger.ran(1); ran != 1 {
			t.Errorf("the call ran %d times", ran)
		}
		w.stored().agree(t)
	})
}
