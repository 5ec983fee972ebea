//go:build !linux

package testenv

import "syscall"

// attributes has nothing to say: servers are started on Linux only.
func attributes(*account) *syscall.SysProcAttr { return nil }
