package app

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// An openStore is the store of held calls, with the gate's keys in it.
type openStore struct {
	gatestore.Store

	durable bool
	ring    *keyring.Ring
	trouble func() error // returns why the store is unavailable, or nil
}

// Storage returns the settings of the store that cfg describes.
func Storage(cfg config.Config) storage.Settings {
	s := storage.Settings{
		DSN: cfg.Store.Reveal(), Dir: cfg.StateDir, Keys: cfg.Storage.Keys.Reveal(),
		Timeout: cfg.Storage.Timeout, Connections: cfg.Storage.Connections, MaxBytes: cfg.Storage.MaxSize,
	}
	if s.DSN == config.DeskStore {
		s.DSN, s.Shared = "sqlite:"+localdesk.StoreFile(cfg.StateDir), true
	}
	return s
}

// openStore opens the configured store. A gate without a policy and connections keeps nothing, so it uses
// a store in memory and creates no file. The gate starts even if the store is unavailable.
func (ap *approvals) openStore() (openStore, error) {
	settings := Storage(ap.base.cfg)
	settings.OnUnreadable, settings.OnUnsealed, settings.OnNotDurable = ap.unreadable, ap.unsealed, ap.doubtful
	settings.Shared = ap.sharedStore
	if !ap.catalog.Governs() && !ap.servers.connections.Keeps() && ap.base.cfg.Store.Reveal() != config.DeskStore {
		settings.DSN = storage.Memory
	}
	if file, ok := settings.File(); ok {
		ap.base.log.Info("store", "file", file)
	}
	k := openStore{durable: settings.Durable(), trouble: func() error { return nil }}
	ctx := context.Background() // opening has its own timeouts
	if k.durable {
		store, err := settings.OpenSteady(ctx, ap.storeChanged)
		if err != nil {
			return openStore{}, err
		}
		k.Store, k.trouble = store, store.Outage
	} else {
		store, err := settings.Open(ctx)
		if err != nil {
			return openStore{}, err
		}
		k.Store = store
	}
	k.ring = keyring.New(k.Store, time.Now)
	return k, nil
}

// storeChanged logs that the store is unavailable, or available again.
func (ap *approvals) storeChanged(trouble error) {
	ap.base.metrics.StoreUp(trouble == nil)
	if errors.Is(trouble, task.ErrOutdated) && ap.outdated != nil {
		ap.outdated()
	}
	if trouble != nil {
		ap.base.log.Error("store unavailable: calls that need approval are refused", "err", trouble)
		return
	}
	ap.base.log.Info("store available again")
}

// unreadable logs a held call that is left out of lists.
func (ap *approvals) unreadable(err error) {
	ap.base.log.Error("a held call cannot be read", "err", err)
}

// unsealed logs held calls that anyone with access to the database may have written.
func (ap *approvals) unsealed(n int) {
	ap.base.log.Error("held calls are not encrypted, although storage.keys is set: they are neither run nor shown. "+
		"If they were stored before the keys were set, encrypt them with: thoughtgate store rekey. "+
		"Otherwise someone has written them into the database", "calls", n)
}

// doubtful logs that the store may lose acknowledged writes.
func (ap *approvals) doubtful(err error) {
	ap.base.log.Warn("held calls may be lost or run twice if the store's server crashes", "err", err)
}
