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
func (ap *approvals) openStore() (keep, error) {
	settings := Storage(ap.cfg)
	settings.Unreadable, settings.Doubtful = ap.unreadable, ap.doubtful
	settings.Shared = ap.mixed
	if !ap.gate.Governs() && ap.cfg.Store.Reveal() != config.DeskStore {
		settings.DSN = storage.Memory
	}
	if file, ok := settings.File(); ok {
		ap.log.Info("store", "file", file)
	}
	k := keep{durable: settings.Durable(), trouble: func() error { return nil }}
	ctx := context.Background() // it bounds itself
	if k.durable {
		store, err := settings.Keep(ctx, ap.storeChanged)
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

// storeChanged reports that the store is in trouble, or no longer so.
func (ap *approvals) storeChanged(trouble error) {
	ap.metrics.StoreUp(trouble == nil)
	if errors.Is(trouble, task.ErrOutdated) && ap.outdated != nil {
		ap.outdated()
	}
	if trouble != nil {
		ap.log.Error("store unavailable: calls that need approval are refused", "err", trouble)
		return
	}
	ap.log.Info("store available again")
}

// unreadable reports a held call that is left out of lists.
func (ap *approvals) unreadable(err error) {
	ap.log.Error("a held call cannot be read", "err", err)
}

// doubtful reports that the store may lose what it has acknowledged.
func (ap *approvals) doubtful(err error) {
	ap.log.Warn("held calls may be lost or run twice if the store's server crashes", "err", err)
}
