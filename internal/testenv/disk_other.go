//go:build !linux

package testenv

import "testing"

// SmallDisk returns [ErrUnavailable]: only on Linux can it be made.
func SmallDisk(testing.TB, int) (dir string, err error) { return "", ErrUnavailable }

// Freeze returns [ErrUnavailable]: only on Linux can it be done.
func Freeze(testing.TB, string) (thaw func(), err error) { return nil, ErrUnavailable }
