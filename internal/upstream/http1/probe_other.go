//go:build !unix

package http1

import "syscall"

const canProbe = false

func newProbe(syscall.Conn) func() bool { return nil }
