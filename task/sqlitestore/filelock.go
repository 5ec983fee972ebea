package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A lockMode tells whether other processes may use a database file too.
type lockMode bool

const (
	exclusive lockMode = false
	shared    lockMode = true // other processes may share it
)

// A fileLock locks a database file, exclusively or shared. It takes two locks: one on the file
// itself, and one on a file beside it. Some systems only support the second, and earlier
// versions only check the second.
type fileLock struct {
	mode     lockMode
	lockFile *os.File
	database *os.File
	stat     os.FileInfo // of the database
}

// lockDatabase locks the file. It creates the file if it does not exist.
func lockDatabase(name string, how lockMode) (*fileLock, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	c := &fileLock{mode: how}
	if err := c.acquire(name); err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

func (c *fileLock) acquire(name string) (err error) {
	if c.lockFile, err = lockFile(name+".lock", c.mode); err != nil {
		return err
	}
	// The log has the same data as the file, but SQLite would make it readable for all users.
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := makePrivate(name + suffix); err != nil {
			return err
		}
	}
	_ = syncDir(filepath.Dir(filepath.Dir(name))) // the directory may be new; opening it may not be permitted
	if err := syncDir(filepath.Dir(name)); err != nil {
		return err
	}
	if c.database, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return err
	}
	if c.stat, err = c.database.Stat(); err != nil {
		return err
	}
	return lockRange(c.database, c.mode)
}

// check returns [ErrReplaced] if the name no longer refers to the locked file.
func (c *fileLock) check() error {
	if c == nil {
		return nil // a file in memory
	}
	found, err := os.Stat(c.database.Name())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	}
	if !os.SameFile(found, c.stat) {
		return fmt.Errorf("%w: another file is in its place", ErrReplaced)
	}
	return nil
}

const (
	turnTimeout  = 10 * time.Second // how long to wait for other processes that open or close the file
	turnInterval = 2 * time.Millisecond
)

// waitForTurn waits until no other process opens or closes the file, and keeps other
// processes from it until done is called. SQLite locks the file exclusively while the first
// process opens it and while the last one closes it, and does not let others wait.
func (c *fileLock) waitForTurn() (done func() error, err error) {
	if c == nil || c.mode == exclusive {
		return func() error { return nil }, nil
	}
	late, again := time.NewTimer(turnTimeout), time.NewTicker(turnInterval)
	defer late.Stop()
	defer again.Stop()
	for {
		turn, err := lockFile(c.database.Name()+".turn", exclusive)
		if err == nil {
			return func() error { return unlockFile(turn) }, nil
		}
		if !errors.Is(err, ErrInUse) {
			return nil, err
		}
		select {
		case <-again.C:
		case <-late.C:
			return nil, errors.New("timed out waiting for other processes that open the file")
		}
	}
}

// release releases the locks.
func (c *fileLock) release() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.database != nil {
		errs = append(errs, unlockRange(c.database), c.database.Close())
	}
	if c.lockFile != nil {
		errs = append(errs, unlockFile(c.lockFile))
	}
	return errors.Join(errs...)
}

func makePrivate(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o600), file.Close())
}
