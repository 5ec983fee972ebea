//go:build linux || darwin

package sqlitestore

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
)

// guarded is the byte of the database file that is locked. It lies far behind
// the last byte that a database can have, and behind those that SQLite locks.
const guarded = 1 << 62

// lockRange locks a byte of an open file until [unlockRange]. Such a lock
// belongs to the file itself, whatever becomes of its name, and to what opened
// it, so that SQLite may open and close the same file meanwhile.
func lockRange(file *os.File, how sharing) error {
	kind := int16(syscall.F_WRLCK)
	if how == shared {
		kind = syscall.F_RDLCK
	}
	err := setRange(file, kind)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return ErrInUse
	}
	return err
}

// unlockRange ends the lock of lockRange, for the reason that unlockFile gives.
func unlockRange(file *os.File) error { return setRange(file, syscall.F_UNLCK) }

func setRange(file *os.File, kind int16) error {
	command := 37 // F_OFD_SETLK
	if runtime.GOOS == "darwin" {
		command = 90
	}
	lock := syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: guarded, Len: 1}
	return syscall.FcntlFlock(file.Fd(), command, &lock)
}
