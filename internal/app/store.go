package app

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
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
// nothing, so it opens none and leaves no file behind either.
func (a *App) openStore() (keep, error) {
	dsn := a.cfg.Store.Reveal()
	if dsn == "memory:" || !a.gate.Governs() {
		k := keep{Store: memstore.New(memstore.Options{})}
		_, _ = rand.Read(k.key[:]) // never fails; the program ends if there is no randomness
		return k, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if name, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if !filepath.IsAbs(name) {
			name = filepath.Join(a.cfg.StateDir, name)
		}
		a.log.Info("store", "file", name)
		return openFile(ctx, name)
	}
	return openServer(ctx, dsn)
}

// openFile opens a store for one process.
func openFile(ctx context.Context, name string) (keep, error) {
	store, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{File: name})
	if err != nil {
		return keep{}, err
	}
	k := keep{Store: store, durable: true}
	if k.key, err = readKey(name + ".key"); err != nil {
		return keep{}, errors.Join(err, store.Close())
	}
	return k, nil
}

// openServer opens a store that several replicas share. They share the key as
// well: it follows from the URL, with its password, which all of them have.
func openServer(ctx context.Context, dsn string) (keep, error) {
	k := keep{durable: true}
	key, err := hkdf.Key(sha256.New, []byte(dsn), nil, "thoughtgate: what clients hand back", len(k.key))
	if err != nil {
		return keep{}, err
	}
	copy(k.key[:], key)
	if strings.HasPrefix(dsn, "redis") {
		k.Store, err = redisstore.Open(ctx, redisstore.Options{URL: dsn})
	} else {
		k.Store, err = sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: dsn})
	}
	if err != nil {
		return keep{}, err // not k: its store would be a nil that is not nil
	}
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
