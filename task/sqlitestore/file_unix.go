//go:build unix && !aix && !solaris

package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens the file and locks it until [unlockFile] closes it.
func lockFile(name string, how lockMode) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	kind := syscall.LOCK_EX
	if how == shared {
		kind = syscall.LOCK_SH
	}
	err = syscall.Flock(int(file.Fd()), kind|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrInUse
	}
	return nil, errors.Join(err, file.Close())
}

// unlockFile ends the lock and closes the file. Closing alone does not end it: a child process
// that was just started has copies of the open files until it executes its program.
func unlockFile(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}

// syncDir flushes a directory, so that new files in it survive a crash of the machine.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
