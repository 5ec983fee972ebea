package localuser

import "os"

// CheckPrivate returns an error unless a file or directory exists. On Windows, the user's profile
// that contains it keeps other users out.
func CheckPrivate(name string) error {
	_, err := os.Lstat(name)
	return err
}
