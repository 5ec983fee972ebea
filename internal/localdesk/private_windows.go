package localdesk

import (
	"fmt"
	"os"
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
