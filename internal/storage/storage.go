// Package storage opens the store that the configuration names, whatever kind
// it is, and knows what each kind's errors mean to those who run the gate.
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
	"github.com/thoughtgate/thoughtgate-go/task/steadystore"
)

// Settings say which store is meant, and how to use it. Zero fields but DSN
// mean their default.
type Settings struct {
	DSN         string        // memory:, sqlite:FILE, or the URL of a server
	Dir         string        // where FILE is, unless it says so itself
	Shared      bool          // other processes may use FILE too
	Timeout     time.Duration // how long the store may take to answer
	Connections int           // how many connections to have to it
	MaxBytes    int64         // how large a file, or what is in memory, may become
	Keys        string        // what to encrypt with; see [sealedstore.ParseKeys]

	// Unreadable is called for tasks that cannot be read or decrypted; it may be nil.
	Unreadable func(error)

	// Doubtful is called when a store is opened that may lose what it has
	// acknowledged; it may be nil.
	Doubtful func(error)
}

// Memory is the DSN of the store that keeps nothing.
const Memory = "memory:"

// Durable reports whether the store outlives the process.
func (s Settings) Durable() bool { return s.DSN != Memory }

// File returns the name of the file that the store is in, if it is in one.
func (s Settings) File() (name string, ok bool) {
	name, ok = strings.CutPrefix(s.DSN, "sqlite:")
	if ok && !filepath.IsAbs(name) {
		name = filepath.Join(s.Dir, name)
	}
	return name, ok
}

func (s Settings) isRedis() bool { return strings.HasPrefix(s.DSN, "redis") }

// Open opens the store, and fails if that is not possible now, or if held calls
// or records in it are encrypted with other keys. If there are keys, all records
// are encrypted with the first of them from then on: the gate's root key is one.
func (s Settings) Open(ctx context.Context) (*sealedstore.Store, error) {
	store, err := s.OpenUnread(ctx)
	if err != nil {
		return nil, err
	}
	if err := store.Verify(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("held calls cannot be read: %w", err), store.Close())
	}
	if err := store.ClaimRecords(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the gate's root key or the sessions of operators cannot be read: %w", err), store.Close())
	}
	if file, ok := s.File(); ok {
		_ = os.Remove(file + ".key") // where earlier versions kept a key that is of no use any more
	}
	return store, nil
}

// OpenUnread is Open for those who do not care whether held calls can be read.
func (s Settings) OpenUnread(ctx context.Context) (*sealedstore.Store, error) {
	keys, err := sealedstore.ParseKeys(s.Keys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeys, err)
	}
	backend, err := s.openBackend(ctx)
	if err != nil {
		return nil, err
	}
	store := sealedstore.New(backend, keys)
	store.Unreadable = s.Unreadable
	return store, nil
}

var errKeys = errors.New("keys of the store")

func (s Settings) openBackend(ctx context.Context) (task.GateStore, error) {
	file, isFile := s.File()
	switch {
	case s.DSN == Memory:
		return memstore.New(memstore.Options{MaxBytes: s.MaxBytes}), nil
	case isFile:
		return opened(sqlitestore.Open(ctx, sqlitestore.Options{
			File: file, MaxBytes: s.MaxBytes, Readers: s.Connections, Shared: s.Shared,
		}))
	case s.isRedis():
		return opened(s.openRedis(ctx))
	default:
		return opened(pgstore.Open(ctx, pgstore.Options{URL: s.DSN, Timeout: s.Timeout, MaxConns: s.Connections}))
	}
}

func (s Settings) openRedis(ctx context.Context) (*redisstore.Store, error) {
	store, err := redisstore.Open(ctx, redisstore.Options{URL: s.DSN, Timeout: s.Timeout, Connections: s.Connections})
	if err != nil || s.Doubtful == nil {
		return store, err
	}
	if doubt := store.Check(ctx); errors.Is(doubt, redisstore.ErrNotDurable) {
		s.Doubtful(doubt)
	}
	return store, nil
}

// opened returns no store if there is an error: a nil of some type is not nil.
func opened[S task.GateStore](s S, err error) (task.GateStore, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Keep opens the store for a gate, which goes on without it: see package
// steadystore. Changed is called when the store gets into trouble and out of it. The
// error is one that waiting would not mend.
func (s Settings) Keep(ctx context.Context, changed func(trouble error)) (*steadystore.Store, error) {
	return steadystore.Open(ctx, steadystore.Options{
		Open:     func(ctx context.Context) (task.GateStore, error) { return opened(s.Open(ctx)) },
		Hopeless: Permanent,
		Probe:    probe,
		Reopen:   damaged,
		Changed:  changed,
		Timeout:  s.Timeout,
		FirstTry: 2 * s.Timeout, // to connect, and to ask
	})
}

// Permanent reports whether an error of [Settings.Open] stays until somebody
// sees to it.
func Permanent(err error) bool {
	return errors.Is(err, errKeys) || errors.Is(err, task.ErrUnreadable) || sqlitestore.Permanent(err) || pgstore.Permanent(err) || redisstore.Permanent(err)
}

// InUse reports whether an error of [Settings.Open] says that another process
// has the file open.
func InUse(err error) bool { return errors.Is(err, sqlitestore.ErrInUse) }

// damaged reports whether a store has to be opened again: what it remembers of
// a damaged file is worthless.
func damaged(err error) bool { return errors.Is(err, sqlitestore.ErrDamaged) }

// probe returns nil if a store that had trouble is well again.
func probe(ctx context.Context, s task.GateStore, trouble error) error {
	backend := Backend(s)
	if file, ok := backend.(*sqlitestore.Store); ok && damaged(trouble) {
		if err := file.Check(ctx); err != nil {
			return err
		}
	}
	if s, ok := backend.(interface{ Probe(context.Context) error }); ok {
		return s.Probe(ctx)
	}
	return nil
}

// Backend returns the store that is behind all that wraps it.
func Backend(s task.GateStore) task.GateStore {
	for {
		wrapper, ok := s.(interface{ Unwrap() task.GateStore })
		if !ok {
			return s
		}
		s = wrapper.Unwrap()
	}
}
