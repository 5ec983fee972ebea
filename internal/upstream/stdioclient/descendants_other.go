//go:build !linux

package stdioclient

import (
	"syscall"
	"time"
)

// descendants does nothing: this system does not say which processes a server has started. Signals
// reach the process group of the server.
type descendants struct{ mark string }

func newDescendants() *descendants { return new(descendants) }

func (*descendants) update(int)                 {}
func (*descendants) signal(syscall.Signal) bool { return false }
func (*descendants) end(time.Duration)          {}
