package localdesk

import (
	"fmt"
	"os"
)

// checkPrivate returns an error unless dir is a directory. On Windows, the user's profile
// that contains it keeps other users out.
func checkPrivate(dir string) error {
	found, err := os.Lstat(dir)
	if err == nil && !found.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}
