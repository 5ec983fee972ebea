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
)

// A keep is where held calls are kept, and the keys that are kept beside them.
type keep struct {
	task.GateStore

	durable bool
	ring    *keyring.Ring
	trouble func() error // why it cannot be used now, if it cannot
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

// openStore opens the store of the configuration. A gate without policy holds
// nothing, so it opens none and leaves no file behind either. A store that
// cannot be reached does not keep the gate from starting.
func (a *App) openStore() (keep, error) {
	settings := Storage(a.cfg)
	settings.Unreadable, settings.Doubtful = a.unreadable, a.doubtful
	settings.Shared = a.mixed
	if !a.gate.Governs() && a.local == nil {
		settings.DSN = storage.Memory
	}
	if file, ok := settings.File(); ok {
		a.log.Info("store", "file", file)
	}
	k := keep{durable: settings.Durable(), trouble: func() error { return nil }}
	ctx := context.Background() // it bounds itself
	if k.durable {
		store, err := settings.Keep(ctx, a.storeChanged)
		if err != nil {
			return keep{}, err
		}
		k.GateStore, k.trouble = store, store.Trouble
	} else {
		store, err := settings.Open(ctx)
		if err != nil {
			return keep{}, err
		}
		k.GateStore = store
	}
	k.ring = keyring.New(k.GateStore, time.Now)
	return k, nil
}

// storeChanged is told when the store gets into trouble, and out of it.
func (a *App) storeChanged(trouble error) {
	a.metrics.StoreUp(trouble == nil)
	if errors.Is(trouble, task.ErrOutdated) && a.local != nil {
		a.operators.resign() // a newer gate can serve the inbox, and this one cannot
	}
	if trouble != nil {
		a.log.Error("store unavailable: calls that need approval are refused", "err", trouble)
		return
	}
	a.log.Info("store available again")
}

// unreadable is told of held calls that are left out of lists.
func (a *App) unreadable(err error) {
	a.log.Error("a held call cannot be read", "err", err)
}

// doubtful is told that the store may lose what it has acknowledged.
func (a *App) doubtful(err error) {
	a.log.Warn("held calls may be lost or run twice if the store's server crashes", "err", err)
}
