//go:build unix

package localuser

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// CheckPrivate returns an error unless a file or directory belongs to the user, and no other user
// can access it.
func CheckPrivate(name string) error {
	found, err := os.Lstat(name)
	if err != nil {
		return err
	}
	mode := "600"
	if found.IsDir() {
		mode = "700"
	}
	stat, ok := found.Sys().(*syscall.Stat_t)
	switch {
	case found.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link", name)
	case !ok || int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", name)
	case found.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users (mode %#o): run chmod %s %[1]s", name, found.Mode().Perm(), mode)
	}
	return nil
}
