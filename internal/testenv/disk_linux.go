package testenv

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk returns a directory on a file system of its own, with room for so
// many bytes. It returns [ErrUnavailable] to those who may not mount one.
func SmallDisk(t testing.TB, bytes int) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	err = syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		return "", fmt.Errorf("mount: %w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, nil
}

// Freeze has every attempt to change the files that match a pattern fail, also
// by those who have them open, until the test ends or the function that it
// returns is called. It returns [ErrUnavailable] where that cannot be done.
func Freeze(t testing.TB, pattern string) (thaw func(), err error) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	change := func(how string) error {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "chattr", append([]string{how}, files...)...).CombinedOutput() //nolint:gosec // the test's own files
		if err != nil {
			return fmt.Errorf("chattr: %w: %w: %s", ErrUnavailable, err, out)
		}
		return nil
	}
	if err := change("+i"); err != nil {
		return nil, errors.Join(err, change("-i"))
	}
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			if err := change("-i"); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(thaw)
	return thaw, nil
}
