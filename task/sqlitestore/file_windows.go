package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

const sharingViolation syscall.Errno = 32

// lockFile opens the file so that no other process can open it until it is closed, except
// in shared mode.
func lockFile(name string, how lockMode) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	var mode uint32
	if how == shared {
		mode = syscall.FILE_SHARE_READ | syscall.FILE_SHARE_WRITE
	}
	handle, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, mode, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(handle), name), nil
}

// unlockFile ends the lock by closing the file.
func unlockFile(file *os.File) error { return file.Close() }

// syncDir does nothing: the file system has a journal.
func syncDir(string) error { return nil }
