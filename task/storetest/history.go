package storetest

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
)

// A History is what clients do to one store at the same time, through handles of
// their own, while it may be disturbed: connections break, servers crash, handles
// are closed. An error that does not tell what became of a change leaves both
// possibilities open, for ever: it may still be made when everybody has gone.
type History struct {
	// Stores return the handles that clients use at the moment. Clients take
	// them in turn.
	Stores []func() task.GateStore

	Long time.Duration // how long to go on
	Seed uint64        // what the clients' choices follow from
}

const (
	historyClients = 6
	historySteps   = 6 // of each client on each task
	historyTasks   = 3 // that are worked on at the same time
	historyCheck   = time.Minute
)

// An Account is what a history has seen.
type Account struct{ Tasks, Operations, Unknown int }

// Check has clients create, decide, claim, renew, complete, cancel and read tasks
// and returns an error unless all they saw can be explained by one order of
// events: each takes place at one moment between call and return, and makes of
// the task what [task.Task.Apply] says. It stops early when ctx ends.
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
		stories := make([]*story, historyTasks)
		var telling sync.WaitGroup
		for i := range stories {
			dice := rand.New(rand.NewPCG(h.Seed, round*historyTasks+uint64(i))) //nolint:gosec // a seeded test; not security-sensitive
			telling.Go(func() { stories[i] = h.tell(ctx, dice) })
		}
		telling.Wait()
		for i := range stories {
			if err := stories[i].check(); err != nil {
				return total, err
			}
			total.Tasks++
			total.Operations += len(stories[i].operations)
			total.Unknown += stories[i].unknown
		}
	}
}

// A story is all that was done to one task.
type story struct {
	id      task.ID
	moments atomic.Int64 // counts calls and returns, in the order in which they happen

	mu         sync.Mutex
	operations []porcupine.Operation
	unknown    int
}

// An attempt is what a client does: an event, the creation of the task if there
// is none, or a look at it if it creates nothing.
type attempt struct {
	create *task.Task
	event  task.Event
	at     time.Time
}

// A sight is what a client saw of an attempt.
type sight struct {
	after   string // the task, as it is stored
	refused task.Kind
	unknown bool // nobody knows whether it happened
}

