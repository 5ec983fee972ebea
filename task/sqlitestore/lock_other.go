//go:build !linux && !darwin

package sqlitestore

import "os"

// lockRange does nothing: the lock beside the file has to do.
func lockRange(*os.File, sharing) error { return nil }

func unlockRange(*os.File) error { return nil }
