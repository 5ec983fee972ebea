package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
)

// openTimeout is how long a store may take to be opened.
const openTimeout = 30 * time.Second

// A keep is where held calls are kept, and the key of what clients hand back.
type keep struct {
	task.Store

	durable bool
	key     [32]byte
}

// openStore opens the store of the configuration. A gate without policy holds
// nothing, so it leaves no file behind either.
func (a *App) openStore() (keep, error) {
	name, isFile := strings.CutPrefix(a.cfg.Store, "sqlite:")
	if !isFile || !a.gate.Governs() {
		k := keep{Store: memstore.New(memstore.Options{})}
		_, _ = rand.Read(k.key[:]) // never fails; the program ends if there is no randomness
		return k, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(a.cfg.StateDir, name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	store, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{File: name})
	if err != nil {
		return keep{}, err
	}
	k := keep{Store: store, durable: true}
	if k.key, err = readKey(name + ".key"); err != nil {
		return keep{}, errors.Join(err, store.Close())
	}
	a.log.Info("store", "file", name)
	return k, nil
}

// readKey returns the key in a file, which is made if it is not there: what was
// handed to clients must be good after a restart.
func readKey(file string) (key [32]byte, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data = make([]byte, len(key))
		_, _ = rand.Read(data)
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return key, fmt.Errorf("key of the store: %w", err)
	}
	if copy(key[:], data) != len(key) || len(data) != len(key) {
		return key, fmt.Errorf("key of the store: %s does not hold %d bytes", file, len(key))
	}
	return key, nil
}