// tell has clients work on a new task, and returns what they saw.
func (h History) tell(ctx context.Context, dice *rand.Rand) *story {
	s := &story{id: task.NewID(epoch)}
	made, err := task.New(draft(s.id, fmt.Sprint("owner ", dice.IntN(10))), epoch)
	if err != nil {
		panic(err) // the draft is a constant
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

// event returns something that a client tries. Nil looks at the task.
func (h History) event(dice *rand.Rand, client int) task.Event {
	name := fmt.Sprint("client ", client)
	lease := epoch.Add(time.Duration(1+dice.IntN(50)) * time.Minute)
	events := []task.Event{
		nil, nil,
		task.Submit{By: name, Quorum: 2, Deadline: epoch.Add(ttl / 2)},
		task.Submit{By: name, Deadline: epoch.Add(ttl / 2)},
		task.Approve{By: name},
		task.Approve{By: name},
		task.Approve{By: name},
		task.Reject{By: name},
		task.Claim{By: name, LeaseUntil: lease},
		task.Claim{By: name, LeaseUntil: lease},
		task.RenewLease{By: name, Until: lease},
		task.Contact{PollInterval: time.Duration(1+dice.IntN(9)) * time.Second},
		task.Complete{By: name, Result: task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}},
		task.Progress{By: name, UpstreamTask: "u1", Release: true},
		task.Cancel{By: name},
		task.Deliver{},
	}
	return events[dice.IntN(len(events))]
}

// await waits for a store that fails, so that clients do not use up their steps
// meanwhile, but not for ever.
func await(ctx context.Context, store func() task.GateStore, id task.ID) {
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

// do makes one attempt and notes what was seen of it. It reports whether that is
// known.
func (s *story) do(ctx context.Context, store task.GateStore, client int, a attempt) bool {
	const limit = 3 * time.Second
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	called := s.moments.Add(1)
	seen := s.attempt(bounded, store, a)
	op := porcupine.Operation{
		ClientId: client, Input: a, Output: seen, Call: called, Return: s.moments.Add(1),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen.unknown {
		op.Return = math.MaxInt64
		op.ClientId = historyClients + 1 + len(s.operations) // the client goes on, and this may happen meanwhile
		s.unknown++
	}
	s.operations = append(s.operations, op)
	return !seen.unknown
}

func (s *story) attempt(ctx context.Context, store task.GateStore, a attempt) sight {
	var after task.Task
	var err error
	switch {
	case a.create != nil:
		after, err = *a.create, store.Create(ctx, *a.create, task.Limits{})
	case a.event != nil:
		after, err = task.Advance(ctx, store, anyone(s.id), a.event, a.at)
	default:
		after, err = store.Get(ctx, anyone(s.id))
	}
	refusal, told := errors.AsType[*task.Error](err)
	switch {
	case err == nil:
		return sight{after: encoded(after)}
	case !told || uncertain(refusal.Kind):
		return sight{unknown: true}
	default:
		return sight{refused: refusal.Kind}
	}
}

// uncertain reports whether an error of this kind does not tell whether a change
// was made.
func uncertain(k task.Kind) bool { return k == task.KindUnavailable || k == task.KindClosed }

func encoded(t task.Task) string {
	text, err := task.Encode(t)
	if err != nil {
		return "cannot be encoded: " + err.Error()
	}
	return string(text)
}

// check returns an error if no order of events explains the story.
func (s *story) check() error {
	model := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{""} },
		Step:  func(state, input, output any) []any { return step(state.(string), input.(attempt), output.(sight)) },
		Equal: func(a, b any) bool { return a == b },
	}
	switch porcupine.CheckOperationsTimeout(model.ToModel(), s.operations, historyCheck) {
	case porcupine.Illegal:
		return fmt.Errorf("no order of events explains what clients saw of %s: %s", s.id, s)
	case porcupine.Unknown:
		return fmt.Errorf("whether an order of events explains what clients saw of %s was not found out in %v", s.id, historyCheck)
	default:
		return nil
	}
}

// String tells the story.
func (s *story) String() string {
	var text strings.Builder
	for _, op := range s.operations {
		fmt.Fprintf(&text, "\nclient %d, %d to %d: %T %+v: %+v", op.ClientId, op.Call, op.Return, op.Input.(attempt).event, op.Input.(attempt).event, op.Output)
	}
	return text.String()
}

// step returns the tasks that an attempt can make of a stored one, if it was seen
// as it was: none if it cannot have been. An empty text is no task.
func step(state string, a attempt, seen sight) []any {
	after, refused := model(state, a)
	switch {
	case seen.unknown && refused == "":
		return []any{state, after}
	case seen.unknown:
		return []any{state}
	case seen.refused == task.KindConcurrentModification && a.event != nil:
		return []any{state} // it came second to a change that was made since it was called
	case seen.refused != refused, refused == "" && seen.after != after:
		return nil
	default:
		return []any{after}
	}
}

// model returns what an attempt makes of a stored task, or why it is refused.
func model(state string, a attempt) (after string, refused task.Kind) {
	switch {
	case a.create != nil && state == "":
		return encoded(*a.create), ""
	case a.create != nil:
		return state, task.KindExists
	case state == "":
		return state, task.KindNotFound
	case a.event == nil:
		return state, ""
	}
	before, err := task.Decode([]byte(state))
	if err == nil {
		before, err = before.Apply(a.event, a.at)
	}
	if refusal, ok := errors.AsType[*task.Error](err); ok {
		return state, refusal.Kind
	}
	return encoded(before), ""
}
