package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/netfault"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

// overNetwork opens two stores with the same keys, the first of them over a
// network that can break.
func overNetwork(t *testing.T, server *testenv.Redis, poll time.Duration) (far, near *redisstore.Store, link *netfault.Proxy) {
	t.Helper()
	link, err := netfault.Start(t.Context(), server.Addr())
	must(t, err)
	t.Cleanup(func() { must(t, link.Close()) })
	o := inOwnKeys(server)
	o.Poll, o.Timeout = poll, time.Minute
	near = open(t, o)
	o.URL = strings.Replace(o.URL, server.Addr(), link.Addr(), 1)
	return open(t, o), near, link
}

// TestMissedOverNetwork changes tasks while the one who waits cannot be told.
func TestMissedOverNetwork(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	t.Run("by the new connection", func(t *testing.T) {
		far, near, link := overNetwork(t, server, never)
		made := add(t, near, 1)
		changed := watch(t, far, anyone(made.ID))
		link.Set(netfault.Fault{Down: netfault.Way{Drop: true}})
		cancel(t, near, made.ID)
		eventually(t, func() error {
			if link.Lost() == 0 {
				return errors.New("nothing was lost")
			}
			return nil
		})
		link.Heal()
		mustWake(t, changed, "what was lost")
	})
	// The connection that listens is gone and does not come back, while the
	// others are as good as ever.
	t.Run("by the slow poll", func(t *testing.T) {
		far, near, link := overNetwork(t, server, 100*time.Millisecond)
		made := add(t, near, 1)
		for range 20 { // so that each connection is there
			_, err := far.Get(t.Context(), anyone(made.ID))
			must(t, err)
		}
		link.Set(netfault.Fault{Refuse: true})
		do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		eventually(t, func() error {
			if link.Connections() > 4 {
				return errors.New("it still listens")
			}
			return nil
		})
		changed := watch(t, far, anyone(made.ID))
		// The kill has hit near's subscription too, which shares a connection
		// with commands. A command that was on it may fail once.
		eventually(t, func() error { return cancelAgain(t, near, made.ID) })
		mustWake(t, changed, "what nobody told")
	})
}

// cancelAgain cancels a task that may have been cancelled before, by a command
// whose answer was lost.
func cancelAgain(t *testing.T, s task.GateStore, id task.ID) error {
	t.Helper()
	_, err := task.Advance(t.Context(), s, anyone(id), task.Cancel{By: "ann"}, epoch)
	if errors.Is(err, task.ErrAlreadyTerminal) {
		return nil
	}
	return err
}

// TestLate lets a change arrive long after it was made, when others have given
// up the one who made it: it must not happen any more.
func TestLate(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	far, near, link := overNetwork(t, server, never)
	running := add(t, near, 1)
	for _, e := range []task.Event{
		task.Admit{By: "gate", Reason: "none needed"},
		task.Claim{By: "far", LeaseUntil: epoch.Add(time.Second)},
	} {
		var err error
		running, err = task.Advance(t.Context(), near, anyone(running.ID), e, epoch)
		must(t, err)
	}
	completed, err := running.Apply(task.Complete{By: "far", Result: task.Result{Kind: task.ResultOK, Inline: []byte(`{}`), Size: 2}}, epoch)
	must(t, err)

	link.Set(netfault.Fault{Up: netfault.Way{Hold: true}})
	late := make(chan error, 1)
	go func() { late <- far.Swap(t.Context(), completed) }()
	eventually(t, func() error {
		if link.Held() == 0 {
			return errors.New("nothing is held back")
		}
		return nil
	})
	lapsed, err := task.Advance(t.Context(), near, anyone(running.ID), task.Lapse{By: "near"}, epoch.Add(time.Minute))
	must(t, err)
	link.Heal()
	mustBe(t, <-late, task.ErrConcurrentModification)
	got, err := near.Get(t.Context(), anyone(running.ID))
	must(t, err)
	if got.State != task.Failed || got.Version != lapsed.Version {
		t.Errorf("the task is %s after a late answer, version %d", got.State, got.Version)
	}
}
