//go:build !unix

package http1

import "syscall"

const canProbe = false

// A probe looks at what has arrived on a connection.
type probe struct{}

func newProbe(syscall.Conn) *probe { return nil }

func (*probe) quiet() bool { return false }

func (*probe) hasArrived() bool { return false }
