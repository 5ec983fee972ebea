// Package storage opens the configured store, of any kind, and classifies its errors. It
// also checks, exports and imports stores for the command thoughtgate store:
//
//	s := storage.Settings{DSN: "sqlite:gate.db", Dir: stateDir}
//	store, err := s.Open(ctx)
//	health, err := storage.Check(ctx, store, report, warn)
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
	"github.com/thoughtgate/thoughtgate-go/task/steadystore"
)

// Settings describe a store. Only DSN is required.
type Settings struct {
	DSN         string        // memory:, sqlite:FILE, or the URL of a server
	Dir         string        // the directory of a relative FILE
	Shared      bool          // other processes may use FILE too
	Timeout     time.Duration // of one operation
	Connections int           // to the database
	MaxBytes    int64         // size limit of a file or of the store in memory
	Keys        string        // encryption keys; see [sealedstore.ParseKeys]

	// OnUnreadable is called for each task that cannot be read or decrypted; it may be nil.
	OnUnreadable func(error)

	// OnUnsealed is called when a store with keys has n tasks that are not encrypted; it
	// may be nil.
	OnUnsealed func(n int)

	// OnNotDurable is called when a server may lose acknowledged writes; it may be nil.
	OnNotDurable func(error)
}

// Memory is the DSN of the store in memory.
const Memory = "memory:"

// Durable reports whether the store outlives the process.
func (s Settings) Durable() bool { return s.DSN != Memory }

// File returns the name of the store's file, if the store is a file.
func (s Settings) File() (name string, ok bool) {
	name, ok = strings.CutPrefix(s.DSN, "sqlite:")
	if ok && !filepath.IsAbs(name) {
		name = filepath.Join(s.Dir, name)
	}
	return name, ok
}

// SizeLimit returns the size limit of the store, if the gate enforces one.
func (s Settings) SizeLimit() (bytes int64, bounded bool) {
	_, isFile := s.File()
	switch {
	case s.DSN == Memory && s.MaxBytes == 0:
		return memstore.DefaultMaxBytes, true
	case s.DSN == Memory || isFile:
		return s.MaxBytes, s.MaxBytes > 0
	default:
		return 0, false
	}
}

// A kind is a kind of store.
type kind struct {
	schemes   []string // of DSNs; package config accepts the same
	open      func(context.Context, Settings) (gatestore.Store, error)
	permanent func(error) bool // reports whether retrying open is useless
}

// kinds are all kinds of stores. Optional operations such as Check, Probe and Vacuum are
// methods of the store itself.
var kinds = []kind{
	{[]string{"memory"}, openMemory, func(error) bool { return false }},
	{[]string{"sqlite"}, openFile, sqlitestore.Permanent},
	{[]string{"postgres", "postgresql"}, openPostgres, pgstore.Permanent},
	{[]string{"redis", "rediss"}, openRedis, redisstore.Permanent},
}

func openMemory(_ context.Context, s Settings) (gatestore.Store, error) {
	return memstore.New(memstore.Options{MaxBytes: s.MaxBytes}), nil
}

func openFile(ctx context.Context, s Settings) (gatestore.Store, error) {
	file, _ := s.File()
	return orNil(sqlitestore.Open(ctx, sqlitestore.Options{File: file, MaxBytes: s.MaxBytes, Readers: s.Connections, Shared: s.Shared}))
}

func openPostgres(ctx context.Context, s Settings) (gatestore.Store, error) {
	return orNil(pgstore.Open(ctx, pgstore.Options{URL: s.DSN, Timeout: s.Timeout, MaxConns: s.Connections}))
}

func openRedis(ctx context.Context, s Settings) (gatestore.Store, error) {
	store, err := redisstore.Open(ctx, redisstore.Options{URL: s.DSN, Timeout: s.Timeout, Connections: s.Connections})
	if err != nil {
		return nil, err
	}
	if s.OnNotDurable != nil {
		if err := store.Check(ctx); errors.Is(err, redisstore.ErrNotDurable) {
			s.OnNotDurable(err)
		}
	}
	return store, nil
}

