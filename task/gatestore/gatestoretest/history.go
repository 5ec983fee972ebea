package gatestoretest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A History runs concurrent clients on one store, each with its handle, while the store may be
// disturbed: connections break, servers crash, handles are closed. After an error that leaves
// the outcome of a change unknown, the change may take effect at any later time, even after all
// clients have ended.
type History struct {
	// Stores return the current handles of the clients. Clients take them in turn.
	Stores []func() gatestore.Store

	Long time.Duration // how long to run
	Seed uint64        // determines the clients' choices
}

const (
	historyClients = 6
	historySteps   = 6 // of each client on each task
	historyTasks   = 3 // tasks in use at the same time
	historyCheck   = time.Minute
)

// An Account counts the attempts of a history.
type Account struct{ Tasks, Operations, Unknown int }

// Check lets clients create, decide, claim, renew, complete, cancel and read tasks. It returns
// an error unless one order of events explains all observations: each event takes place at one
// moment between call and return, and changes the task as [lifecycle.Apply] says. Check stops
// early when ctx ends.
func (h History) Check(ctx context.Context) (Account, error) {
	over := time.NewTimer(h.Long)
	defer over.Stop()
	var total Account
	for round := uint64(0); ; round++ {
		select {
		case <-ctx.Done():
			return total, ctx.Err()
		case <-over.C:
			return total, nil
		default:
		}
		histories := make([]*taskHistory, historyTasks)
		var running sync.WaitGroup
		for i := range histories {
			dice := rand.New(rand.NewPCG(h.Seed, round*historyTasks+uint64(i))) // a seeded test; not security-sensitive
			running.Go(func() { histories[i] = h.runTask(ctx, dice) })
		}
		running.Wait()
		for i := range histories {
			if err := histories[i].check(); err != nil {
				return total, err
			}
			total.Tasks++
			total.Operations += len(histories[i].operations)
			total.Unknown += histories[i].unknown
		}
	}
}

// A taskHistory has the attempts on one task, and their results.
type taskHistory struct {
	id    task.ID
	clock atomic.Int64 // numbers calls and returns in their order

	mu         sync.Mutex
	operations []porcupine.Operation
	unknown    int
}

// An attempt is one action of a client: an event, the creation of the task if it does not
// exist, or a read of the task.
type attempt struct {
	create *task.Task
	event  lifecycle.Event
	at     time.Time
}

// An observation is the result of an attempt.
type observation struct {
	after   string // the task in its stored form
	refused task.Kind
	unknown bool // the outcome is unknown
}

// runTask lets clients work on a new task, and returns their observations.
func (h History) runTask(ctx context.Context, dice *rand.Rand) *taskHistory {
	s := &taskHistory{id: task.NewID(epoch)}
	made, err := task.New(draft(s.id, fmt.Sprint("owner ", dice.IntN(10))), epoch)
	if err != nil {
		panic(err) // unreachable: the draft is a constant
	}
	plans := make([][]attempt, historyClients)
	for client := range plans {
		plans[client] = append(plans[client], attempt{create: &made})
		for range historySteps {
			plans[client] = append(plans[client], attempt{event: h.event(dice, client), at: epoch})
		}
	}
	var busy sync.WaitGroup
	for client, plan := range plans {
		busy.Go(func() {
			store := h.Stores[client%len(h.Stores)]
			for _, a := range plan {
				if !s.do(ctx, store(), client, a) {
					await(ctx, store, s.id)
				}
			}
		})
	}
	busy.Wait()
	s.do(ctx, h.Stores[0](), historyClients, attempt{})
	return s
}

// event returns a random event for a client to try. Nil means to read the task.
func (h History) event(dice *rand.Rand, client int) lifecycle.Event {
	name := fmt.Sprint("client ", client)
	lease := epoch.Add(time.Duration(1+dice.IntN(50)) * time.Minute)
	events := []lifecycle.Event{
		nil, nil,
		lifecycle.Submit{By: name, Quorum: 2, Deadline: epoch.Add(ttl / 2)},
		lifecycle.Submit{By: name, Deadline: epoch.Add(ttl / 2)},
		lifecycle.Approve{By: name},
		lifecycle.Approve{By: name},
		lifecycle.Approve{By: name},
		lifecycle.Reject{By: name},
		lifecycle.Claim{By: name, LeaseUntil: lease},
		lifecycle.Claim{By: name, LeaseUntil: lease},
		lifecycle.RenewLease{By: name, Until: lease},
		lifecycle.Contact{PollInterval: time.Duration(1+dice.IntN(9)) * time.Second},
		lifecycle.Complete{By: name, Result: task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}},
		lifecycle.Progress{By: name, UpstreamTask: "u1", Release: true},
		lifecycle.Cancel{By: name},
		lifecycle.Deliver{},
	}
	return events[dice.IntN(len(events))]
}

