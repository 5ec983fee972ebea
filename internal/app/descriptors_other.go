//go:build !unix

package app

// openFiles returns the process's limit of open files, or zero if it is not known.
func openFiles() uint64 { return 0 }
