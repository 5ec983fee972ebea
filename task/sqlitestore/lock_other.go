//go:build !linux && !darwin

package sqlitestore

import "os"

// lockRange does nothing: these systems have only the lock beside the file.
func lockRange(*os.File, lockMode) error { return nil }

func unlockRange(*os.File) error { return nil }
