package localdesk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// checkPrivate returns an error unless dir is a directory. That others cannot use
// it is for the profile of the user to say, in which it is.
func checkPrivate(dir string) error {
	found, err := os.Lstat(dir)
	if err == nil && !found.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}

// errLocked reports that another process has locked a file.
var errLocked = errors.New("another process has it")

const sharingViolation syscall.Errno = 32

// lockFile opens a file in a way that nobody else can write to it until it is
// closed, or the process ends.
func lockFile(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, errLocked
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
	file, err := lockFile(name)
	if err == nil {
		return false, file.Close()
	}
	return errors.Is(err, errLocked), nil
}
