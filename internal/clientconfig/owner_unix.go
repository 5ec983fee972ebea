//go:build unix

package clientconfig

import (
	"errors"
	"os"
	"syscall"
)

// keepOwner gives tmp the owner and group of the file that it replaces, if that exists.
func keepOwner(tmp *os.File, name string) error {
	old, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := tmp.Stat()
	if err != nil {
		return err
	}
	was, ok := old.Sys().(*syscall.Stat_t)
	is, known := now.Sys().(*syscall.Stat_t)
	if !ok || !known || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return tmp.Chown(int(was.Uid), int(was.Gid))
}

// syncDir makes a rename in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
