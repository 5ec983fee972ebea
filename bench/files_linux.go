package main

import "syscall"

// raiseFileLimit lets this process and those it starts open n files, if it may,
// and returns how many they can open, or n if that is less.
func raiseFileLimit(n int) int {
	want := uint64(max(n, 0))
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return 0
	}
	for _, raised := range []syscall.Rlimit{
		{Cur: max(want, now.Cur), Max: max(want, now.Max)}, // beyond now.Max it needs a privilege
		{Cur: now.Max, Max: now.Max},
		now,
	} {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err == nil {
			return int(min(want, raised.Cur)) //nolint:gosec // not more than n
		}
	}
	return 0
}
