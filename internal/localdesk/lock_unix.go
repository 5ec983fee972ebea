//go:build unix

package localdesk

import (
	"errors"
	"os"
	"syscall"
)

// Lock opens a file and locks it until it is closed, or the process ends.
func Lock(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	return nil, errors.Join(err, file.Close())
}

// isLocked reports whether a process has locked the file. It tries a shared lock, so that
// two concurrent callers do not disturb each other.
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
