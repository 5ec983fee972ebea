package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A sharing says whether other processes may use a database file too.
type sharing bool

const (
	exclusive sharing = false
	shared    sharing = true // with others that share it
)

// A claim keeps others from using a database file, or from using it alone. There
// are two locks: one of the file itself, which nobody can remove, and one of a
// file beside it, which is the only one on some systems, and the only one that
// earlier versions know.
type claim struct {
	how      sharing
	lock     *os.File
	database *os.File
	stat     os.FileInfo // of the database
}

// claimFile locks the file, and makes it if it is not there.
func claimFile(name string, how sharing) (*claim, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	c := &claim{how: how}
	if err := c.take(name); err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

func (c *claim) take(name string) (err error) {
	if c.lock, err = lockFile(name+".lock", c.how); err != nil {
		return err
	}
	// The log holds what the file does. SQLite would let everybody read it.
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := makePrivate(name + suffix); err != nil {
			return err
		}
	}
	_ = syncDir(filepath.Dir(filepath.Dir(name))) // in case the directory is new; it may not be ours to read
	if err := syncDir(filepath.Dir(name)); err != nil {
		return err
	}
	if c.database, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return err
	}
	if c.stat, err = c.database.Stat(); err != nil {
		return err
	}
	return lockRange(c.database, c.how)
}

// check returns [ErrReplaced] if the file that was claimed is not the one that
// has its name any more.
func (c *claim) check() error {
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
	turnTime  = 10 * time.Second // how long to wait for others that open or close the file
	turnPause = 2 * time.Millisecond
)

// turn waits until no other process opens or closes the file, and keeps others
// from it until done is called. The first process that opens a file and the last
// one that closes it have it for themselves for a moment, in which SQLite lets
// nobody else wait.
func (c *claim) turn() (done func() error, err error) {
	if c.how == exclusive {
		return func() error { return nil }, nil
	}
	late, again := time.NewTimer(turnTime), time.NewTicker(turnPause)
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
			return nil, errors.New("other processes are opening the file, and take very long")
		}
	}
}

// release lets others use the file.
func (c *claim) release() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.database != nil {
		errs = append(errs, unlockRange(c.database), c.database.Close())
	}
	if c.lock != nil {
		errs = append(errs, unlockFile(c.lock))
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
