package keyring

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A reading is one request to the store for the keys. All callers who need them
// at that time share it, and nobody holds a lock meanwhile.
type reading struct {
	began time.Time
	done  chan struct{} // closed at the end; the rest is set before
	found bunch
	err   error
	left  bool // the caller who asked has left, so that the error says nothing about the store
}

// latest returns the keys as they were no longer than age ago, or those that
// were read last if the store cannot be asked.
func (r *Ring) latest(ctx context.Context, age time.Duration) (bunch, error) {
	for arrived := r.now(); ; {
		known, asked, mine := r.look(age)
		if asked == nil {
			return known, nil
		}
		if mine {
			r.ask(ctx, asked)
		}
		select {
		case <-asked.done:
		case <-ctx.Done():
			return known.instead(ctx.Err())
		}
		switch {
		case asked.err == nil && (mine || arrived.Sub(asked.began) < age):
			return asked.found, nil
		case asked.err != nil && (mine || !asked.left):
			return known.instead(asked.err)
		}
	}
}

// look returns the keys that are known. If they are older than age, it also
// returns the reading under way; the caller has to do it if it is their own.
func (r *Ring) look(age time.Duration) (known bunch, asked *reading, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.bunch.Keys != nil && now.Sub(r.readAt).Abs() < age {
		return r.bunch, nil, false
	}
	if mine = r.asked == nil; mine {
		r.asked = &reading{began: now, done: make(chan struct{})}
	}
	return r.bunch, r.asked, mine
}

// ask does a reading, and keeps what it finds.
func (r *Ring) ask(ctx context.Context, asked *reading) {
	found, _, err := r.read(ctx)
	asked.found, asked.err, asked.left = found, err, ctx.Err() != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.bunch, r.readAt = found, asked.began
	}
	r.asked = nil
	close(asked.done)
}

// instead returns the keys that are known although reading them again failed,
// unless there are none or the record is damaged.
func (b bunch) instead(err error) (bunch, error) {
	if b.Keys == nil || errors.Is(err, task.ErrUnreadable) {
		return bunch{}, err
	}
	return b, nil
}
