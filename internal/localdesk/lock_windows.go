package localdesk

import (
	"errors"
	"os"
	"syscall"
)

const sharingViolation syscall.Errno = 32

// Lock opens a file so that no other process can write to it until the file is closed or
// the process ends.
func Lock(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(handle), name), nil
}

// isLocked reports whether a process has locked the file.
func isLocked(name string) (bool, error) {
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	file, err := Lock(name)
	if err == nil {
		return false, file.Close()
	}
	return errors.Is(err, ErrLocked), nil
}
