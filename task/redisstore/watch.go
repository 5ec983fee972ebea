package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// A changeFeed keeps track of the numbers of the changes of all replicas.
type changeFeed struct {
	channel string

	mu       sync.Mutex
	received int64 // the number in the last message
	polled   int64 // the number of the last change at the last poll
}

// encodeChange returns the message about a change, without its number. The script adds the
// number at the front.
func encodeChange(id task.ID, owner string) string {
	return strconv.Itoa(len(id)) + " " + string(id) + owner
}

// decodeChange returns the parts of a message about a change: the number, the length of the ID,
// and the ID directly followed by the owner. The number is 0 if the message is invalid. No change
// has that number, so receive then notifies all watchers.
func decodeChange(message string) (number int64, id task.ID, owner string) {
	count, rest, _ := strings.Cut(message, " ")
	length, idAndOwner, _ := strings.Cut(rest, " ")
	number, _ = strconv.ParseInt(count, 10, 64)
	size, err := strconv.Atoi(length)
	if err != nil || size < 0 || size > len(idAndOwner) {
		return 0, "", ""
	}
	return number, task.ID(idAndOwner[:size]), idAndOwner[size:]
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.notifier.Watch(ctx, ref)
}

// retryPause is the pause before the next attempt to subscribe.
const retryPause = 200 * time.Millisecond

// listen receives changes until ctx ends. It sends the result of the first attempt to
// subscribe.
func (s *Store) listen(ctx context.Context, subscribed chan<- error) {
	report := func(err error) {
		select {
		case subscribed <- err:
		default: // already reported
		}
	}
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(event rueidis.PubSubSubscription) {
		if event.Kind == "subscribe" {
			s.notifier.NotifyAll()
			report(nil)
		}
	})
	for ctx.Err() == nil {
		command := s.client.B().Subscribe().Channel(s.feed.channel).Build().Pin()
		report(s.client.Receive(hooked, command, func(m rueidis.PubSubMessage) { s.receive(m.Message) }))
		pause.For(ctx, retryPause)
	}
}

// receive notifies the watchers of a changed task, or all watchers if a message was missed.
// This replica's changes arrive in the same way, because a change without an answer may still
// happen.
func (s *Store) receive(message string) {
	number, id, owner := decodeChange(message)
	s.feed.mu.Lock()
	missed := number != s.feed.received+1
	s.feed.received = number
	s.feed.mu.Unlock()
	if missed {
		s.notifier.NotifyAll()
	} else {
		s.notifier.Notify(id, owner)
	}
}

// poll checks for missed changes at an interval, until ctx ends.
func (s *Store) poll(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		made, err := request(ctx, s, action.Watch, func(ctx context.Context) (int64, error) {
			return s.client.Do(ctx, s.client.B().Get().Key(s.keys.changes()).Build().Pin()).AsInt64()
		})
		if err == nil && s.feed.missed(made) {
			s.notifier.NotifyAll()
		}
	}
}

// missed reports whether the message of a change did not arrive between two polls. Made is the
// number of the last change.
func (n *changeFeed) missed(made int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := n.received < n.polled
	n.received = max(n.received, n.polled)
	n.polled = made
	return late
}
