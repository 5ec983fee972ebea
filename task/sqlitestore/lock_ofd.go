//go:build linux || darwin

package sqlitestore

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
)

// lockOffset is the offset of the byte of the database file that is locked. It lies beyond the
// largest possible database, and beyond the bytes that SQLite locks.
const lockOffset = 1 << 62

// lockRange locks a byte of an open file until [unlockRange]. The lock belongs to the open file
// rather than to the process. It survives a rename, and SQLite may open and close the same file
// meanwhile.
func lockRange(file *os.File, how lockMode) error {
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

// unlockRange ends the lock of lockRange. Closing alone does not end it: see [unlockFile].
func unlockRange(file *os.File) error { return setRange(file, syscall.F_UNLCK) }

func setRange(file *os.File, kind int16) error {
	command := 37 // F_OFD_SETLK
	if runtime.GOOS == "darwin" {
		command = 90
	}
	lock := syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: lockOffset, Len: 1}
	return syscall.FcntlFlock(file.Fd(), command, &lock)
}
