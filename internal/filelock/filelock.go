// Package filelock locks files between processes. A lock ends with its process, so nobody has
// to clean up after one that was killed.
package filelock

import "errors"

// ErrLocked reports that another process has locked a file.
var ErrLocked = errors.New("another process has it")