// await waits for a store that fails, so that clients do not use up their steps meanwhile. The
// wait is limited.
func await(ctx context.Context, store func() gatestore.Store, id task.ID) {
	const pause, limit = 20 * time.Millisecond, 10 * time.Second
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for bounded.Err() == nil {
		if _, err := store().Get(bounded, anyone(id)); err == nil || errors.Is(err, task.ErrNotFound) {
			return
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
		}
	}
}

// do makes one attempt and records its observation. It reports whether the outcome is known.
func (s *taskHistory) do(ctx context.Context, store gatestore.Store, client int, a attempt) bool {
	const limit = 3 * time.Second
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	called := s.clock.Add(1)
	seen := s.attempt(bounded, store, a)
	op := porcupine.Operation{
		ClientId: client, Input: a, Output: seen, Call: called, Return: s.clock.Add(1),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen.unknown {
		op.Return = math.MaxInt64
		op.ClientId = historyClients + 1 + len(s.operations) // the client continues, and the change may happen concurrently
		s.unknown++
	}
	s.operations = append(s.operations, op)
	return !seen.unknown
}

func (s *taskHistory) attempt(ctx context.Context, store gatestore.Store, a attempt) observation {
	var after task.Task
	var err error
	switch {
	case a.create != nil:
		after, err = *a.create, store.Create(ctx, *a.create, task.Limits{})
	case a.event != nil:
		after, err = lifecycle.Advance(ctx, store, anyone(s.id), a.event, a.at)
	default:
		after, err = store.Get(ctx, anyone(s.id))
	}
	refusal, told := errors.AsType[*task.Error](err)
	switch {
	case err == nil:
		return observation{after: encoded(after)}
	case !told || uncertain(refusal.Kind):
		return observation{unknown: true}
	default:
		return observation{refused: refusal.Kind}
	}
}

// uncertain reports whether an error of this kind leaves the outcome of a change unknown.
func uncertain(k task.Kind) bool { return k == task.ErrUnavailable || k == task.ErrClosed }

func encoded(t task.Task) string {
	text, err := storekit.Encode(t)
	if err != nil {
		return "cannot be encoded: " + err.Error()
	}
	return string(text)
}

// check returns an error if no order of events explains the history.
func (s *taskHistory) check() error {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			return step(state.(string), input.(attempt), output.(observation))
		},
		Equal: func(a, b any) bool { return a == b },
	}
	switch porcupine.CheckOperationsTimeout(model.ToModel(), s.operations, historyCheck) {
	case porcupine.Illegal:
		return fmt.Errorf("no order of events explains the observations of %s: %s", s.id, s)
	case porcupine.Unknown:
		return fmt.Errorf("checking the observations of %s did not finish within %v", s.id, historyCheck)
	default:
		return nil
	}
}

// String returns the attempts of the history and their outcomes.
func (s *taskHistory) String() string {
	var text strings.Builder
	for _, op := range s.operations {
		fmt.Fprintf(&text, "\nclient %d, %d to %d: %T %+v: %+v", op.ClientId, op.Call, op.Return, op.Input.(attempt).event, op.Input.(attempt).event, op.Output)
	}
	return text.String()
}

// step returns the possible states after an attempt on a stored task, given its observation. It
// returns none if the observation is impossible. An empty text means that the task does not
// exist.
func step(state string, a attempt, seen observation) []any {
	after, refused := model(state, a)
	switch {
	case seen.unknown && refused == "":
		return []any{state, after}
	case seen.unknown:
		return []any{state}
	case seen.refused == task.ErrConcurrentModification && a.event != nil:
		return []any{state} // the attempt lost against a concurrent change
	case seen.refused != refused, refused == "" && seen.after != after:
		return nil
	default:
		return []any{after}
	}
}

// model returns the stored task after an attempt, or the kind of the error that refuses it.
func model(state string, a attempt) (after string, refused task.Kind) {
	switch {
	case a.create != nil && state == "":
		return encoded(*a.create), ""
	case a.create != nil:
		return state, task.ErrExists
	case state == "":
		return state, task.ErrNotFound
	case a.event == nil:
		return state, ""
	}
	before, err := storekit.Decode([]byte(state))
	if err == nil {
		before, err = lifecycle.Apply(before, a.event, a.at)
	}
	if refusal, ok := errors.AsType[*task.Error](err); ok {
		return state, refusal.Kind
	}
	return encoded(before), ""
}
