//go:build unix

package localdesk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// checkPrivate returns an error unless dir is a directory that belongs to the user
// and that nobody else can use.
func checkPrivate(dir string) error {
	found, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := found.Sys().(*syscall.Stat_t)
	switch {
	case !found.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case found.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be used by others (mode %#o): run chmod 700 %[1]s", dir, found.Mode().Perm())
	}
	return nil
}

// errLocked reports that another process has locked a file.
var errLocked = errors.New("another process has it")

// lockFile opens a file and locks it until it is closed, or the process ends.
func lockFile(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	return nil, errors.Join(err, file.Close())
}

// isLocked reports whether a process has locked the file. It asks for a shared
// lock, so that two that ask do not take each other for that process.
func isLocked(name string) (bool, error) {
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK), file.Close()
}
