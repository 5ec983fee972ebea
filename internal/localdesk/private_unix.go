//go:build unix

package localdesk

import (
	"fmt"
	"os"
	"syscall"
)

// checkPrivate returns an error unless dir is a directory that belongs to the user and
// that no other user can access.
func checkPrivate(dir string) error {
	found, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := found.Sys().(*syscall.Stat_t)
	switch {
	case !found.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case found.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users (mode %#o): run chmod 700 %[1]s", dir, found.Mode().Perm())
	}
	return nil
}
