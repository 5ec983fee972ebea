package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

const sharingViolation syscall.Errno = 32

// lockFile opens the file in a way that nobody else can until it is closed, or
// nobody but those that share it.
func lockFile(name string, how sharing) (*os.File, error) {
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

// syncDir has nothing to do: the file system keeps a journal of directories.
func syncDir(string) error { return nil }
