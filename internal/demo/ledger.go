package demo

import (
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maxLedger is how many calls the ledger keeps.
const maxLedger = 1000

// An Outcome is the result of a call.
type Outcome string

// The outcomes of a call.
const (
	Running   Outcome = "running"
	Done      Outcome = "done"
	Failed    Outcome = "failed"    // the tool returned an error
	Cancelled Outcome = "cancelled" // by the client, which may have disconnected
)

// A Call is one execution of a tool.
type Call struct {
	Tool      string
	Arguments string // the JSON as received, empty if there was none
	Outcome   Outcome
}

// String returns c on one line, for people.
func (c Call) String() string {
	return fmt.Sprintf("%-9s %s %s", c.Outcome, c.Tool, c.Arguments)
}

type ledger struct {
	mu    sync.Mutex
	calls []*Call
}

// begin records that a tool starts to run. The caller reports the outcome with settle.
func (l *ledger) begin(tool string, arguments jsontext.Value) (settle func(Outcome)) {
	c := &Call{Tool: tool, Arguments: string(arguments), Outcome: Running}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == maxLedger {
		l.calls = slices.Delete(l.calls, 0, 1)
	}
	l.calls = append(l.calls, c)
	return func(o Outcome) {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Outcome = o
	}
}

func (l *ledger) all() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := make([]Call, len(l.calls))
	for i, c := range l.calls {
		calls[i] = *c
	}
	return calls
}
