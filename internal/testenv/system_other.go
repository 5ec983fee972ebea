//go:build !linux

package testenv

import (
	"syscall"
	"testing"
)

// attributes does nothing: servers start on Linux only.
func attributes(*account) *syscall.SysProcAttr { return nil }

// SmallDisk returns [ErrUnavailable]: it needs Linux.
func SmallDisk(testing.TB, int) (dir string, err error) { return "", ErrUnavailable }

// Freeze returns [ErrUnavailable]: it needs Linux.
func Freeze(testing.TB, ...string) (thaw func(), err error) { return nil, ErrUnavailable }
