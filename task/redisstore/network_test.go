package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

// overNetwork opens two stores with the same keys. The first one uses a network that can break.
func overNetwork(t *testing.T, server *testenv.Redis, poll time.Duration) (far, near *redisstore.Store, link *testenv.Proxy) {
	t.Helper()
	link, err := testenv.StartProxy(t.Context(), server.Addr())
	must(t, err)
	t.Cleanup(func() { must(t, link.Close()) })
	o := inOwnKeys(server)
	o.Poll, o.Timeout = poll, time.Minute
	near = open(t, o)
	o.URL = strings.Replace(o.URL, server.Addr(), link.Addr(), 1)
	return open(t, o), near, link
}

// TestMissedChangeWakesWatcherOverNetwork changes tasks while a watcher's replica cannot receive messages.
func TestMissedChangeWakesWatcherOverNetwork(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	t.Run("by the new connection", func(t *testing.T) {
		far, near, link := overNetwork(t, server, never)
		made := add(t, near, 1)
		changed := watch(t, far, anyone(made.ID))
		link.Set(testenv.Fault{Down: testenv.Way{Drop: true}})
		cancel(t, near, made.ID)
		eventually(t, func() error {
			if link.Lost() == 0 {
				return errors.New("no message was lost")
			}
			return nil
		})
		link.Heal()
		mustWake(t, changed, "a change whose message was lost")
	})
	// The listening connection is dead and never recovers, while the other connections work.
	t.Run("by the slow poll", func(t *testing.T) {
		far, near, link := overNetwork(t, server, 100*time.Millisecond)
		made := add(t, near, 1)
		for range 20 { // so that all connections are open
			_, err := far.Get(t.Context(), anyone(made.ID))
			must(t, err)
		}
		link.Set(testenv.Fault{Refuse: true})
		do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		eventually(t, func() error {
			if link.Connections() > 4 {
				return errors.New("the subscription is still active")
			}
			return nil
		})
		changed := watch(t, far, anyone(made.ID))
		// The kill also ends near's subscription, which shares a connection with commands. A
		// command on it may fail once.
		eventually(t, func() error { return cancelAgain(t, near, made.ID) })
		mustWake(t, changed, "a change without a message")
	})
}

// cancelAgain cancels a task. An earlier command whose answer was lost may have cancelled it
// already.
func cancelAgain(t *testing.T, s gatestore.Store, id task.ID) error {
	t.Helper()
	_, err := lifecycle.Advance(t.Context(), s, anyone(id), lifecycle.Cancel{By: "ann"}, epoch)
	if errors.Is(err, task.ErrAlreadyTerminal) {
		return nil
	}
	return err
}

// TestLateChangeIsRefused delivers a change long after it was sent, when its lease has ended. The change must
// be refused.
func TestLateChangeIsRefused(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	far, near, link := overNetwork(t, server, never)
	running := add(t, near, 1)
	for _, e := range []lifecycle.Event{
		lifecycle.Admit{By: "gate", Reason: "none needed"},
		lifecycle.Claim{By: "far", LeaseUntil: epoch.Add(time.Second)},
	} {
		var err error
		running, err = lifecycle.Advance(t.Context(), near, anyone(running.ID), e, epoch)
		must(t, err)
	}
	completed, err := lifecycle.Apply(running, lifecycle.Complete{By: "far", Result: task.Result{Kind: task.ResultOK, Inline: []byte(`{}`), Size: 2}}, epoch)
	must(t, err)

	link.Set(testenv.Fault{Up: testenv.Way{Hold: true}})
	late := make(chan error, 1)
	go func() { late <- far.Swap(t.Context(), completed) }()
	eventually(t, func() error {
		if link.Held() == 0 {
			return errors.New("no message is held back")
		}
		return nil
	})
	lapsed, err := lifecycle.Advance(t.Context(), near, anyone(running.ID), lifecycle.Lapse{By: "near"}, epoch.Add(time.Minute))
	must(t, err)
	link.Heal()
	mustBe(t, <-late, task.ErrConcurrentModification)
	got, err := near.Get(t.Context(), anyone(running.ID))
	must(t, err)
	if got.State != task.Failed || got.Version != lapsed.Version {
		t.Errorf("the task is %s after a late answer, version %d", got.State, got.Version)
	}
}