func (s Settings) openBackend(ctx context.Context) (gatestore.Store, error) {
	scheme, _, _ := strings.Cut(s.DSN, ":")
	for _, k := range kinds {
		if slices.Contains(k.schemes, scheme) {
			return k.open(ctx, s)
		}
	}
	return nil, fmt.Errorf("%w: %q", errScheme, scheme)
}

var errScheme = errors.New("unknown kind of store")

// Open opens the store. It fails if the store is not available, or if held calls or records
// are encrypted with other keys. With keys, it encrypts all records, such as the gate's root
// key, with the first key, except those of package callrecord, which are many.
func (s Settings) Open(ctx context.Context) (*sealedstore.Store, error) {
	store, err := s.OpenUnverified(ctx)
	if err != nil {
		return nil, err
	}
	if err := store.Verify(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("held calls cannot be read: %w", err), store.Close())
	}
	if err := store.RekeyRecords(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the gate's root key or the sessions of operators cannot be read: %w", err), store.Close())
	}
	if n, err := store.Unsealed(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	} else if n > 0 && s.OnUnsealed != nil {
		s.OnUnsealed(n)
	}
	if file, ok := s.File(); ok {
		_ = os.Remove(file + ".key") // left by earlier versions
	}
	return store, nil
}

// OpenUnverified is like Open, but accepts a store that the keys cannot decrypt.
func (s Settings) OpenUnverified(ctx context.Context) (*sealedstore.Store, error) {
	keys, err := sealedstore.ParseKeys(s.Keys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeys, err)
	}
	backend, err := s.openBackend(ctx)
	if err == nil {
		backend, err = withFailpoint(backend)
	}
	if err != nil {
		return nil, err
	}
	store := sealedstore.New(reclaimingStore{backend}, keys)
	store.Unreadable, store.Bulk = s.OnUnreadable, callrecord.Prefix
	return store, nil
}

var errKeys = errors.New("keys of the store")

// orNil converts a result of a store's Open. With an error it returns a nil interface, rather
// than a typed nil pointer.
func orNil[S gatestore.Store](s S, err error) (gatestore.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// OpenSteady opens the store for a gate, which keeps running while the store is unavailable:
// see package steadystore. It calls changed with the cause when the store becomes unavailable,
// and with nil when it is available again. OpenSteady only returns permanent errors.
func (s Settings) OpenSteady(ctx context.Context, changed func(trouble error)) (*steadystore.Store, error) {
	return steadystore.Open(ctx, steadystore.Options{
		Open:        func(ctx context.Context) (gatestore.Store, error) { return orNil(s.Open(ctx)) },
		Permanent:   Permanent,
		Probe:       probe,
		Reopen:      damaged,
		OnChange:    changed,
		Timeout:     s.Timeout,
		OpenTimeout: 2 * s.Timeout, // for the connection and a first request
	})
}

// Permanent reports whether retrying after this error of [Settings.Open] is useless.
func Permanent(err error) bool {
	return errors.Is(err, errKeys) || errors.Is(err, task.ErrUnreadable) || errors.Is(err, errScheme) ||
		slices.ContainsFunc(kinds, func(k kind) bool { return k.permanent(err) })
}

// InUse reports whether [Settings.Open] failed because another process has the file open.
func InUse(err error) bool { return errors.Is(err, sqlitestore.ErrInUse) }

// damaged reports whether the store must be opened again, because its cache of a damaged
// file is useless.
func damaged(err error) bool { return errors.Is(err, sqlitestore.ErrDamaged) }

// probe returns nil if the store is available again.
func probe(ctx context.Context, s gatestore.Store, trouble error) error {
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

// Backend returns the store below all wrappers.
func Backend(s gatestore.Store) gatestore.Store {
	for {
		wrapper, ok := s.(interface{ Unwrap() gatestore.Store })
		if !ok {
			return s
		}
		s = wrapper.Unwrap()
	}
}
