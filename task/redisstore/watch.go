package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// News is what is known of the changes by all replicas.
type news struct {
	channel string

	mu    sync.Mutex
	heard int64 // the number of the last change that was told of
	made  int64 // the number of the last change, at the last look
}

// note returns what to tell of a change. The script puts the number of the
// change before it.
func note(id task.ID, owner string) string {
	return strconv.Itoa(len(id)) + " " + string(id) + owner
}

// parse takes a message apart.
func parse(message string) (number int64, id task.ID, owner string) {
	first, rest, _ := strings.Cut(message, " ")
	length, names, _ := strings.Cut(rest, " ")
	number, _ = strconv.ParseInt(first, 10, 64)
	size, err := strconv.Atoi(length)
	if err != nil || size < 0 || size > len(names) {
		return 0, "", "" // which follows on no number: everybody looks
	}
	return number, task.ID(names[:size]), names[size:]
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.hub.Watch(ctx, ref)
}

// retryPause is how long to wait before the next attempt to subscribe.
const retryPause = 200 * time.Millisecond

// listen hears of changes until ctx ends. It tells once whether it could
// subscribe.
func (s *Store) listen(ctx context.Context, subscribed chan<- error) {
	report := func(err error) {
		select {
		case subscribed <- err:
		default: // it is known
		}
	}
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(event rueidis.PubSubSubscription) {
		if event.Kind == "subscribe" {
			s.hub.NotifyAll()
			report(nil)
		}
	})
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		command := s.client.B().Subscribe().Channel(s.news.channel).Build().Pin()
		report(s.client.Receive(hooked, command, func(m rueidis.PubSubMessage) { s.hear(m.Message) }))
		pause.Reset(retryPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// hear wakes whom a change concerns, and everybody if another was missed. The
// own changes are heard of in the same way: one that was sent and not answered
// may still happen.
func (s *Store) hear(message string) {
	number, id, owner := parse(message)
	s.news.mu.Lock()
	missed := number != s.news.heard+1
	s.news.heard = number
	s.news.mu.Unlock()
	if missed {
		s.hub.NotifyAll()
	} else {
		s.hub.Notify(id, owner)
	}
}

// poll looks now and then, until ctx ends, for changes that were not told of.
func (s *Store) poll(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if made, err := s.lastChange(ctx); err == nil && s.news.late(made) {
			s.hub.NotifyAll()
		}
	}
}

// lastChange returns the number of the last change that was made.
func (s *Store) lastChange(ctx context.Context) (int64, error) {
	ctx, done, err := s.begin(ctx, task.ActionWatch)
	if err != nil {
		return 0, err
	}
	defer done()
	return s.client.Do(ctx, s.client.B().Get().Key(s.keys.changes()).Build().Pin()).AsInt64()
}

// late reports whether a change was not told of from one look to the next,
// given the number of the last change that was made.
func (n *news) late(made int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := n.heard < n.made
	n.heard = max(n.heard, n.made)
	n.made = made
	return late
}
